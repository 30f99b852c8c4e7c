//! Who is there: nodes join, live for as long as they beat, and leave.

use std::time::Duration;

use postrider_core::lane::MAX_LANES;
use tokio_postgres::Row;

use super::carrying::{no_answer, tenure};
use crate::error::Error;
use crate::fleet::{Joined, NUMBER_REST, NewNode, NodeId, NodeRecord};
use crate::postgres::config::{LONGEST_LEASE, NODE_MEMORY};
use crate::postgres::rows;
use crate::postgres::session::Session;
use crate::postgres::text::Text;

const JOIN: &str = "SELECT its_id, its_number, lanes FROM \
     join_nodes($1, $2, $3, $4, $5, $6, $7, $8)";

const NODES: &str = "SELECT n.id, n.number, n.name, n.version, n.address, n.joined_at, n.seen_at, \
         n.until, n.until > clock.now, n.in_flight, n.waiting_since, \
         ARRAY(SELECT key FROM tenures t WHERE t.node_id = n.id ORDER BY key), \
         ARRAY(SELECT epoch FROM tenures t WHERE t.node_id = n.id ORDER BY key) \
     FROM (SELECT clock_ms() AS now) clock CROSS JOIN nodes n \
     WHERE n.until >= clock.now - $1 ORDER BY n.id";

pub(crate) async fn join(session: &Session, new: &NewNode) -> Result<Joined, Error> {
    let lease = millis(new.lease.min(LONGEST_LEASE)).max(1);
    let lanes = i32::from(new.lanes.clamp(1, MAX_LANES));
    let (name, version, address) = (Text(&new.name), Text(&new.version), Text(&new.address));
    let place = new.place.as_deref().map(Text);
    let (rest, memory) = (millis(NUMBER_REST), millis(NODE_MEMORY));
    let row = session
        .row(JOIN, &[&name, &version, &address, &place, &lease, &lanes, &rest, &memory])
        .await?
        .ok_or_else(no_answer)?;
    let Some(node) = rows::get::<Option<i64>>(&row, 0)? else {
        return Err(Error::Refused(format!(
            "{} nodes share the database, or did until a short while ago: stop some, or try again \
             in some minutes",
            usize::from(u8::MAX) + 1
        )));
    };
    let lanes = u16::try_from(rows::get::<i32>(&row, 2)?)
        .map_err(|_| Error::Damaged("there are more lanes than there can be".to_owned()))?;
    Ok(Joined { node: NodeId(node), number: number(&row, 1)?, lanes })
}

pub(crate) async fn leave(session: &Session, node: NodeId) -> Result<(), Error> {
    const SQL: &str = "WITH gone AS (UPDATE nodes SET until = least(until, clock_ms()), \
             lease_ms = 0 WHERE id = $1) \
         UPDATE tenures SET node_id = NULL WHERE node_id = $1";
    session.execute(SQL, &[&node.0]).await?;
    Ok(())
}

pub(crate) async fn nodes(session: &Session) -> Result<Vec<NodeRecord>, Error> {
    let found = session.rows(NODES, &[&millis(NODE_MEMORY)]).await?;
    found.iter().map(record).collect()
}

fn record(row: &Row) -> Result<NodeRecord, Error> {
    let keys: Vec<i64> = rows::get(row, 11)?;
    let epochs: Vec<i64> = rows::get(row, 12)?;
    Ok(NodeRecord {
        node: NodeId(rows::get(row, 0)?),
        number: number(row, 1)?,
        name: rows::text(row, 2)?,
        version: rows::text(row, 3)?,
        address: rows::text(row, 4)?,
        joined_at: rows::time(row, 5)?,
        seen_at: rows::time(row, 6)?,
        until: rows::time(row, 7)?,
        live: rows::get(row, 8)?,
        in_flight: rows::count(row, 9)?,
        waiting_since: rows::optional_time(row, 10)?,
        held: keys.into_iter().zip(epochs).map(|(key, epoch)| tenure(key, epoch)).collect(),
    })
}

fn number(row: &Row, column: usize) -> Result<u8, Error> {
    u8::try_from(rows::get::<i16>(row, column)?)
        .map_err(|_| Error::Damaged("the number of a node is none".to_owned()))
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
