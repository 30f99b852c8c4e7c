//! Storing events with their deliveries.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, LazyLock};

use postrider_core::delivery::State;
use postrider_core::{Delivery, DeliveryId, EventId, SourceId, Timestamp, Trace};
use tokio_postgres::{Row, Statement};

use super::fault::{self, Fault};
use super::pipeline::Pipeline;
use super::rows;
use super::session::Session;
use super::text::Text;
use super::{history, lines};
use crate::error::Error;
use crate::journal::Appended;
use crate::record::{Event, NewDelivery, NewEvent, Waiting, delivery_id};
use crate::stored::code::Place;
use crate::stored::content::{same_body, same_metadata};
use crate::stored::headers;

const EVENT_COLUMNS: &str = "id, tenant_id, received_at, deliver_at, source_id, deliveries, \
     verified, kind, content_type, idempotency_key, ordering_key, metadata, filter_errors, \
     headers, body, trace";

const EVENT_ARRAYS: &str = "unnest($1::int8[], $2::int8[], $3::int8[], $4::int8[], $5::int8[], \
     $6::int4[], $7::bool[], $8::text[], $9::text[], $10::text[], $11::text[], $12::text[], \
     $13::text[], $14::bytea[], $15::bytea[], $16::text[])";

const DELIVERY_COLUMNS: &str = "id, tenant_id, event_id, endpoint_id, born, at, attempts, \
     deferrals, tries, fence, state, place, replay, line, turn";

/// Everything is new and nobody stands in a line: all of it is known before.
static PLAIN: LazyLock<String> = LazyLock::new(|| {
    format!(
        "WITH made AS (INSERT INTO events ({EVENT_COLUMNS}) SELECT * FROM {EVENT_ARRAYS}), \
         sent AS (INSERT INTO unfinished ({DELIVERY_COLUMNS}) \
             SELECT id, tenant_id, event_id, endpoint_id, born, born, 0, 0, 0, 0, 0, place, \
                 false, NULL, NULL FROM unnest($17::int8[], $18::int8[], $19::int8[], $20::int8[], \
                 $21::int8[], $22::int2[]) d (id, tenant_id, event_id, endpoint_id, born, place)), \
         counted AS (INSERT INTO delivery_counts (endpoint_id, tenant_id, n, state, slot) \
             SELECT endpoint_id, tenant_id, n, 0, $28::int2 \
                 FROM unnest($23::int8[], $24::int8[], $25::int8[]) \
                 c (endpoint_id, tenant_id, n) \
             ON CONFLICT (endpoint_id, state, slot) \
                 DO UPDATE SET n = delivery_counts.n + excluded.n) \
         INSERT INTO event_counts (tenant_id, n, slot) \
             SELECT tenant_id, n, $28::int2 FROM unnest($26::int8[], $27::int8[]) c (tenant_id, n) \
             ON CONFLICT (tenant_id, slot) DO UPDATE SET n = event_counts.n + excluded.n"
    )
});

/// Which of those that are added to one line with it a delivery `d` is, from 1 on.
const NTH: &str =
    "row_number() OVER (PARTITION BY d.endpoint_id, d.line ORDER BY d.ordinal) AS nth";

/// The place of a delivery `d`, where `ahead` says whether somebody is in its line.
fn place_in_line(ahead: &str) -> String {
    format!("CASE WHEN d.line IS NOT NULL AND (d.nth > 1 OR {ahead}) THEN 3 ELSE d.place END")
}

/// The last turn in the line of `d`; none, if nobody is in it. All but one of a line are in place 3.
/// The one that is not has the first entry of the line in the index or, when it is leased, the last;
/// and the last of the others has the last or the one before it.
static LAST_TURN: LazyLock<String> = LazyLock::new(|| {
    let entries = "SELECT u.turn FROM unfinished u \
         WHERE u.endpoint_id = d.endpoint_id AND u.line = d.line";
    format!(
        "(SELECT max(greatest(f.turn, l.turn)) \
         FROM ({entries} ORDER BY u.place, u.turn, u.id LIMIT 1) f CROSS JOIN LATERAL \
         ({entries} ORDER BY u.place DESC, u.turn DESC, u.id DESC LIMIT 2) l)"
    )
});

