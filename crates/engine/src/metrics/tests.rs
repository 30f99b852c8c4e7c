//! Counting without an engine.

use postrider_core::TenantId;

use super::*;

const START: Timestamp = Timestamp::from_millis(1_800_000_000_000);

fn change(state: State, seconds: u64) -> Change {
    Change {
        at: START.plus(Duration::from_secs(seconds)),
        tenant: TenantId::DEFAULT,
        endpoint: EndpointId::from_i64(1),
        born: START,
        state,
        failed: false,
    }
}

fn attempt(number: u32, class: Option<Class>, counted: bool) -> Attempt {
    Attempt {
        number,
        counted,
        started_at: START,
        duration: Duration::from_millis(3),
        status: None,
        class,
        error: None,
        response: None,
    }
}

#[test]
fn every_attempt_counts_once_by_its_number_and_outcome() {
    let metrics = Metrics::default();
    for (number, class, state) in [
        (1, None, State::Delivered),
        (2, None, State::Delivered),
        (1, Some(Class::Retryable), State::Retrying),
        (3, Some(Class::Retryable), State::Dead),
        (1, Some(Class::Final), State::Failed),
    ] {
        metrics.note_settled(&change(state, 1), Some(&attempt(number, class, true)));
    }
    let counted = |which| OUTCOMES.map(|outcome| metrics.attempts(which, outcome));
    assert_eq!(counted(Try::First), [1, 1, 0, 1]);
    assert_eq!(counted(Try::Retry), [1, 1, 0, 0]);
    assert_eq!(ENDS.map(|state| metrics.ended(state)), [2, 1, 1, 0]);
    assert_eq!(metrics.attempt_spans.read().counts.iter().sum::<u64>(), 5);
    assert_eq!(metrics.retries_scheduled.get(), 1);
}

#[test]
fn what_was_put_off_is_no_retry() {
    let metrics = Metrics::default();
    let limited = |counted| attempt(1, Some(Class::RateLimited), counted);
    metrics.note_settled(&change(State::Pending, 1), Some(&limited(false)));
    metrics.note_settled(&change(State::Retrying, 1), Some(&limited(false)));
    metrics.note_settled(&change(State::Retrying, 1), Some(&limited(true)));
    assert_eq!([&metrics.deferrals, &metrics.retries_scheduled].map(Counter::get), [2, 1]);
}

#[test]
fn the_time_to_deliver_is_that_of_what_was_delivered() {
    let metrics = Metrics::default();
    metrics.note_settled(&change(State::Dead, 1_000), Some(&attempt(5, None, true)));
    metrics.note_settled(&change(State::Delivered, 2), Some(&attempt(1, None, true)));
    let latencies = metrics.latencies.read();
    assert_eq!(latencies.sum, 2_000_000);
    assert_eq!(latencies.counts.iter().sum::<u64>(), 1);
}

#[test]
fn a_change_without_an_attempt_counts_only_as_an_end() {
    let metrics = Metrics::default();
    metrics.note_settled(&change(State::Cancelled, 1), None);
    metrics.note_settled(&change(State::Pending, 1), None);
    metrics.note_settled(&change(State::InFlight, 1), None);
    assert_eq!(ENDS.map(|state| metrics.ended(state)), [0, 0, 0, 1]);
    assert_eq!(metrics.attempt_spans.read().counts.iter().sum::<u64>(), 0);
    assert_eq!(metrics.retries_scheduled.get() + metrics.deferrals.get(), 0);
}

#[test]
fn events_count_by_the_way_they_came() {
    let metrics = Metrics::default();
    let source = Some(SourceId::from_i64(1));
    for (source, kind) in [
        (None, "order.created"),
        (source, "push"),
        (source, "postrider.like"),
        (None, "postrider.delivery.dead"),
    ] {
        metrics.note_received(Way::of(source, kind), 2);
    }
    assert_eq!(Way::ALL.map(|way| metrics.received(way)), [1, 2, 1]);
    assert_eq!(metrics.deliveries_created.get(), 8);
}

/// Arrays are indexed by these.
#[test]
fn each_label_has_a_place_of_its_own() {
    assert_eq!(Way::ALL.map(|way| way as usize), [0, 1, 2]);
    assert_eq!(Try::ALL.map(|which| which as usize), [0, 1]);
    assert_eq!(OUTCOMES.map(outcome), [0, 1, 2, 3]);
    assert_eq!(ENDS.map(end), [Some(0), Some(1), Some(2), Some(3)]);
}
