//! Worlds made by hand, to show that a checker complains and that it does not always do so: two nodes'
//! worth of nothing, two endpoints that are well, and whatever a test puts into the history.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use postrider_core::endpoint::Ordering;
use postrider_core::{DeliveryId, EndpointId, EventId, State, Timestamp};
use postrider_store::record::DeliveryRecord;
use postrider_store::sealing::{Keyring, SealingKey};
use postrider_store::sqlite::{self, Sqlite};

use crate::clock::BEGINNING;
use crate::history::{
    Arrival, Change, Chronicle, Deed, Fault, FaultKind, History, Operation, Submitted,
};
use crate::network::{Manner, Mishaps};
use crate::scenario::{EndpointPlan, Scenario, Taker};
use crate::store::Frailty;
use crate::world::{Remains, TENANT};

/// Minutes after the beginning.
pub(super) fn minute(minutes: u64) -> Timestamp {
    BEGINNING.plus(Duration::from_mins(minutes))
}

pub(super) fn remains(happens: impl FnOnce(&mut History)) -> Remains {
    let mut scenario = Scenario::of(0);
    let plan = EndpointPlan {
        manner: Manner::Healthy,
        ordering: Ordering::None,
        taker: Taker::Url,
        rate_per_second: None,
        ..scenario.endpoints.swap_remove(0)
    };
    let scenario = Scenario {
        nodes: 1,
        endpoints: vec![plan.clone(), plan],
        frailty: Frailty::default(),
        mishaps: Mishaps::default(),
        disturbance_every: None,
        operated: false,
        ..scenario
    };
    let mut history = History::default();
    happens(&mut history);
    let keyring = Keyring::new(vec![SealingKey::from_bytes([7; 32])]).expect("a key");
    let store = Sqlite::in_memory(&sqlite::Options::default(), keyring).expect("a store");
    Remains {
        scenario,
        chronicle: Chronicle::of(history),
        store: Arc::new(store),
        endpoints: vec![EndpointId::from_i64(1), EndpointId::from_i64(2)],
        deliveries: Vec::new(),
    }
}

fn event(number: i64) -> EventId {
    EventId::from_i64(number * 100)
}

fn delivery(number: i64, endpoint: usize) -> DeliveryId {
    let offset = i64::try_from(endpoint).expect("a small number") + 1;
    DeliveryId::from_i64(event(number).as_i64() + offset)
}

/// An event with this number that was acknowledged.
pub(super) fn submitted(number: i64, at: Timestamp) -> Submitted {
    Submitted {
        tenant: TENANT,
        kind: "thing.happened".to_owned(),
        body: body(number),
        key: Some(format!("key {number}")),
        ordering_key: None,
        deliver_at: None,
        acknowledged: Some((event(number), at)),
    }
}

pub(super) fn body(number: i64) -> Bytes {
    Bytes::from(format!("{{\"number\":{number}}}"))
}

/// What became of an event at an endpoint: it was delivered.
pub(super) fn record(number: i64, endpoint: usize) -> DeliveryRecord {
    let id = i64::try_from(endpoint).expect("a small number") + 1;
    DeliveryRecord {
        id: delivery(number, endpoint),
        tenant: TENANT,
        event: event(number),
        endpoint: EndpointId::from_i64(id),
        state: State::Delivered,
        attempts: 1,
        deferrals: 0,
        tries: 1,
        fence: 1,
        born: minute(0),
        due: None,
        last_attempt_at: None,
        ended_at: None,
        reason: None,
        class: None,
        last_error: None,
        line: None,
        parked: false,
        replay: false,
        result: None,
    }
}

pub(super) fn in_state(record: DeliveryRecord, state: State) -> DeliveryRecord {
    DeliveryRecord { state, ..record }
}

/// A first attempt, signed, and taken.
pub(super) fn arrival(number: i64, endpoint: usize, at: Timestamp) -> Arrival {
    let signature = HeaderValue::from_static("v1,something");
    Arrival {
        at,
        node: 0,
        endpoint,
        delivery: delivery(number, endpoint),
        webhook_id: event(number).to_string(),
        attempt: 1,
        headers: HeaderMap::from_iter([(
            http::HeaderName::from_static("webhook-signature"),
            signature,
        )]),
        body: body(number),
        status: Some(204),
        copied: false,
    }
}

/// An attempt that led to this state at once, under the fence that it should have.
pub(super) fn attempt(
    number: i64,
    endpoint: usize,
    which: u32,
    started: Timestamp,
    to: State,
) -> Change {
    Change {
        at: started,
        node: 0,
        delivery: delivery(number, endpoint),
        from: if which == 1 { State::Pending } else { State::Retrying },
        to,
        due: None,
        fence: which - 1,
        tenure: None,
        attempt: Some((which, started)),
        applied: true,
    }
}

pub(super) fn due(change: Change, due: Timestamp) -> Change {
    Change { due: Some(due), ..change }
}

/// Another life for a delivery that was dead after one attempt.
pub(super) fn reset(number: i64, endpoint: usize, at: Timestamp) -> Change {
    let change = attempt(number, endpoint, 2, at, State::Pending);
    Change { from: State::Dead, due: Some(at), attempt: None, ..change }
}

pub(super) fn fault(kind: FaultKind, minutes: u64) -> Fault {
    Fault { at: minute(minutes), node: 0, kind }
}

pub(super) fn ask(history: &mut History, deed: Deed) {
    history.operations.asked.push(Operation { at: minute(0), heard: None, deed });
}
