//! A transaction under way: the connection, the statements that nearly every command of it needs, and
//! the counts to be brought up to date at its end.

use std::collections::HashMap;

use postrider_core::delivery::State;
use postrider_core::{DeliveryId, EndpointId, TenantId};
use rusqlite::{CachedStatement, Connection};

use crate::error::Error;
use crate::stored::code;
use crate::vitals::Load;

pub(crate) struct Batch<'c> {
    pub(crate) conn: &'c Connection,
    pub(crate) statements: Kept<'c>,
    pub(crate) counts: Counts,
    pub(crate) load: Load,
}

/// Statements that are looked up once in a transaction, not once in a command: the few that nearly every
/// command needs.
#[derive(Default)]
pub(crate) struct Kept<'c> {
    statements: Vec<(&'static str, CachedStatement<'c>)>,
}

impl<'c> Kept<'c> {
    pub(crate) fn get(
        &mut self,
        conn: &'c Connection,
        sql: &'static str,
    ) -> Result<&mut CachedStatement<'c>, Error> {
        let known = self.statements.iter().position(|(known, _)| *known == sql);
        let index = known.unwrap_or(self.statements.len());
        if known.is_none() {
            self.statements.push((sql, conn.prepare_cached(sql)?));
        }
        Ok(&mut self.statements[index].1)
    }
}

#[derive(Default)]
pub(crate) struct Counts {
    deliveries: HashMap<(EndpointId, i64), Change>,
    events: HashMap<TenantId, i64>,
}

struct Change {
    by: i64,
    /// Any delivery of the endpoint: it knows the tenant.
    example: DeliveryId,
}

impl<'c> Batch<'c> {
    pub(crate) fn new(conn: &'c Connection) -> Self {
        Self { conn, statements: Kept::default(), counts: Counts::default(), load: Load::default() }
    }

    /// Counts `by` more deliveries of `endpoint` in `state`.
    pub(crate) fn count(
        &mut self,
        endpoint: EndpointId,
        state: State,
        by: i64,
        example: DeliveryId,
    ) {
        self.counts.deliveries(endpoint, state, by, example);
    }

    pub(crate) fn count_events(&mut self, tenant: TenantId, by: i64) {
        self.counts.events(tenant, by);
    }

    /// Vitals the counts: one statement for each that changed, however many rows did.
    pub(crate) fn finish(self) -> Result<(), Error> {
        self.counts.write(self.conn)
    }
}

impl Counts {
    pub(crate) fn deliveries(
        &mut self,
        endpoint: EndpointId,
        state: State,
        by: i64,
        example: DeliveryId,
    ) {
        self.deliveries
            .entry((endpoint, code::state(state)))
            .or_insert(Change { by: 0, example })
            .by += by;
    }

    pub(crate) fn events(&mut self, tenant: TenantId, by: i64) {
        *self.events.entry(tenant).or_insert(0) += by;
    }

    fn write(&self, conn: &Connection) -> Result<(), Error> {
        let mut update = conn.prepare_cached(
            "UPDATE delivery_counts SET n = n + ?3 WHERE endpoint_id = ?1 AND state = ?2",
        )?;
        for ((endpoint, state), change) in &self.deliveries {
            if change.by == 0 {
                continue;
            }
            if update.execute((endpoint.as_i64(), state, change.by))? == 0 {
                first_count(conn, *endpoint, *state, change)?;
            }
        }
        for (tenant, by) in self.events.iter().filter(|(_, by)| **by != 0) {
            conn.prepare_cached(
                "INSERT INTO event_counts (tenant_id, n) VALUES (?1, ?2) \
                 ON CONFLICT (tenant_id) DO UPDATE SET n = n + excluded.n",
            )?
            .execute((tenant.0, by))?;
        }
        Ok(())
    }
}

fn first_count(
    conn: &Connection,
    endpoint: EndpointId,
    state: i64,
    change: &Change,
) -> Result<(), Error> {
    let inserted = conn
        .prepare_cached(
            "INSERT INTO delivery_counts (endpoint_id, state, tenant_id, n) \
                 SELECT ?1, ?2, tenant_id, ?3 FROM deliveries WHERE id = ?4",
        )?
        .execute((endpoint.as_i64(), state, change.by, change.example.as_i64()))?;
    if inserted == 1 {
        Ok(())
    } else {
        Err(Error::Damaged(format!("deliveries of {endpoint} have not been counted")))
    }
}