/// Keys may be taken, and lines have to be formed. Keys are taken in one order by everybody, so that
/// nobody waits in a circle; of two with the same key the first is new. Answers with the events whose
/// keys were free (1) and the deliveries that stand behind another (2).
///
/// In a line each comes after those that are there and after those that are added before it: its turn
/// is the least above theirs that is no less than its event's id, which is `nth` above the greatest
/// that any of them, up to it, asks for. The innermost order is the one that there is anyway: saying
/// it keeps the server from looking for the last turn once more wherever it is used.
static CAREFUL: LazyLock<String> = LazyLock::new(|| {
    format!(
        "WITH free AS (INSERT INTO idempotency (scope, key, event_id) \
             SELECT coalesce(e.source_id, -e.tenant_id), e.key, e.id \
                 FROM unnest($1::int8[], $2::int8[], $5::int8[], $10::text[]) WITH ORDINALITY \
                     e (id, tenant_id, source_id, key, ordinal) \
                 WHERE e.key IS NOT NULL ORDER BY 1, e.key COLLATE \"C\", e.ordinal \
             ON CONFLICT DO NOTHING RETURNING event_id), \
         made AS (INSERT INTO events ({EVENT_COLUMNS}) \
             SELECT * FROM {EVENT_ARRAYS} e ({EVENT_COLUMNS}) \
                 WHERE e.idempotency_key IS NULL OR e.id IN (SELECT event_id FROM free) \
             RETURNING tenant_id), \
         sent AS (INSERT INTO unfinished ({DELIVERY_COLUMNS}) \
             SELECT d.id, d.tenant_id, d.event_id, d.endpoint_id, d.born, d.born, 0, 0, 0, 0, 0, \
                 {place}, false, d.line, CASE WHEN d.line IS NOT NULL THEN d.base + d.nth END \
                 FROM (SELECT d.*, max(greatest(d.last, d.event_id - d.nth)) OVER \
                     (PARTITION BY d.endpoint_id, d.line ORDER BY d.ordinal) AS base \
                     FROM (SELECT d.*, \
                         CASE WHEN d.line IS NOT NULL AND d.nth = 1 THEN {last} END AS last \
                         FROM (SELECT d.*, {NTH} FROM unnest($17::int8[], $18::int8[], \
                             $19::int8[], $20::int8[], $21::int8[], $22::int2[], $23::text[], \
                             $24::bool[]) WITH ORDINALITY d (id, tenant_id, event_id, \
                             endpoint_id, born, place, line, keyed, ordinal) \
                             WHERE NOT d.keyed OR d.event_id IN (SELECT event_id FROM free)) d \
                         ORDER BY d.endpoint_id, d.line, d.ordinal) d) d \
             RETURNING id, tenant_id, endpoint_id, place), \
         counted AS (INSERT INTO delivery_counts (endpoint_id, tenant_id, n, state, slot) \
             SELECT endpoint_id, min(tenant_id), count(*), 0, $25::int2 FROM sent GROUP BY endpoint_id \
             ON CONFLICT (endpoint_id, state, slot) \
                 DO UPDATE SET n = delivery_counts.n + excluded.n), \
         tallied AS (INSERT INTO event_counts (tenant_id, n, slot) \
             SELECT tenant_id, count(*), $25::int2 FROM made GROUP BY tenant_id \
             ON CONFLICT (tenant_id, slot) DO UPDATE SET n = event_counts.n + excluded.n) \
         SELECT 1, event_id FROM free UNION ALL SELECT 2, id FROM sent WHERE place = 3",
        place = place_in_line("d.last IS NOT NULL"),
        last = *LAST_TURN,
    )
});

/// The statements that appends need, prepared.
pub(crate) struct Statements {
    plain: Statement,
    careful: Statement,
}

impl Statements {
    pub(crate) async fn prepare(session: &Session) -> Result<Self, Fault> {
        let plain = session.prepare(&PLAIN).await?;
        Ok(Self { plain, careful: session.prepare(&CAREFUL).await? })
    }
}

/// What one statement stores: the events of several commands, in their order.
pub(crate) struct Load<'a> {
    events: Vec<&'a NewEvent>,
    careful: bool,
}

