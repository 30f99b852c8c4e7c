//! What is copied: the tables of the target, and where the rows of each come from.
//!
//! What belongs to nodes, lanes and the schema stays behind, and so do sessions: they last for hours, and
//! whoever has one can sign in again. Counts are made anew from what was copied, and the name of the
//! store is the last thing that is written.

/// A table of the target.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) name: &'static str,
    /// Its columns; those of the key come first.
    pub(crate) columns: &'static str,
    /// The same columns as the origin has them.
    pub(crate) origin_columns: &'static str,
    /// The rows of the origin that they come from.
    pub(crate) origin: &'static str,
    /// Numbers of the origin that tell its rows apart, by which they are read in order.
    pub(crate) key: &'static [&'static str],
    pub(crate) changes: Changes,
    pub(crate) parts: Parts,
}

/// How rows of the origin change, as far as a look from far away has to notice it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Changes {
    /// They come and go, but stay what they are.
    Never,
    /// What this is the sum of does not stay the same.
    Sum(&'static str),
    /// In any way: there are so few that they are all looked at.
    Anyhow,
}

/// Whether the table has a part for each day of its ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Parts {
    One,
    ByDay,
}

/// Every change of a delivery moves its fence, but for a longer lease, which moves its time.
const DELIVERY_CHANGES: Changes = Changes::Sum("fence + (at & 65535)");

/// Configuration first: it is little, and what cannot be copied is found out soon.
pub(crate) const TABLES: &[Table] = &[
    configured("tenants", "id, name, created_at"),
    configured(
        "keys",
        "id, name, sha256, tenant_id, created_at, expires_at, revoked_at, last_used_at",
    ),
    configured(
        "endpoints",
        "id, tenant_id, state, spec, secrets, created_at, updated_at, failing_since, hold_until, \
         breaker",
    ),
    configured("sources", "id, tenant_id, spec, secrets, created_at, updated_at"),
    configured("hubs", "id, tenant_id, name, sha256, created_at"),
    Table {
        key: &["object_id"],
        ..configured("declarations", "object_id, tenant_id, kind, name, applied")
    },
    configured(
        "jobs",
        "id, tenant_id, state, filter, rate_per_second, matched, replayed, skipped, \
         position_event, position_delivery, created_at, updated_at",
    ),
    Table {
        changes: Changes::Never,
        ..configured("audit", "id, at, tenant_id, key_id, action, subject, detail")
    },
    Table {
        changes: Changes::Never,
        parts: Parts::ByDay,
        ..configured(
            "events",
            "id, tenant_id, received_at, deliver_at, source_id, deliveries, verified, kind, \
             content_type, idempotency_key, ordering_key, metadata, filter_errors, headers, body, \
             trace",
        )
    },
    Table {
        name: "idempotency",
        columns: "event_id, scope, key",
        origin_columns: "id, coalesce(source_id, -tenant_id), idempotency_key",
        origin: "events WHERE idempotency_key IS NOT NULL",
        key: &["id"],
        changes: Changes::Never,
        parts: Parts::One,
    },
    Table {
        name: "unfinished",
        columns: "id, tenant_id, event_id, endpoint_id, born, at, last_attempt_at, attempts, \
             deferrals, tries, fence, state, place, class, replay, line, last_error, result, turn",
        // A line is in the order of its events.
        origin_columns: "id, tenant_id, event_id, endpoint_id, born, at, last_attempt_at, \
             attempts, deferrals, tries, fence, state, place, class, replay, line, last_error, \
             result, CASE WHEN line IS NOT NULL THEN event_id END",
        origin: "deliveries WHERE place IS NOT NULL",
        key: &["id"],
        changes: DELIVERY_CHANGES,
        parts: Parts::One,
    },
    Table {
        origin: "deliveries WHERE place IS NULL",
        changes: DELIVERY_CHANGES,
        parts: Parts::ByDay,
        ..configured(
            "finished",
            "id, tenant_id, event_id, endpoint_id, born, at, last_attempt_at, attempts, \
             deferrals, tries, fence, status, duration_ms, state, class, reason, replay, line, \
             last_error, result, response",
        )
    },
    Table {
        key: &["delivery_id", "number"],
        changes: Changes::Never,
        parts: Parts::ByDay,
        ..configured(
            "attempts",
            "delivery_id, number, counted, started_at, duration_ms, status, class, error, response",
        )
    },
    Table {
        key: &["tenant_id", "grain", "endpoint_id", "start"],
        // They only ever grow.
        changes: Changes::Sum("received + delivered + failures + dead"),
        ..configured(
            "measures",
            "tenant_id, grain, endpoint_id, start, received, delivered, failures, dead, latency",
        )
    },
];

/// A table that is the same on both sides, with few rows.
const fn configured(name: &'static str, columns: &'static str) -> Table {
    Table {
        name,
        columns,
        origin_columns: columns,
        origin: name,
        key: &["id"],
        changes: Changes::Anyhow,
        parts: Parts::One,
    }
}

impl Table {
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        TABLES.iter().find(|table| table.name == name)
    }

    /// This one and those that are copied after it.
    pub(crate) fn and_later(&self) -> &'static [Self] {
        let first = TABLES.iter().position(|table| table.name == self.name).unwrap_or(0);
        &TABLES[first..]
    }
}
