//! Storing events with their deliveries.

use std::slice;
use std::sync::{Arc, LazyLock};

use postrider_core::delivery::State;
use postrider_core::{Delivery, DeliveryId, EventId, SourceId, Timestamp, Trace};
use rusqlite::params_from_iter;
use rusqlite::types::{ToSqlOutput, Value};

use super::batch::Batch;
use super::settle::line_is_taken;
use super::{fault, rows};
use crate::error::Error;
use crate::journal::Appended;
use crate::record::{Event, NewDelivery, NewEvent, Waiting};
use crate::stored::code::{self, Place};
use crate::stored::content::{same_body, same_metadata};
use crate::stored::headers;

const EVENTS: &str = "events (id, tenant_id, received_at, deliver_at, deliveries, kind, content_type, \
     idempotency_key, ordering_key, metadata, source_id, verified, filter_errors, headers, body, \
     trace)";
const EVENT: &str = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
const DELIVERIES: &str = "deliveries (id, tenant_id, event_id, endpoint_id, state, place, attempts, \
     deferrals, tries, fence, replay, born, at, line)";
const DELIVERY: &str = "(?, ?, ?, ?, 0, ?, 0, 0, 0, 0, ?, ?, ?, ?)";

/// How many rows a statement inserts, most first. To begin one and to end it, with every index that it
/// may touch, takes longer than to write a row.
const PORTIONS: [usize; 3] = [16, 4, 1];

static INSERT_EVENTS: LazyLock<[String; PORTIONS.len()]> =
    LazyLock::new(|| PORTIONS.map(|rows| insert(EVENTS, EVENT, rows)));
static INSERT_DELIVERIES: LazyLock<[String; PORTIONS.len()]> =
    LazyLock::new(|| PORTIONS.map(|rows| insert(DELIVERIES, DELIVERY, rows)));
static INSERT_KEYED: LazyLock<String> =
    LazyLock::new(|| format!("INSERT INTO {EVENTS} VALUES {EVENT} ON CONFLICT DO NOTHING"));

/// What fails takes its command with it. So nothing need be kept to take back the statement alone, as
/// would be without `OR FAIL`.
fn insert(what: &str, row: &str, rows: usize) -> String {
    format!("INSERT OR FAIL INTO {what} VALUES {}", vec![row; rows].join(", "))
}

/// The rows in order, each time with the statement that takes so many.
fn portions<'r, T>(
    statements: &'static [String; PORTIONS.len()],
    mut rows: &'r [T],
) -> impl Iterator<Item = (&'static str, &'r [T])> {
    std::iter::from_fn(move || {
        let fits = |(size, _): &(usize, &String)| *size <= rows.len();
        let (size, statement) = PORTIONS.into_iter().zip(statements).find(fits)?;
        let (some, rest) = rows.split_at(size);
        rows = rest;
        Some((statement.as_str(), some))
    })
}