impl<'a> Load<'a> {
    pub(crate) fn new(events: Vec<&'a NewEvent>) -> Self {
        let keyed = |new: &&NewEvent| new.event.idempotency_key.is_some();
        let ordered = |new: &&NewEvent| new.deliveries.iter().any(|new| new.line.is_some());
        let careful = events.iter().any(|new| keyed(new) || ordered(new));
        Self { events, careful }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// The endpoints to whose lines something is added.
    pub(crate) fn in_line(&self) -> impl Iterator<Item = postrider_core::EndpointId> {
        self.events
            .iter()
            .flat_map(|new| &new.deliveries)
            .filter(|new| new.line.is_some())
            .map(|new| new.endpoint)
    }

    /// Sends the statement that stores them.
    pub(crate) fn send<'p>(
        &self,
        pipeline: &mut Pipeline<'p>,
        session: &'p Session,
        statements: &Statements,
        slot: i16,
    ) where
        'a: 'p,
    {
        let events = Events::of(&self.events);
        let deliveries = Deliveries::of(&self.events);
        let client = session.client();
        if self.careful {
            let statement = statements.careful.clone();
            pipeline.send(async move {
                let mut params = events.params();
                params.extend(deliveries.params());
                params.push(&deliveries.line);
                params.push(&deliveries.keyed);
                params.push(&slot);
                client.query(&statement, &params).await
            });
        } else {
            let statement = statements.plain.clone();
            let counts = Counts::of(&self.events);
            pipeline.send(async move {
                let mut params = events.params();
                params.extend(deliveries.params());
                params.extend(counts.params());
                params.push(&slot);
                client.query(&statement, &params).await
            });
        }
    }

    /// What became of each event, from the answer of the statement. None is one whose key is taken.
    pub(crate) fn read(&self, answer: &[Row]) -> Result<Vec<Option<Appended>>, Error> {
        let (mut free, mut parked) = (HashSet::new(), HashSet::new());
        for row in answer {
            let id: i64 = rows::get(row, 1)?;
            if rows::get::<i32>(row, 0)? == 1 {
                free.insert(id)
            } else {
                parked.insert(id)
            };
        }
        let outcome = |new: &&NewEvent| {
            let taken =
                new.event.idempotency_key.is_some() && !free.contains(&new.event.id.as_i64());
            if taken {
                return None;
            }
            let behind = |index: &usize| parked.contains(&new.delivery_id(*index).as_i64());
            let parked = if parked.is_empty() {
                Vec::new()
            } else {
                (0..new.deliveries.len()).filter(behind).collect()
            };
            Some(Appended::New { parked })
        };
        Ok(self.events.iter().map(outcome).collect())
    }
}

type Params<'a> = Vec<super::session::Param<'a>>;

/// Events, column by column.
struct Events<'a> {
    id: Vec<i64>,
    tenant: Vec<i64>,
    received_at: Vec<i64>,
    deliver_at: Vec<Option<i64>>,
    source: Vec<Option<i64>>,
    deliveries: Vec<i32>,
    verified: Vec<Option<bool>>,
    kind: Vec<Text<'a>>,
    content_type: Vec<Text<'a>>,
    idempotency_key: Vec<Option<Text<'a>>>,
    ordering_key: Vec<Option<Text<'a>>>,
    metadata: Vec<Option<Text<'a>>>,
    filter_errors: Vec<Option<Text<'a>>>,
    headers: Vec<Option<Vec<u8>>>,
    body: Vec<&'a [u8]>,
    trace: Vec<Option<String>>,
}

impl<'a> Events<'a> {
    fn of(events: &[&'a NewEvent]) -> Self {
        fn each<'a, T>(events: &[&'a NewEvent], of: impl Fn(&'a NewEvent) -> T) -> Vec<T> {
            events.iter().map(|new| of(new)).collect()
        }
        fn text(text: Option<&String>) -> Option<Text<'_>> {
            text.map(|text| Text(text))
        }
        Self {
            id: each(events, |new| new.event.id.as_i64()),
            tenant: each(events, |new| new.event.tenant.0),
            received_at: each(events, |new| new.event.received_at.as_millis()),
            deliver_at: each(events, |new| new.event.deliver_at.map(Timestamp::as_millis)),
            source: each(events, |new| new.event.source.map(SourceId::as_i64)),
            deliveries: each(events, |new| {
                i32::try_from(new.deliveries.len()).expect("an event has few deliveries")
            }),
            verified: each(events, |new| new.event.verified),
            kind: each(events, |new| Text(&new.event.kind)),
            content_type: each(events, |new| Text(&new.event.content_type)),
            idempotency_key: each(events, |new| text(new.event.idempotency_key.as_ref())),
            ordering_key: each(events, |new| text(new.event.ordering_key.as_ref())),
            metadata: each(events, |new| text(new.event.metadata.as_ref())),
            filter_errors: each(events, |new| text(new.event.filter_errors.as_ref())),
            headers: each(events, |new| {
                (!new.event.headers.is_empty()).then(|| headers::encode(&new.event.headers))
            }),
            body: each(events, |new| &new.event.body[..]),
            trace: each(events, |new| new.event.trace.as_ref().map(Trace::to_string)),
        }
    }

    fn params(&self) -> Params<'_> {
        vec![
            &self.id,
            &self.tenant,
            &self.received_at,
            &self.deliver_at,
            &self.source,
            &self.deliveries,
            &self.verified,
            &self.kind,
            &self.content_type,
            &self.idempotency_key,
            &self.ordering_key,
            &self.metadata,
            &self.filter_errors,
            &self.headers,
            &self.body,
            &self.trace,
        ]
    }
}

