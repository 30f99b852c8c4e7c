//! What the measures of the store alone write: events with one delivery each, and what settles them.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::delivery::Next;
use postrider_core::id::Sequence;
use postrider_core::{EndpointId, EventId, State, TenantId, Timestamp};
use postrider_store::fleet::Tenure;
use postrider_store::record::{Attempt, Event, NewDelivery, NewEvent, Settle};

use super::event;

/// How many are written at a time, unless a measure says otherwise.
pub(crate) const SIZE: usize = 256;
/// Where all of them go.
pub(crate) const ENDPOINT: EndpointId = EndpointId::from_i64(1);
pub(crate) const CONTENT_TYPE: &str = "application/json";
pub(crate) const KIND: &str = "bench.cycle";
const TOOK: Duration = Duration::from_millis(3);

/// So many events that arrived at one moment, with one delivery each, and what settles those as
/// delivered at the first try.
pub(crate) fn make(
    ids: &mut Sequence,
    arrived: Timestamp,
    count: usize,
    tenure: Option<Tenure>,
) -> (Vec<NewEvent>, Vec<Settle>) {
    (0..count).map(|_| one(ids, arrived, tenure)).unzip()
}

fn one(ids: &mut Sequence, arrived: Timestamp, tenure: Option<Tenure>) -> (NewEvent, Settle) {
    let id = EventId::from_i64(ids.take(arrived, 2));
    let mut body = String::with_capacity(event::PAYLOAD_BYTES);
    event::write_payload(&mut body, id.as_i64().unsigned_abs() & 0xff_ffff);
    let event = Event {
        id,
        tenant: TenantId::DEFAULT,
        kind: KIND.to_owned(),
        content_type: CONTENT_TYPE.to_owned(),
        body: body.into(),
        idempotency_key: None,
        ordering_key: None,
        metadata: None,
        received_at: arrived,
        deliver_at: None,
        source: None,
        verified: None,
        headers: Vec::new(),
        filter_errors: None,
        trace: None,
    };
    let deliveries = vec![NewDelivery { endpoint: ENDPOINT, line: None }];
    let new = NewEvent { event: Arc::new(event), deliveries };
    let settle = Settle {
        id: new.delivery_id(0),
        endpoint: ENDPOINT,
        fence: 0,
        in_line: false,
        from: State::Pending,
        next: Next {
            state: State::Delivered,
            attempts: 1,
            deferrals: 0,
            born: arrived,
            due: None,
            reason: None,
            class: None,
            counted: true,
            hold_endpoint_until: None,
            disable_endpoint: false,
        },
        at: arrived.plus(TOOK),
        attempt: Some(Attempt {
            number: 1,
            counted: true,
            started_at: arrived,
            duration: TOOK,
            status: Some(200),
            class: None,
            error: None,
            response: None,
        }),
        lease: None,
        result: None,
        tenure,
    };
    (new, settle)
}
