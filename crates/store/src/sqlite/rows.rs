//! Rows as records. What cannot be decoded is damage, said as such.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use postrider_core::{Delivery, DeliveryId, EndpointId, EventId, SourceId, TenantId, Timestamp};
use rusqlite::{Connection, OptionalExtension, Row};

use crate::error::Error;
use crate::record::{Attempt, DeliveryRecord, Event};
use crate::stored::code::{self, Place};
use crate::stored::hot::Hot;
use crate::stored::{headers, response};

/// The columns that [`record`] reads, in its order.
pub(crate) const RECORD: &str = "id, tenant_id, event_id, endpoint_id, state, place, attempts, \
     deferrals, tries, fence, born, at, last_attempt_at, reason, class, last_error, line, replay, \
     result";

pub(crate) fn record(row: &Row<'_>) -> Result<DeliveryRecord, Error> {
    let state = code::decode_state(row.get(4)?)?;
    let place = row.get::<_, Option<i64>>(5)?.map(Place::decode).transpose()?;
    let at = Some(time(row, 11)?);
    Ok(DeliveryRecord {
        id: DeliveryId::from_i64(row.get(0)?),
        tenant: TenantId(row.get(1)?),
        event: EventId::from_i64(row.get(2)?),
        endpoint: EndpointId::from_i64(row.get(3)?),
        state,
        attempts: row.get(6)?,
        deferrals: row.get(7)?,
        tries: row.get(8)?,
        fence: row.get(9)?,
        born: time(row, 10)?,
        due: if state.is_terminal() { None } else { at },
        last_attempt_at: optional_time(row, 12)?,
        ended_at: if state.is_terminal() { at } else { None },
        reason: row.get::<_, Option<i64>>(13)?.map(code::decode_reason).transpose()?,
        class: row.get::<_, Option<i64>>(14)?.map(code::decode_class).transpose()?,
        last_error: row.get(15)?,
        line: row.get(16)?,
        parked: place == Some(Place::Parked),
        replay: row.get(17)?,
        result: row.get(18)?,
    })
}

pub(crate) fn hot(row: &Row<'_>) -> Result<Hot, Error> {
    Ok(Hot {
        id: DeliveryId::from_i64(row.get(0)?),
        event: EventId::from_i64(row.get(1)?),
        endpoint: EndpointId::from_i64(row.get(2)?),
        delivery: Delivery {
            state: code::decode_state(row.get(3)?)?,
            attempts: row.get(4)?,
            deferrals: row.get(5)?,
            born: time(row, 8)?,
            due: time(row, 9)?,
        },
        tries: row.get(6)?,
        fence: row.get(7)?,
        in_line: row.get(10)?,
        tenant: TenantId(row.get(11)?),
    })
}

/// The columns that [`event`] reads, in its order; the body apart.
pub(crate) const EVENT: &str = "id, tenant_id, received_at, deliver_at, kind, content_type, \
     idempotency_key, ordering_key, metadata, source_id, verified, filter_errors, headers, trace";

pub(crate) fn event(row: &Row<'_>, body: Bytes) -> Result<Event, Error> {
    Ok(Event {
        id: EventId::from_i64(row.get(0)?),
        tenant: TenantId(row.get(1)?),
        received_at: time(row, 2)?,
        deliver_at: optional_time(row, 3)?,
        kind: row.get(4)?,
        content_type: row.get(5)?,
        idempotency_key: row.get(6)?,
        ordering_key: row.get(7)?,
        metadata: row.get(8)?,
        source: row.get::<_, Option<i64>>(9)?.map(SourceId::from_i64),
        verified: row.get(10)?,
        filter_errors: row.get(11)?,
        headers: blob(row, 12)?.map(headers::decode).transpose()?.unwrap_or_default(),
        // One that cannot be read keeps nothing from being delivered.
        trace: row.get_ref(13)?.as_str_or_null()?.and_then(|text| text.parse().ok()),
        body,
    })
}

/// An event with its body.
pub(crate) fn load_event(conn: &Connection, id: EventId) -> Result<Option<Event>, Error> {
    let mut statement =
        conn.prepare_cached(&format!("SELECT {EVENT}, body FROM events WHERE id = ?1"))?;
    let mut rows = statement.query((id.as_i64(),))?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let body = Bytes::copy_from_slice(blob(row, 14)?.unwrap_or_default());
    event(row, body).map(Some)
}

/// An event that a delivery refers to, and which therefore is there.
pub(crate) fn load_event_of(conn: &Connection, delivery: &Hot) -> Result<Arc<Event>, Error> {
    load_event(conn, delivery.event)?.map(Arc::new).ok_or_else(|| missing_event(delivery))
}

/// The same without its body.
pub(crate) fn load_event_head_of(conn: &Connection, delivery: &Hot) -> Result<Arc<Event>, Error> {
    let mut statement =
        conn.prepare_cached(&format!("SELECT {EVENT} FROM events WHERE id = ?1"))?;
    let mut rows = statement.query((delivery.event.as_i64(),))?;
    let row = rows.next()?.ok_or_else(|| missing_event(delivery))?;
    event(row, Bytes::new()).map(Arc::new)
}

fn missing_event(delivery: &Hot) -> Error {
    Error::Damaged(format!("{} of {} is missing", delivery.event, delivery.id))
}

/// One delivery as history shows it.
pub(crate) fn load_record(
    conn: &Connection,
    id: DeliveryId,
) -> Result<Option<DeliveryRecord>, Error> {
    conn.prepare_cached(&format!("SELECT {RECORD} FROM deliveries WHERE id = ?1"))?
        .query_row((id.as_i64(),), |row| Ok(record(row)))
        .optional()?
        .transpose()
}

/// The columns that [`attempt`] reads, in its order.
pub(crate) const ATTEMPT: &str =
    "number, counted, started_at, duration_ms, status, class, error, response";

pub(crate) fn attempt(row: &Row<'_>) -> Result<Attempt, Error> {
    Ok(Attempt {
        number: row.get(0)?,
        counted: row.get(1)?,
        started_at: time(row, 2)?,
        duration: Duration::from_millis(row.get::<_, u32>(3)?.into()),
        status: row.get(4)?,
        class: row.get::<_, Option<i64>>(5)?.map(code::decode_class).transpose()?,
        error: row.get(6)?,
        response: blob(row, 7)?.map(response::decode).transpose()?,
    })
}

pub(crate) fn time(row: &Row<'_>, column: usize) -> Result<Timestamp, Error> {
    Ok(Timestamp::from_millis(row.get(column)?))
}

pub(crate) fn optional_time(row: &Row<'_>, column: usize) -> Result<Option<Timestamp>, Error> {
    Ok(row.get::<_, Option<i64>>(column)?.map(Timestamp::from_millis))
}

pub(crate) fn blob<'r>(row: &'r Row<'_>, column: usize) -> Result<Option<&'r [u8]>, Error> {
    Ok(row.get_ref(column)?.as_blob_or_null()?)
}