/// Their deliveries, column by column.
#[derive(Default)]
struct Deliveries<'a> {
    id: Vec<i64>,
    tenant: Vec<i64>,
    event: Vec<i64>,
    endpoint: Vec<i64>,
    born: Vec<i64>,
    place: Vec<i16>,
    line: Vec<Option<Text<'a>>>,
    keyed: Vec<bool>,
}

impl<'a> Deliveries<'a> {
    fn of(events: &[&'a NewEvent]) -> Self {
        let mut columns = Self::default();
        for new in events {
            let event = &new.event;
            let place = if event.born() > event.received_at { Place::Timed } else { Place::Ready };
            for (index, delivery) in new.deliveries.iter().enumerate() {
                columns.id.push(delivery_id(event.id, index).as_i64());
                columns.tenant.push(event.tenant.0);
                columns.event.push(event.id.as_i64());
                columns.endpoint.push(delivery.endpoint.as_i64());
                columns.born.push(event.born().as_millis());
                columns.place.push(rows::as_small(place.code()));
                columns.line.push(delivery.line.as_deref().map(Text));
                columns.keyed.push(event.idempotency_key.is_some());
            }
        }
        columns
    }

    fn params(&self) -> Params<'_> {
        vec![&self.id, &self.tenant, &self.event, &self.endpoint, &self.born, &self.place]
    }
}

/// How many they are, by endpoint and by tenant.
#[derive(Default)]
struct Counts {
    endpoint: Vec<i64>,
    tenant: Vec<i64>,
    deliveries: Vec<i64>,
    event_tenant: Vec<i64>,
    events: Vec<i64>,
}

impl Counts {
    fn of(events: &[&NewEvent]) -> Self {
        let mut by_endpoint: BTreeMap<i64, (i64, i64)> = BTreeMap::new();
        let mut by_tenant: BTreeMap<i64, i64> = BTreeMap::new();
        for new in events {
            let tenant = new.event.tenant.0;
            *by_tenant.entry(tenant).or_default() += 1;
            for delivery in &new.deliveries {
                by_endpoint.entry(delivery.endpoint.as_i64()).or_insert((tenant, 0)).1 += 1;
            }
        }
        let mut counts = Self::default();
        for (endpoint, (tenant, n)) in by_endpoint {
            counts.endpoint.push(endpoint);
            counts.tenant.push(tenant);
            counts.deliveries.push(n);
        }
        (counts.event_tenant, counts.events) = by_tenant.into_iter().unzip();
        counts
    }

    fn params(&self) -> Params<'_> {
        vec![&self.endpoint, &self.tenant, &self.deliveries, &self.event_tenant, &self.events]
    }
}

/// Finds the events that have the keys of `refused`, and says of each what it is to that one.
///
/// A producer that sends other content under its own key has made a mistake and is told. A provider
/// that does so through a source sends the same webhook once more.
pub(crate) async fn find_earlier(
    session: &Session,
    refused: &[&Event],
) -> Result<Vec<Appended>, Error> {
    const SQL: &str = "SELECT k.turn, e.id, e.received_at, e.deliver_at, e.deliveries, e.kind, \
         e.content_type, e.ordering_key, e.metadata, e.body \
         FROM unnest($1::int8[], $2::text[]) WITH ORDINALITY k (scope, key, turn) \
         CROSS JOIN LATERAL (SELECT event_id FROM idempotency i \
             WHERE i.scope = k.scope AND i.key = k.key OFFSET 0) i \
         CROSS JOIN LATERAL (SELECT * FROM events e WHERE e.id = i.event_id OFFSET 0) e";
    let scopes: Vec<i64> = refused.iter().map(|event| scope(event)).collect();
    let keys: Vec<Option<Text<'_>>> =
        refused.iter().map(|event| event.idempotency_key.as_deref().map(Text)).collect();
    let mut found = HashMap::new();
    for row in session.rows(SQL, &[&scopes, &keys]).await? {
        found.insert(rows::get::<i64>(&row, 0)?, row);
    }
    let earlier = |(turn, event): (i64, &&Event)| match found.get(&turn) {
        Some(row) => compare(row, event),
        // It went with retention in this very moment.
        None => Err(Error::Unavailable("an event with the same key has just gone".to_owned())),
    };
    (1..).zip(refused).map(earlier).collect()
}

