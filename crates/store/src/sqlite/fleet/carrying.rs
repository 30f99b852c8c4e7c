//! Who carries what: lanes are taken with each beat, hubs are seized, and both are given up.

use postrider_core::{HubId, Timestamp};
use rusqlite::{Connection, params};

use super::revision;
use crate::error::Error;
use crate::fleet::{Beat, Charge, Held, Member, NodeId, Pulse, Tenure};
use crate::sqlite::rows;

/// A node that left does not come back, nor does one whose number has passed to another: both would
/// make the same ids.
const STAY: &str = "UPDATE nodes SET seen_at = ?2, until = ?2 + lease_ms, in_flight = ?3, \
     waiting_since = ?4, listens = ?5, takes = ?6 WHERE id = ?1 AND lease_ms > 0 \
     AND NOT EXISTS (SELECT 1 FROM nodes AS heir \
         WHERE heir.number = nodes.number AND heir.id > nodes.id)";

pub(crate) fn beat(
    conn: &Connection,
    pulse: &Pulse,
    now: Timestamp,
) -> Result<Option<Beat>, Error> {
    let stayed = conn.prepare_cached(STAY)?.execute(params![
        pulse.node.0,
        now.as_millis(),
        pulse.in_flight,
        pulse.waiting_since.map(Timestamp::as_millis),
        pulse.listens,
        pulse.takes,
    ])?;
    if stayed == 0 {
        return Ok(None);
    }
    let live = live(conn, now)?;
    let mut tenures = tenures(conn)?;
    let lanes = tenures.iter().filter(|row| row.is_lane()).count();
    let share = share(lanes, &live, pulse.node);
    let held = take(conn, &mut tenures, &live, pulse.node, share)?;
    let others = live.iter().filter(|other| other.member.node != pulse.node);
    Ok(Some(Beat {
        now,
        held: tenures.iter().filter_map(|row| row.held_by(&live)).collect(),
        surplus: held.saturating_sub(share),
        next_lapse: others.map(|other| other.until.since(now)).min(),
        nodes: live.iter().map(|node| node.member).collect(),
        revision: revision(conn)?,
    }))
}

/// Takes free lanes until `node` has `share` of them; returns how many it has then.
fn take(
    conn: &Connection,
    tenures: &mut [Row],
    live: &[Live],
    node: NodeId,
    share: usize,
) -> Result<usize, Error> {
    const SQL: &str = "UPDATE tenures SET node_id = ?2, epoch = ?3 WHERE key = ?1";
    let mut update = conn.prepare_cached(SQL)?;
    let mut held = tenures.iter().filter(|row| row.is_lane() && row.holder == Some(node)).count();
    for row in tenures.iter_mut().filter(|row| row.is_lane()) {
        if held < share && row.held_by(live).is_none() {
            row.holder = Some(node);
            row.tenure.epoch += 1;
            update.execute((row.tenure.charge.key(), node.0, row.tenure.epoch))?;
            held += 1;
        }
    }
    Ok(held)
}

/// How many lanes `node` may have; one that is stopping has no share.
fn share(lanes: usize, live: &[Live], node: NodeId) -> usize {
    let takers = || live.iter().filter(|node| node.takes);
    let among = takers().count();
    let place = takers().position(|taker| taker.member.node == node);
    place.map_or(0, |place| lanes / among + usize::from(place < lanes % among))
}

pub(crate) fn seize(conn: &Connection, node: NodeId, hub: HubId) -> Result<Tenure, Error> {
    const SQL: &str = "INSERT INTO tenures (key, node_id, epoch) VALUES (?1, ?2, 1) \
         ON CONFLICT (key) DO UPDATE SET node_id = excluded.node_id, epoch = epoch + 1 \
         RETURNING epoch";
    let charge = Charge::Hub(hub);
    let epoch = conn.prepare_cached(SQL)?.query_row((charge.key(), node.0), |row| row.get(0))?;
    Ok(Tenure { charge, epoch })
}

pub(crate) fn release(conn: &Connection, node: NodeId, tenures: &[Tenure]) -> Result<(), Error> {
    const SQL: &str =
        "UPDATE tenures SET node_id = NULL WHERE key = ?1 AND node_id = ?2 AND epoch = ?3";
    let mut statement = conn.prepare_cached(SQL)?;
    for tenure in tenures {
        statement.execute((tenure.charge.key(), node.0, tenure.epoch))?;
    }
    Ok(())
}

struct Live {
    member: Member,
    takes: bool,
    until: Timestamp,
}

/// In the order they joined.
fn live(conn: &Connection, now: Timestamp) -> Result<Vec<Live>, Error> {
    const SQL: &str = "SELECT id, listens, takes, until FROM nodes WHERE until > ?1 ORDER BY id";
    conn.prepare_cached(SQL)?
        .query_and_then((now.as_millis(),), |row| {
            let member = Member { node: NodeId(row.get(0)?), listens: row.get(1)? };
            Ok(Live { member, takes: row.get(2)?, until: rows::time(row, 3)? })
        })?
        .collect()
}

/// A charge, whoever has it.
struct Row {
    tenure: Tenure,
    holder: Option<NodeId>,
}

impl Row {
    fn is_lane(&self) -> bool {
        matches!(self.tenure.charge, Charge::Lane(_))
    }

    /// Who has it, if that one lives.
    fn held_by(&self, live: &[Live]) -> Option<Held> {
        let node = self.holder?;
        live.iter()
            .any(|live| live.member.node == node)
            .then_some(Held { node, tenure: self.tenure })
    }
}

fn tenures(conn: &Connection) -> Result<Vec<Row>, Error> {
    conn.prepare_cached("SELECT key, node_id, epoch FROM tenures ORDER BY key")?
        .query_and_then((), |row| {
            let tenure = Tenure { charge: Charge::from_key(row.get(0)?), epoch: row.get(2)? };
            Ok(Row { tenure, holder: row.get::<_, Option<i64>>(1)?.map(NodeId) })
        })?
        .collect()
}
