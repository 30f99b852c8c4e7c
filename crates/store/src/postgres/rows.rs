//! Rows as records. What cannot be decoded is damage, said as such.

use std::time::Duration;

use bytes::Bytes;
use postrider_core::{Delivery, DeliveryId, EndpointId, EventId, SourceId, TenantId, Timestamp};
use tokio_postgres::Row;
use tokio_postgres::types::FromSql;

use super::text::Stored;
use crate::error::Error;
use crate::record::{Attempt, DeliveryRecord, Event};
use crate::stored::code::{self, Place};
use crate::stored::hot::Hot;
use crate::stored::{headers, response};

/// The columns that [`record`] reads, in its order.
pub(crate) const RECORD: &str = "id, tenant_id, event_id, endpoint_id, state, place, attempts, \
     deferrals, tries, fence, born, at, last_attempt_at, reason, class, last_error, line, replay, \
     result";

pub(crate) fn record(row: &Row) -> Result<DeliveryRecord, Error> {
    let state = code::decode_state(small(row, 4)?)?;
    let place = optional_small(row, 5)?.map(Place::decode).transpose()?;
    let at = Some(time(row, 11)?);
    Ok(DeliveryRecord {
        id: DeliveryId::from_i64(get(row, 0)?),
        tenant: TenantId(get(row, 1)?),
        event: EventId::from_i64(get(row, 2)?),
        endpoint: EndpointId::from_i64(get(row, 3)?),
        state,
        attempts: count(row, 6)?,
        deferrals: count(row, 7)?,
        tries: count(row, 8)?,
        fence: count(row, 9)?,
        born: time(row, 10)?,
        due: if state.is_terminal() { None } else { at },
        last_attempt_at: optional_time(row, 12)?,
        ended_at: if state.is_terminal() { at } else { None },
        reason: optional_small(row, 13)?.map(code::decode_reason).transpose()?,
        class: optional_small(row, 14)?.map(code::decode_class).transpose()?,
        last_error: optional_text(row, 15)?,
        line: optional_text(row, 16)?,
        parked: place == Some(Place::Parked),
        replay: get(row, 17)?,
        result: optional_text(row, 18)?,
    })
}

/// How many columns [`HOT`] has: where those of an event begin, if they follow.
pub(crate) const AFTER_HOT: usize = 12;

/// Reads the columns of [`HOT`] from the column `first` on.
pub(crate) fn hot_at(row: &Row, first: usize) -> Result<Hot, Error> {
    Ok(Hot {
        id: DeliveryId::from_i64(get(row, first)?),
        event: EventId::from_i64(get(row, first + 1)?),
        endpoint: EndpointId::from_i64(get(row, first + 2)?),
        delivery: Delivery {
            state: code::decode_state(small(row, first + 3)?)?,
            attempts: count(row, first + 4)?,
            deferrals: count(row, first + 5)?,
            born: time(row, first + 8)?,
            due: time(row, first + 9)?,
        },
        tries: count(row, first + 6)?,
        fence: count(row, first + 7)?,
        in_line: get(row, first + 10)?,
        tenant: TenantId(get(row, first + 11)?),
    })
}

pub(crate) fn hot(row: &Row) -> Result<Hot, Error> {
    hot_at(row, 0)
}

/// The columns that [`event_at`] reads, in its order; the body apart.
pub(crate) const EVENT: &str = "e.id, e.tenant_id, e.received_at, e.deliver_at, e.kind, \
     e.content_type, e.idempotency_key, e.ordering_key, e.metadata, e.source_id, e.verified, \
     e.filter_errors, e.headers, e.trace";

/// The event `e` of a delivery `u`, to be joined. It is written so that the server looks it up by its
/// key in the one part where it can be, whatever it thinks of the size of the table.
pub(crate) const EVENT_OF_DELIVERY: &str =
    "LATERAL (SELECT * FROM events e WHERE e.id = u.event_id OFFSET 0) e";

/// How many columns [`EVENT`] has: where the body is, if it follows.
pub(crate) const AFTER_EVENT: usize = 14;

/// Whether the body follows the columns of [`EVENT`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Body {
    Follows,
    LeftOut,
}

