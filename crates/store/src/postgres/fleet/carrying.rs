//! Who carries what: lanes are taken with each beat, hubs are seized, and both are given up.

use std::time::Duration;

use postrider_core::{HubId, Timestamp};

use crate::error::Error;
use crate::fleet::{Beat, Charge, Held, Member, NodeId, Pulse, Tenure};
use crate::postgres::rows;
use crate::postgres::session::Session;

/// One round trip; see the function in the schema.
const BEAT: &str = "SELECT now_ms, surplus, next_lapse_ms, revision_now, node_ids, node_listens, \
     held_keys, held_nodes, held_epochs FROM beat($1, $2, $3, $4, $5)";

pub(crate) async fn beat(session: &Session, pulse: &Pulse) -> Result<Option<Beat>, Error> {
    let waiting_since = pulse.waiting_since.map(Timestamp::as_millis);
    let (takes, listens) = (pulse.takes, pulse.listens);
    let in_flight = pulse.in_flight.cast_signed();
    let row = session
        .row(BEAT, &[&pulse.node.0, &takes, &listens, &in_flight, &waiting_since])
        .await?
        .ok_or_else(no_answer)?;
    let Some(now) = rows::optional_time(&row, 0)? else { return Ok(None) };
    let next_lapse: Option<i64> = rows::get(&row, 2)?;
    let nodes: Vec<i64> = rows::get(&row, 4)?;
    let listens: Vec<bool> = rows::get(&row, 5)?;
    // None rather than an empty one, if nobody has anything.
    let list = |column| rows::get::<Option<Vec<i64>>>(&row, column).map(Option::unwrap_or_default);
    let (keys, holders, epochs) = (list(6)?, list(7)?, list(8)?);
    let held = keys.into_iter().zip(epochs).zip(holders);
    Ok(Some(Beat {
        now,
        nodes: nodes
            .into_iter()
            .zip(listens)
            .map(|(node, listens)| Member { node: NodeId(node), listens })
            .collect(),
        held: held
            .map(|((key, epoch), node)| Held { node: NodeId(node), tenure: tenure(key, epoch) })
            .collect(),
        surplus: usize::try_from(rows::get::<i32>(&row, 1)?).unwrap_or(0),
        next_lapse: next_lapse.map(|millis| Duration::from_millis(millis.unsigned_abs())),
        revision: rows::get(&row, 3)?,
    }))
}

pub(crate) fn tenure(key: i64, epoch: i64) -> Tenure {
    Tenure { charge: Charge::from_key(key), epoch }
}

pub(crate) async fn seize(session: &Session, node: NodeId, hub: HubId) -> Result<Tenure, Error> {
    const SQL: &str = "INSERT INTO tenures (key, node_id, epoch) VALUES ($1, $2, 1) \
         ON CONFLICT (key) DO UPDATE SET node_id = excluded.node_id, epoch = tenures.epoch + 1 \
         RETURNING epoch";
    let charge = Charge::Hub(hub);
    let row = session.row(SQL, &[&charge.key(), &node.0]).await?.ok_or_else(no_answer)?;
    Ok(Tenure { charge, epoch: rows::get(&row, 0)? })
}

/// In the order of keys, as everybody who locks several of them does.
pub(crate) async fn release(
    session: &Session,
    node: NodeId,
    mut tenures: Vec<Tenure>,
) -> Result<(), Error> {
    const SQL: &str = "UPDATE tenures t SET node_id = NULL \
         FROM unnest($2::int8[], $3::int8[]) g (key, epoch) \
         WHERE t.key = g.key AND t.epoch = g.epoch AND t.node_id = $1";
    tenures.sort_unstable_by_key(|tenure| tenure.charge.key());
    let (keys, epochs): (Vec<i64>, Vec<i64>) =
        tenures.iter().map(|tenure| (tenure.charge.key(), tenure.epoch)).unzip();
    session.execute(SQL, &[&node.0, &keys, &epochs]).await?;
    Ok(())
}

pub(crate) fn no_answer() -> Error {
    Error::Damaged("the server gave no answer where it always has one".to_owned())
}