pub(crate) fn append(batch: &mut Batch<'_>, events: &[NewEvent]) -> Result<Vec<Appended>, Error> {
    batch.load.appended += events.len();
    let unkeyed = events.iter().filter(|new| new.event.idempotency_key.is_none());
    store_events(batch, &unkeyed.collect::<Vec<_>>())?;
    let mut answers = Vec::with_capacity(events.len());
    let mut made = Vec::with_capacity(events.len());
    for new in events {
        // The constraint decides; only whoever it refuses asks why.
        if new.event.idempotency_key.is_some() && !store_keyed(batch, new)? {
            let earlier = find_earlier(batch, &new.event)?;
            answers.push(earlier.ok_or_else(|| Error::Exists(new.event.id.to_string()))?);
            continue;
        }
        let mut parked = Vec::new();
        for (index, delivery) in new.deliveries.iter().enumerate() {
            let row = Row::accepted(new, index, delivery);
            if delivery.line.is_none() {
                made.push(row);
            } else if store_in_line(batch, row)? == Place::Parked {
                parked.push(index);
            }
        }
        answers.push(Appended::New { parked });
    }
    store_deliveries(batch, &made)?;
    Ok(answers)
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
        if store_in_line(batch, Row::replayed(&event, id, new, now))? != Place::Parked {
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

/// Stores events that are told from others by nothing but their ids.
fn store_events(batch: &mut Batch<'_>, events: &[&NewEvent]) -> Result<(), Error> {
    for (sql, some) in portions(&INSERT_EVENTS, events) {
        let statement = batch.statements.get(batch.conn, sql)?;
        statement
            .execute(params_from_iter(some.iter().flat_map(|new| event_values(new))))
            .map_err(|error| fault::exists(error, || some[0].event.id.to_string()))?;
        for new in some {
            batch.count_events(new.event.tenant, 1);
        }
    }
    Ok(())
}

/// False, if its id or its idempotency key is taken.
fn store_keyed(batch: &mut Batch<'_>, new: &NewEvent) -> Result<bool, Error> {
    let statement = batch.statements.get(batch.conn, &INSERT_KEYED)?;
    let inserted = statement.execute(params_from_iter(event_values(new)))?;
    if inserted == 0 {
        return Ok(false);
    }
    batch.count_events(new.event.tenant, 1);
    Ok(true)
}

fn event_values(new: &NewEvent) -> [ToSqlOutput<'_>; 16] {
    let event = &*new.event;
    let headers = (!event.headers.is_empty()).then(|| headers::encode(&event.headers));
    [
        event.id.as_i64().into(),
        event.tenant.0.into(),
        event.received_at.as_millis().into(),
        null_or(event.deliver_at.map(Timestamp::as_millis)),
        code::size(new.deliveries.len()).into(),
        event.kind.as_str().into(),
        event.content_type.as_str().into(),
        null_or(event.idempotency_key.as_deref()),
        null_or(event.ordering_key.as_deref()),
        null_or(event.metadata.as_deref()),
        null_or(event.source.map(SourceId::as_i64)),
        null_or(event.verified),
        null_or(event.filter_errors.as_deref()),
        null_or(headers),
        (&event.body[..]).into(),
        null_or(event.trace.as_ref().map(Trace::to_string)),
    ]
}

fn null_or<'v>(value: Option<impl Into<ToSqlOutput<'v>>>) -> ToSqlOutput<'v> {
    value.map_or(ToSqlOutput::Owned(Value::Null), Into::into)
}

/// A delivery about to be stored.
struct Row<'n> {
    id: DeliveryId,
    event: &'n Event,
    new: &'n NewDelivery,
    place: Place,
    replay: bool,
    born: Timestamp,
}

impl<'n> Row<'n> {
    fn accepted(of: &'n NewEvent, index: usize, new: &'n NewDelivery) -> Self {
        let (event, id) = (&*of.event, of.delivery_id(index));
        let born = event.born();
        let place = if born > event.received_at { Place::Timed } else { Place::Ready };
        Self { id, event, new, place, replay: false, born }
    }

    fn replayed(event: &'n Event, id: DeliveryId, new: &'n NewDelivery, now: Timestamp) -> Self {
        Self { id, event, new, place: Place::Ready, replay: true, born: now }
    }

    fn values(&self) -> [ToSqlOutput<'_>; 9] {
        let born = self.born.as_millis();
        [
            self.id.as_i64().into(),
            self.event.tenant.0.into(),
            self.event.id.as_i64().into(),
            self.new.endpoint.as_i64().into(),
            self.place.code().into(),
            self.replay.into(),
            born.into(),
            born.into(),
            null_or(self.new.line.as_deref()),
        ]
    }
}

/// Stores a delivery where its line has a place for it, if it stands in one.
fn store_in_line(batch: &mut Batch<'_>, mut row: Row<'_>) -> Result<Place, Error> {
    if let Some(line) = &row.new.line
        && line_is_taken(batch.conn, row.new.endpoint, line)?
    {
        row.place = Place::Parked;
    }
    store_deliveries(batch, slice::from_ref(&row))?;
    Ok(row.place)
}

fn store_deliveries(batch: &mut Batch<'_>, rows: &[Row<'_>]) -> Result<(), Error> {
    for (sql, some) in portions(&INSERT_DELIVERIES, rows) {
        let statement = batch.statements.get(batch.conn, sql)?;
        statement
            .execute(params_from_iter(some.iter().flat_map(Row::values)))
            .map_err(|error| fault::exists(error, || some[0].id.to_string()))?;
        for row in some {
            batch.count(row.new.endpoint, State::Pending, 1, row.id);
        }
    }
    Ok(())
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
