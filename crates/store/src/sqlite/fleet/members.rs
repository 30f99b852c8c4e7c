//! Who is there: nodes join, live for as long as they beat, and leave.

use std::collections::HashMap;
use std::time::Duration;

use postrider_core::Timestamp;
use postrider_core::lane::MAX_LANES;
use rusqlite::{Connection, params};

use crate::error::Error;
use crate::fleet::{Charge, Joined, NUMBER_REST, NewNode, NodeId, NodeRecord, Tenure};
use crate::sqlite::rows;

/// How many numbers there are to give to nodes.
pub(crate) const NUMBERS: usize = 1 << u8::BITS;

/// A node that has ended is remembered for so long.
const MEMORY: Duration = Duration::from_hours(1);

/// The latest time that any of the nodes has told.
pub(crate) fn last_seen(conn: &Connection) -> Result<Timestamp, Error> {
    let sql = "SELECT coalesce(max(seen_at), 0) FROM nodes";
    Ok(Timestamp::from_millis(conn.query_row(sql, (), |row| row.get(0))?))
}

/// None, if no number is free.
pub(crate) fn join(
    conn: &Connection,
    new: &NewNode,
    now: Timestamp,
) -> Result<Option<Joined>, Error> {
    const SQL: &str = "INSERT INTO nodes \
         (number, name, version, address, lease_ms, joined_at, seen_at, until, place) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6, ?6 + ?5, ?7)";
    forget(conn, now.minus(MEMORY))?;
    if let Some(place) = &new.place {
        end_predecessors(conn, place, now)?;
    }
    let lanes = lanes(conn, new.lanes)?;
    let Some(number) = free_number(conn, now)? else { return Ok(None) };
    let lease_ms = i64::try_from(new.lease.as_millis()).unwrap_or(i64::MAX);
    conn.prepare_cached(SQL)?.execute(params![
        number,
        new.name,
        new.version,
        new.address,
        lease_ms.clamp(1, Timestamp::MAX.as_millis()),
        now.as_millis(),
        new.place,
    ])?;
    Ok(Some(Joined { node: NodeId(conn.last_insert_rowid()), number, lanes }))
}

/// Whoever was in a place before is gone.
fn end_predecessors(conn: &Connection, place: &str, now: Timestamp) -> Result<(), Error> {
    conn.prepare_cached(
        "UPDATE tenures SET node_id = NULL \
         WHERE node_id IN (SELECT id FROM nodes WHERE place = ?1)",
    )?
    .execute((place,))?;
    conn.prepare_cached("UPDATE nodes SET until = min(until, ?2), lease_ms = 0 WHERE place = ?1")?
        .execute((place, now.as_millis()))?;
    Ok(())
}

/// Forgets those that ended before. What they had and nobody took stays free: nobody has their id
/// again.
fn forget(conn: &Connection, before: Timestamp) -> Result<(), Error> {
    conn.prepare_cached("DELETE FROM nodes WHERE until < ?1")?.execute((before.as_millis(),))?;
    Ok(())
}

/// How many lanes there are. If nobody has said so yet, as many as are `wanted`.
fn lanes(conn: &Connection, wanted: u16) -> Result<u16, Error> {
    let count: u16 = conn
        .prepare_cached("SELECT count(*) FROM tenures WHERE key <= ?1")?
        .query_row((u16::MAX,), |row| row.get(0))?;
    if count > 0 {
        return Ok(count);
    }
    let lanes = wanted.clamp(1, MAX_LANES);
    let mut insert = conn.prepare_cached("INSERT INTO tenures (key, epoch) VALUES (?1, 0)")?;
    for lane in 0..lanes {
        insert.execute((lane,))?;
    }
    Ok(lanes)
}

/// The lowest that no node has, and that none had until a short while ago.
fn free_number(conn: &Connection, now: Timestamp) -> Result<Option<u8>, Error> {
    let mut statement = conn.prepare_cached("SELECT number FROM nodes WHERE until > ?1")?;
    let taken = statement
        .query_and_then((now.minus(NUMBER_REST).as_millis(),), |row| Ok(row.get(0)?))?
        .collect::<Result<Vec<u8>, Error>>()?;
    Ok((0..=u8::MAX).find(|number| !taken.contains(number)))
}

pub(crate) fn leave(conn: &Connection, node: NodeId, now: Timestamp) -> Result<(), Error> {
    conn.prepare_cached("UPDATE nodes SET until = min(until, ?2), lease_ms = 0 WHERE id = ?1")?
        .execute((node.0, now.as_millis()))?;
    conn.prepare_cached("UPDATE tenures SET node_id = NULL WHERE node_id = ?1")?
        .execute((node.0,))?;
    Ok(())
}

pub(crate) fn nodes(conn: &Connection, now: Timestamp) -> Result<Vec<NodeRecord>, Error> {
    const SQL: &str = "SELECT id, number, name, version, address, joined_at, seen_at, until, \
         in_flight, waiting_since FROM nodes WHERE until >= ?1 ORDER BY id";
    let mut held = held(conn)?;
    conn.prepare_cached(SQL)?
        .query_and_then((now.minus(MEMORY).as_millis(),), |row| {
            let node = NodeId(row.get(0)?);
            let until = rows::time(row, 7)?;
            Ok(NodeRecord {
                node,
                number: row.get(1)?,
                name: row.get(2)?,
                version: row.get(3)?,
                address: row.get(4)?,
                joined_at: rows::time(row, 5)?,
                seen_at: rows::time(row, 6)?,
                until,
                live: until > now,
                in_flight: row.get(8)?,
                waiting_since: rows::optional_time(row, 9)?,
                held: held.remove(&node).unwrap_or_default(),
            })
        })?
        .collect()
}

/// What each has, in the order of keys.
fn held(conn: &Connection) -> Result<HashMap<NodeId, Vec<Tenure>>, Error> {
    let sql = "SELECT node_id, key, epoch FROM tenures WHERE node_id IS NOT NULL ORDER BY key";
    let mut statement = conn.prepare_cached(sql)?;
    let mut found = statement.query(())?;
    let mut held: HashMap<NodeId, Vec<Tenure>> = HashMap::new();
    while let Some(row) = found.next()? {
        let tenure = Tenure { charge: Charge::from_key(row.get(1)?), epoch: row.get(2)? };
        held.entry(NodeId(row.get(0)?)).or_default().push(tenure);
    }
    Ok(held)
}