/// Whose keys an event's is compared with.
fn scope(event: &Event) -> i64 {
    event.source.map_or(-event.tenant.0, SourceId::as_i64)
}

fn compare(row: &Row, event: &Event) -> Result<Appended, Error> {
    let id = EventId::from_i64(rows::get(row, 1)?);
    let kind = rows::text(row, 5)?;
    let same = event.source.is_some()
        || rows::optional_time(row, 3)? == event.deliver_at
            && kind == event.kind
            && rows::text(row, 6)? == event.content_type
            && rows::optional_text(row, 7)? == event.ordering_key
            && same_metadata(rows::optional_text(row, 8)?.as_deref(), event.metadata.as_deref())
            && same_body(rows::get(row, 9)?, event);
    Ok(if same {
        let deliveries = rows::count(row, 4)?;
        Appended::Duplicate { id, kind, received_at: rows::time(row, 2)?, deliveries }
    } else {
        Appended::Conflict { id }
    })
}

/// In their lines they go by their event, which is older than most of what is there.
static REPLAY: LazyLock<String> = LazyLock::new(|| {
    format!(
        "WITH sent AS (INSERT INTO unfinished ({DELIVERY_COLUMNS}) \
             SELECT d.id, $2::int8, $1::int8, d.endpoint_id, $3::int8, $3::int8, 0, 0, 0, 0, 0, \
                 {place}, true, d.line, CASE WHEN d.line IS NOT NULL THEN $1::int8 END \
                 FROM (SELECT d.*, 1::int2 AS place, {NTH} \
                     FROM unnest($4::int8[], $5::int8[], $6::text[]) WITH ORDINALITY \
                     d (id, endpoint_id, line, ordinal)) d \
             RETURNING id, tenant_id, endpoint_id, place), \
         counted AS (INSERT INTO delivery_counts (endpoint_id, tenant_id, n, state, slot) \
             SELECT endpoint_id, min(tenant_id), count(*), 0, $7::int2 FROM sent GROUP BY endpoint_id \
             ON CONFLICT (endpoint_id, state, slot) \
                 DO UPDATE SET n = delivery_counts.n + excluded.n) \
         SELECT id FROM sent WHERE place <> 3",
        place = place_in_line(
            "EXISTS (SELECT 1 FROM unfinished u \
             WHERE u.endpoint_id = d.endpoint_id AND u.line = d.line)"
        ),
    )
});

/// Makes deliveries of a stored event, due at once, within a transaction. None, if the event is gone.
pub(crate) async fn append_deliveries(
    session: &Session,
    event: EventId,
    first: DeliveryId,
    deliveries: &[NewDelivery],
    now: Timestamp,
    slot: i16,
) -> Result<Vec<Waiting>, Error> {
    let Some(event) = history::load_event(session, event).await?.map(Arc::new) else {
        return Ok(Vec::new());
    };
    let in_line = deliveries.iter().filter(|new| new.line.is_some()).map(|new| new.endpoint);
    session.rows(lines::LOCK, &[&lines::CLASS, &lines::locks(in_line)]).await?;
    let made: Vec<(DeliveryId, &NewDelivery)> =
        (first.as_i64()..).map(DeliveryId::from_i64).zip(deliveries).collect();
    let ids: Vec<i64> = made.iter().map(|(id, _)| id.as_i64()).collect();
    let endpoints: Vec<i64> = deliveries.iter().map(|new| new.endpoint.as_i64()).collect();
    let of_lines: Vec<Option<Text<'_>>> =
        deliveries.iter().map(|new| new.line.as_deref().map(Text)).collect();
    let (of, tenant, at) = (event.id.as_i64(), event.tenant.0, now.as_millis());
    let ready = session
        .rows(&REPLAY, &[&of, &tenant, &at, &ids, &endpoints, &of_lines, &slot])
        .await
        .map_err(|fault| fault::exists(fault, || first.to_string()))?;
    let ready: HashSet<i64> =
        ready.iter().map(|row| rows::get(row, 0)).collect::<Result<_, _>>()?;
    let waiting = |(id, new): &(DeliveryId, &NewDelivery)| Waiting {
        id: *id,
        endpoint: new.endpoint,
        event: Arc::clone(&event),
        delivery: Delivery {
            state: State::Pending,
            attempts: 0,
            deferrals: 0,
            due: now,
            born: now,
        },
        tries: 0,
        fence: 0,
        in_line: new.line.is_some(),
    };
    let ready = |(id, _): &&(DeliveryId, &NewDelivery)| ready.contains(&id.as_i64());
    Ok(made.iter().filter(ready).map(waiting).collect())
}
