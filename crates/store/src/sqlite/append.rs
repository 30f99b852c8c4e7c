//! Storing events with their deliveries.

use std::sync::Arc;

use postrider_core::delivery::State;
use postrider_core::{Delivery, DeliveryId, EventId, SourceId, Timestamp, Trace};
use rusqlite::params;

use super::batch::Batch;
use super::settle::line_is_taken;
use super::{fault, rows};
use crate::error::Error;
use crate::journal::Appended;
use crate::record::{Event, NewDelivery, NewEvent, Waiting, delivery_id};
use crate::stored::code::{self, Place};
use crate::stored::content::{same_body, same_metadata};
use crate::stored::headers;

const INSERT_EVENT: &str = "INSERT INTO events (id, tenant_id, received_at, deliver_at, deliveries, \
     kind, content_type, idempotency_key, ordering_key, metadata, source_id, verified, \
     filter_errors, headers, body, trace) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16) \
     ON CONFLICT DO NOTHING";

const INSERT_DELIVERY: &str = "INSERT INTO deliveries (id, tenant_id, event_id, endpoint_id, state, \
     place, attempts, deferrals, tries, fence, replay, born, at, line) \
     VALUES (?1, ?2, ?3, ?4, 0, ?5, 0, 0, 0, 0, ?6, ?7, ?7, ?8)";

pub(crate) fn append(batch: &mut Batch<'_>, events: &[NewEvent]) -> Result<Vec<Appended>, Error> {
    batch.load.appended += events.len();
    events
        .iter()
        .map(|new| {
            // The constraint decides; only whoever it refuses asks why.
            if !store_event(batch, new)? {
                return find_earlier(batch, &new.event)?
                    .ok_or_else(|| Error::Exists(new.event.id.to_string()));
            }
            let parked = store_deliveries(batch, new)?;
            Ok(Appended::New { parked })
        })
        .collect()
}

/// Makes deliveries of a stored event, due at once. None, if the event is gone.
pub(crate) fn append_deliveries(
    batch: &mut Batch<'_>,
    event: EventId,
    first: DeliveryId,
    deliveries: &[NewDelivery],
    now: Timestamp,
) -> Result<Vec<Waiting>, Error> {
    let Some(event) = rows::load_event(batch.conn, event)?.map(Arc::new) else {
        return Ok(Vec::new());
    };
    let mut ready = Vec::with_capacity(deliveries.len());
    for (id, new) in (first.as_i64()..).map(DeliveryId::from_i64).zip(deliveries) {
        let place = insert_one(batch, &event, id, new, Origin::Replay(now))?;
        if place != Place::Parked {
            let delivery =
                Delivery { state: State::Pending, attempts: 0, deferrals: 0, due: now, born: now };
            ready.push(Waiting {
                id,
                endpoint: new.endpoint,
                event: Arc::clone(&event),
                delivery,
                tries: 0,
                fence: 0,
                in_line: new.line.is_some(),
            });
        }
    }
    Ok(ready)
}

/// False, if its id or its idempotency key is taken.
fn store_event(batch: &mut Batch<'_>, new: &NewEvent) -> Result<bool, Error> {
    let insert = batch.insert_event.get(batch.conn, INSERT_EVENT)?;
    let event = &new.event;
    let headers = (!event.headers.is_empty()).then(|| headers::encode(&event.headers));
    let inserted = insert.execute(params![
        event.id.as_i64(),
        event.tenant.0,
        event.received_at.as_millis(),
        event.deliver_at.map(Timestamp::as_millis),
        code::size(new.deliveries.len()),
        event.kind,
        event.content_type,
        event.idempotency_key,
        event.ordering_key,
        event.metadata,
        event.source.map(SourceId::as_i64),
        event.verified,
        event.filter_errors,
        headers,
        &event.body[..],
        event.trace.as_ref().map(Trace::to_string),
    ])?;
    if inserted == 0 {
        return Ok(false);
    }
    batch.count_events(event.tenant, 1);
    Ok(true)
}

/// Stores the deliveries of a new event; returns the indexes of those that stand behind another.
fn store_deliveries(batch: &mut Batch<'_>, new: &NewEvent) -> Result<Vec<usize>, Error> {
    let mut parked = Vec::new();
    for (index, delivery) in new.deliveries.iter().enumerate() {
        let id = delivery_id(new.event.id, index);
        let place = insert_one(batch, &new.event, id, delivery, Origin::Acceptance)?;
        if place == Place::Parked {
            parked.push(index);
        }
    }
    Ok(parked)
}

#[derive(Clone, Copy)]
enum Origin {
    Acceptance,
    Replay(Timestamp),
}

fn insert_one(
    batch: &mut Batch<'_>,
    event: &Event,
    id: DeliveryId,
    new: &NewDelivery,
    origin: Origin,
) -> Result<Place, Error> {
    let ahead = match &new.line {
        Some(line) => line_is_taken(batch.conn, new.endpoint, line)?,
        None => false,
    };
    let (born, by_time, replay) = match origin {
        Origin::Acceptance if event.born() > event.received_at => {
            (event.born(), Place::Timed, false)
        }
        Origin::Acceptance => (event.received_at, Place::Ready, false),
        Origin::Replay(now) => (now, Place::Ready, true),
    };
    let place = if ahead { Place::Parked } else { by_time };
    let insert = batch.insert_delivery.get(batch.conn, INSERT_DELIVERY)?;
    insert
        .execute(params![
            id.as_i64(),
            event.tenant.0,
            event.id.as_i64(),
            new.endpoint.as_i64(),
            place.code(),
            replay,
            born.as_millis(),
            new.line,
        ])
        .map_err(|error| fault::exists(error, || id.to_string()))?;
    batch.count(new.endpoint, State::Pending, 1, id);
    Ok(place)
}

/// Looks for an event with the same idempotency key. Events of the same transaction count.
///
/// A producer that sends other content under its own key has made a mistake and is told. A provider
/// that does so through a source sends the same webhook once more.
fn find_earlier(batch: &Batch<'_>, event: &Event) -> Result<Option<Appended>, Error> {
    const COLUMNS: &str = "SELECT id, received_at, deliver_at, deliveries, kind, content_type, \
         ordering_key, metadata, body FROM events";
    let Some(key) = &event.idempotency_key else { return Ok(None) };
    let (scope, within) = match event.source {
        None => ("tenant_id = ?1 AND source_id IS NULL", event.tenant.0),
        Some(source) => ("source_id = ?1", source.as_i64()),
    };
    let sql = format!("{COLUMNS} WHERE {scope} AND idempotency_key = ?2");
    let mut statement = batch.conn.prepare_cached(&sql)?;
    let mut found = statement.query((within, key))?;
    let Some(row) = found.next()? else { return Ok(None) };
    let id = EventId::from_i64(row.get(0)?);
    let kind: String = row.get(4)?;
    let same = event.source.is_some()
        || rows::optional_time(row, 2)? == event.deliver_at
            && kind == event.kind
            && row.get::<_, String>(5)? == event.content_type
            && row.get::<_, Option<String>>(6)? == event.ordering_key
            && same_metadata(
                row.get::<_, Option<String>>(7)?.as_deref(),
                event.metadata.as_deref(),
            )
            && same_body(rows::blob(row, 8)?.unwrap_or_default(), event);
    Ok(Some(if same {
        Appended::Duplicate { id, kind, received_at: rows::time(row, 1)?, deliveries: row.get(3)? }
    } else {
        Appended::Conflict { id }
    }))
}