/// Reads the columns of [`EVENT`] from the column `first` on.
pub(crate) fn event_at(row: &Row, first: usize, body: Body) -> Result<Event, Error> {
    Ok(Event {
        id: EventId::from_i64(get(row, first)?),
        tenant: TenantId(get(row, first + 1)?),
        received_at: time(row, first + 2)?,
        deliver_at: optional_time(row, first + 3)?,
        kind: text(row, first + 4)?,
        content_type: text(row, first + 5)?,
        idempotency_key: optional_text(row, first + 6)?,
        ordering_key: optional_text(row, first + 7)?,
        metadata: optional_text(row, first + 8)?,
        source: get::<Option<i64>>(row, first + 9)?.map(SourceId::from_i64),
        verified: get(row, first + 10)?,
        filter_errors: optional_text(row, first + 11)?,
        headers: get::<Option<&[u8]>>(row, first + 12)?
            .map(headers::decode)
            .transpose()?
            .unwrap_or_default(),
        // One that cannot be read keeps nothing from being delivered.
        trace: get::<Option<&str>>(row, first + 13)?.and_then(|text| text.parse().ok()),
        body: match body {
            Body::Follows => Bytes::copy_from_slice(get(row, first + AFTER_EVENT)?),
            Body::LeftOut => Bytes::new(),
        },
    })
}

pub(crate) fn missing_event(delivery: &Hot) -> Error {
    Error::Damaged(format!("{} of {} is missing", delivery.event, delivery.id))
}

/// The columns that [`attempt`] reads, in its order.
pub(crate) const ATTEMPT: &str =
    "number, counted, started_at, duration_ms, status, class, error, response";

pub(crate) fn attempt(row: &Row) -> Result<Attempt, Error> {
    let status = get::<Option<i32>>(row, 4)?.map(u16::try_from).transpose();
    Ok(Attempt {
        number: count(row, 0)?,
        counted: get(row, 1)?,
        started_at: time(row, 2)?,
        duration: Duration::from_millis(count(row, 3)?.into()),
        status: status.map_err(|_| Error::Damaged("a status is none".to_owned()))?,
        class: optional_small(row, 5)?.map(code::decode_class).transpose()?,
        error: optional_text(row, 6)?,
        response: get::<Option<&[u8]>>(row, 7)?.map(response::decode).transpose()?,
    })
}

pub(crate) fn get<'r, T: FromSql<'r>>(row: &'r Row, column: usize) -> Result<T, Error> {
    row.try_get(column).map_err(|error| {
        let name = row.columns().get(column).map_or("?", tokio_postgres::Column::name);
        Error::Damaged(format!("{name}: {error}"))
    })
}

/// A number that only grows, stored with the bits that it has.
pub(crate) fn count(row: &Row, column: usize) -> Result<u32, Error> {
    Ok(get::<i32>(row, column)?.cast_unsigned())
}

pub(crate) fn small(row: &Row, column: usize) -> Result<i64, Error> {
    Ok(get::<i16>(row, column)?.into())
}

fn optional_small(row: &Row, column: usize) -> Result<Option<i64>, Error> {
    Ok(get::<Option<i16>>(row, column)?.map(i64::from))
}

pub(crate) fn state(row: &Row, column: usize) -> Result<postrider_core::delivery::State, Error> {
    code::decode_state(small(row, column)?)
}

pub(crate) fn text(row: &Row, column: usize) -> Result<String, Error> {
    Ok(get::<Stored>(row, column)?.0)
}

pub(crate) fn optional_text(row: &Row, column: usize) -> Result<Option<String>, Error> {
    Ok(get::<Option<Stored>>(row, column)?.map(|stored| stored.0))
}

pub(crate) fn time(row: &Row, column: usize) -> Result<Timestamp, Error> {
    Ok(Timestamp::from_millis(get(row, column)?))
}

pub(crate) fn optional_time(row: &Row, column: usize) -> Result<Option<Timestamp>, Error> {
    Ok(get::<Option<i64>>(row, column)?.map(Timestamp::from_millis))
}

/// A code of code.rs, as a column takes it.
pub(crate) fn as_small(code: i64) -> i16 {
    i16::try_from(code).expect("codes are small")
}

/// A hash of a key or a token.
pub(crate) fn hash(row: &Row, column: usize) -> Result<[u8; 32], Error> {
    let bytes: &[u8] = get(row, column)?;
    bytes.try_into().map_err(|_| Error::Damaged("a stored hash has not 32 bytes".to_owned()))
}
