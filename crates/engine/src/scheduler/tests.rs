//! What the scheduler promises, each promise by itself; `model` then mixes everything at random.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use postrider_core::endpoint::{
    Destination as Target, EndpointState, Ordering, RateLimit, Spec, StoredSecret,
};
use postrider_core::pattern::Pattern;
use postrider_core::policy::Presets;
use postrider_core::signing::{Scheme, Secret};
use postrider_core::{Delivery, Endpoint, State, TenantId, policy};
use postrider_store::record::Event;

use super::*;
use crate::destination::Guard;
use crate::route::{Defaults, Judges};

mod fetched;
mod model;

const START: Timestamp = Timestamp::from_millis(1_800_000_000_000);
const MANY: usize = 10_000;

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// An endpoint that may have eight in flight.
fn endpoint(id: i64) -> Endpoint {
    let signing = Scheme::default();
    let text = Secret::generate(&signing, [7; 32]).text().to_owned();
    Endpoint {
        id: EndpointId::from_i64(id),
        tenant: TenantId::DEFAULT,
        state: EndpointState::Active,
        spec: Spec {
            name: None,
            destination: Target::Url("https://example.com/hook".into()),
            event_types: vec![Pattern::Any],
            sources: Vec::new(),
            filter: None,
            policy: policy::Spec::default(),
            ordering: Ordering::None,
            rate_limit: None,
            max_in_flight: Some(8),
            timeout: None,
            headers: BTreeMap::new(),
            signing,
            format: None,
            metadata: serde_json::Map::new(),
        },
        secrets: vec![StoredSecret { text, expires_at: None }],
        tls: None,
        created_at: START,
        updated_at: START,
    }
}

fn route(endpoint: Endpoint) -> Arc<Route> {
    let defaults = Defaults { timeout: seconds(15), max_in_flight: 8 };
    let guard = Guard::new(Vec::new());
    let judges = Judges { guard: &guard, commands: None, hubs: None };
    let compiled = Route::compile(Arc::new(endpoint), &Presets::default(), judges, defaults, START);
    Arc::new(compiled.expect("a valid endpoint"))
}

fn waiting(endpoint: i64, event: i64) -> Waiting {
    sized(endpoint, event, 2)
}

fn sized(endpoint: i64, event: i64, body_bytes: usize) -> Waiting {
    // One piece of memory, however many bodies there are.
    static BODY: [u8; WINDOW_BYTES * 2] = [b'0'; WINDOW_BYTES * 2];
    Waiting {
        id: DeliveryId::from_i64(event),
        endpoint: EndpointId::from_i64(endpoint),
        event: Arc::new(Event {
            id: EventId::from_i64(event),
            tenant: TenantId::DEFAULT,
            kind: "order.created".into(),
            content_type: "application/json".into(),
            body: Bytes::from_static(&BODY[..body_bytes]),
            idempotency_key: None,
            ordering_key: None,
            metadata: None,
            received_at: START,
            deliver_at: None,
            source: None,
            verified: None,
            headers: Vec::new(),
            filter_errors: None,
            trace: None,
        }),
        delivery: Delivery {
            state: State::Pending,
            attempts: 0,
            deferrals: 0,
            due: START,
            born: START,
        },
        tries: 0,
        fence: 0,
        in_line: false,
    }
}

fn paged(waiting: impl IntoIterator<Item = Waiting>) -> Paged {
    Paged { waiting: waiting.into_iter().collect(), more: false, next_due: None }
}

/// A scheduler with its clock, spoken to in plain numbers.
struct Rig {
    scheduler: Scheduler,
    now: Timestamp,
}

impl Rig {
    fn with_slots(max_in_flight: usize) -> Self {
        Self::with_breaker(max_in_flight, BreakerOptions::default())
    }

    fn with_breaker(max_in_flight: usize, breaker: BreakerOptions) -> Self {
        let mut scheduler = Scheduler::new(max_in_flight, breaker);
        scheduler.ring(START);
        Self { scheduler, now: START }
    }

    /// Takes in an endpoint of which nothing is in the store.
    fn add(&mut self, endpoint: Endpoint) {
        let id = endpoint.id;
        self.put(endpoint);
        assert_eq!(self.scheduler.hungry(), [(id, vec![])], "the store is asked at first");
        self.scheduler.paged(id, Paged::default(), self.now);
    }

    fn put(&mut self, endpoint: Endpoint) {
        self.scheduler.put_route(&route(endpoint), self.now);
    }

    fn offer(&mut self, endpoint: i64, events: impl IntoIterator<Item = i64>) {
        for event in events {
            assert!(self.scheduler.offer(waiting(endpoint, event), self.now));
        }
    }

    fn take(&mut self) -> Option<i64> {
        self.scheduler.next(self.now).map(|(_, waiting)| waiting.id.as_i64())
    }

    fn take_all(&mut self) -> Vec<i64> {
        std::iter::from_fn(|| self.take()).collect()
    }

    fn finish_with(&mut self, endpoint: i64, event: i64, health: Health) -> Option<Change> {
        let finish = Finish {
            endpoint: EndpointId::from_i64(endpoint),
            delivery: DeliveryId::from_i64(event),
            health,
            hold_until: None,
            due: None,
        };
        self.scheduler.finish(finish, self.now)
    }

    fn finish(&mut self, endpoint: i64, event: i64) {
        self.finish_with(endpoint, event, Health::Good);
    }

    fn retry_at(&mut self, endpoint: i64, event: i64, due: Timestamp, hold: Option<Timestamp>) {
        let finish = Finish {
            endpoint: EndpointId::from_i64(endpoint),
            delivery: DeliveryId::from_i64(event),
            health: Health::Unknown,
            hold_until: hold,
            due: Some(due),
        };
        self.scheduler.finish(finish, self.now);
    }

    fn set_clock(&mut self, now: Timestamp) {
        self.now = now;
        self.scheduler.ring(now);
    }

    fn pass(&mut self, span: Duration) {
        self.set_clock(self.now.plus(span));
    }

    /// The endpoints that want a page, with the numbers of what they hold.
    fn hungry(&mut self) -> Vec<(i64, Vec<i64>)> {
        let pages = self.scheduler.hungry();
        pages
            .into_iter()
            .map(|(id, held)| {
                let mut held: Vec<i64> = held.into_iter().map(DeliveryId::as_i64).collect();
                held.sort_unstable();
                (id.as_i64(), held)
            })
            .collect()
    }

    fn page(&mut self, endpoint: i64, page: Paged) {
        self.scheduler.paged(EndpointId::from_i64(endpoint), page, self.now);
    }

    fn reserve(&mut self, endpoint: i64, event: i64) -> bool {
        let (id, event) = (EndpointId::from_i64(endpoint), EventId::from_i64(event));
        self.scheduler.reserve(id, DeliveryId::from_i64(event.as_i64()), event)
    }

    fn unreserve(&mut self, endpoint: i64, event: i64) {
        let (id, delivery) = (EndpointId::from_i64(endpoint), DeliveryId::from_i64(event));
        self.scheduler.unreserve(id, delivery, self.now);
    }

    fn window(&self, endpoint: i64) -> usize {
        self.scheduler.health(EndpointId::from_i64(endpoint)).expect("known").window
    }
}

#[test]
fn endpoints_take_turns() {
    let mut rig = Rig::with_slots(MANY);
    for id in [1, 2, 3] {
        rig.add(endpoint(id));
    }
    rig.offer(1, [11, 12, 13, 14]);
    rig.offer(2, [21, 22]);
    rig.offer(3, [31]);
    assert_eq!(rig.take_all(), [11, 21, 31, 12, 22, 13, 14]);
}

#[test]
fn within_an_endpoint_the_oldest_event_goes_first_whether_tried_before_or_not() {
    let mut rig = Rig::with_slots(MANY);
    rig.add(endpoint(1));
    let id = EndpointId::from_i64(1);
    rig.offer(1, [20, 40, 30]);
    rig.scheduler.note_stored(id, Some(rig.now), rig.now);
    assert_eq!(rig.hungry(), [(1, vec![20, 30, 40])]);
    rig.page(1, paged([waiting(1, 10), waiting(1, 25), waiting(1, 50)]));
    assert_eq!(rig.take_all(), [10, 20, 25, 30, 40, 50]);
}

#[test]
fn a_delivery_keeps_its_slot_until_it_is_finished() {
    let mut rig = Rig::with_slots(MANY);
    let mut two_at_once = endpoint(1);
    two_at_once.spec.max_in_flight = Some(2);
    rig.add(two_at_once);
    rig.offer(1, 1..=4);
    assert_eq!(rig.take_all(), [1, 2]);
    assert!(rig.scheduler.is_in_flight(EndpointId::from_i64(1), DeliveryId::from_i64(1)));
    rig.pass(seconds(3_600));
    assert_eq!(rig.take(), None, "time alone frees no slot");
    rig.finish(1, 2);
    assert_eq!(rig.take_all(), [3]);
    assert_eq!(rig.scheduler.in_flight(), 2);
}

#[test]
fn endpoints_that_fill_all_slots_leave_every_other_its_reserve() {
    let mut rig = Rig::with_slots(16);
    for id in [1, 2, 3] {
        rig.add(endpoint(id));
    }
    rig.offer(1, 100..120);
    rig.offer(2, 200..220);
    assert_eq!(rig.take_all().len(), 16);
    rig.offer(3, 300..320);
    assert_eq!(rig.take_all(), [300, 301, 302, 303]);
    assert_eq!(rig.scheduler.in_flight(), 20);
    // Above the limit, a freed slot goes to nobody who has its reserve already.
    rig.finish(1, 100);
    assert_eq!(rig.take(), None);
    // The reserve itself is always there.
    rig.finish(3, 300);
    assert_eq!(rig.take_all(), [304]);
    // Below the limit, those who were turned away take turns again.
    for offset in 1..=3 {
        rig.finish(1, 100 + offset);
        rig.finish(2, 200 + offset);
    }
    assert_eq!(rig.take_all().len(), 3);
    assert_eq!(rig.scheduler.in_flight(), 16);
}

#[test]
fn bodies_in_flight_to_one_endpoint_are_bounded_but_one_always_goes() {
    let mut rig = Rig::with_slots(MANY);
    rig.add(endpoint(1));
    let huge = IN_FLIGHT_BYTES / 8;
    assert_eq!(huge, WINDOW_BYTES * 2, "more than a window holds");
    rig.scheduler.offer(sized(1, 1, huge), rig.now);
    assert_eq!(rig.take(), Some(1), "one goes whatever its size");
    for event in 2..=8 {
        assert_eq!(rig.hungry(), []);
        rig.scheduler.offer(sized(1, event, huge), rig.now);
        assert_eq!(rig.take(), Some(event));
    }
    rig.offer(1, [9]);
    assert_eq!(rig.take(), None);
    rig.finish(1, 3);
    assert_eq!(rig.take(), Some(9));
}

#[test]
fn waiting_for_a_token_sets_an_alarm_and_loses_nothing() {
    let mut rig = Rig::with_slots(MANY);
    let mut limited = endpoint(1);
    limited.spec.rate_limit = Some(RateLimit { per_second: 2.0, burst: 3 });
    limited.spec.max_in_flight = Some(100);
    rig.add(limited);
    rig.offer(1, 1..=20);
    assert_eq!(rig.take_all(), [1, 2, 3], "the burst");
    let mut sent = 3;
    let began = rig.now;
    while sent < 20 {
        let alarm = rig.scheduler.next_alarm().expect("an alarm while something waits");
        assert!(alarm > rig.now);
        rig.set_clock(alarm);
        for event in rig.take_all() {
            sent += 1;
            assert_eq!(event, sent, "in order, each once");
        }
    }
    assert_eq!(rig.now.since(began), Duration::from_millis(17 * 500));
    assert_eq!(rig.take(), None);
}

#[test]
fn a_new_rate_limit_holds_from_when_it_is_set() {
    let mut rig = Rig::with_slots(MANY);
    rig.add(endpoint(1));
    rig.offer(1, 1..=4);
    let mut limited = endpoint(1);
    limited.spec.rate_limit = Some(RateLimit { per_second: 1.0, burst: 1 });
    rig.put(limited);
    assert_eq!(rig.take_all(), [1]);
    rig.put(endpoint(1));
    assert_eq!(rig.take_all(), [2, 3, 4], "and ends when it is taken away");
}

#[test]
fn a_hold_stops_the_whole_endpoint_and_no_other() {
    let mut rig = Rig::with_slots(MANY);
    rig.add(endpoint(1));
    rig.add(endpoint(2));
    rig.offer(1, [11, 12]);
    assert_eq!(rig.take_all(), [11, 12]);
    let until = rig.now.plus(seconds(120));
    rig.retry_at(1, 11, until, Some(until));
    // A shorter wait that is asked for later does not cut the longer one short.
    let sooner = rig.now.plus(seconds(10));
    rig.retry_at(1, 12, sooner, Some(sooner));
    rig.offer(1, [13]);
    rig.offer(2, [21]);
    assert_eq!(rig.take_all(), [21]);
    assert_eq!(rig.scheduler.blocked(EndpointId::from_i64(1), rig.now), Some(Blocked::Hold(until)));
    rig.set_clock(until.minus(Duration::from_millis(1)));
    assert_eq!(rig.take(), None);
    assert!(rig.scheduler.next_alarm().is_some_and(|alarm| alarm <= until));
    rig.set_clock(until);
    assert_eq!(rig.take_all(), [13]);
}

fn quick_breaker() -> BreakerOptions {
    BreakerOptions { failures: 3, failing_for: seconds(10), ..BreakerOptions::default() }
}

#[test]
fn an_open_breaker_lets_one_probe_through_and_ramps_up_after_it() {
    let mut rig = Rig::with_breaker(MANY, quick_breaker());
    let mut four_at_once = endpoint(1);
    four_at_once.spec.max_in_flight = Some(4);
    rig.add(four_at_once);
    rig.offer(1, 1..=30);
    assert_eq!(rig.take_all(), [1, 2, 3, 4]);
    assert_eq!(rig.finish_with(1, 1, Health::Bad), None);
    rig.pass(seconds(10));
    assert_eq!(rig.finish_with(1, 2, Health::Bad), None);
    assert_eq!(rig.finish_with(1, 3, Health::Bad), Some(Change::Opened));
    rig.finish_with(1, 4, Health::Bad);
    assert_eq!(rig.take(), None);
    let probe_at = rig.now.plus(seconds(1));
    assert_eq!(rig.scheduler.next_alarm(), Some(probe_at));

    rig.set_clock(probe_at);
    assert_eq!(rig.take_all(), [5], "one probe");
    rig.finish_with(1, 5, Health::Bad);
    assert_eq!(rig.take(), None);
    assert_eq!(rig.scheduler.next_alarm(), Some(probe_at.plus(seconds(2))), "a longer wait");

    rig.pass(seconds(2));
    assert_eq!(rig.take_all(), [6]);
    let mut next = 6;
    let mut in_flight: VecDeque<i64> = VecDeque::from([6]);
    let mut widths = Vec::new();
    loop {
        let change = rig.finish_with(1, in_flight.pop_front().expect("one"), Health::Good);
        for event in rig.take_all() {
            next += 1;
            assert_eq!(event, next);
            in_flight.push_back(event);
        }
        widths.push(in_flight.len());
        if change == Some(Change::Closed) {
            break;
        }
    }
    assert_eq!(widths, [2, 3, 4, 4], "one more with each success, up to what it may have");
}

#[test]
fn a_probe_waits_for_what_is_still_in_flight_without_ringing_all_the_time() {
    let mut rig = Rig::with_breaker(MANY, quick_breaker());
    rig.add(endpoint(1));
    rig.offer(1, 1..=9);
    assert_eq!(rig.take_all().len(), 8);
    rig.finish_with(1, 1, Health::Bad);
    rig.pass(seconds(10));
    rig.finish_with(1, 2, Health::Bad);
    assert_eq!(rig.finish_with(1, 3, Health::Bad), Some(Change::Opened));
    assert_eq!(rig.take(), None);
    rig.pass(seconds(1));
    assert_eq!(rig.take(), None, "five stragglers");
    assert_eq!(rig.scheduler.next_alarm(), None, "nothing to ring for until one of them ends");
    for event in 4..=8 {
        assert_eq!(rig.take(), None);
        rig.finish_with(1, event, Health::Bad);
    }
    assert_eq!(rig.take_all(), [9]);
}

#[test]
fn a_probe_that_proved_nothing_is_followed_by_another() {
    let mut rig = Rig::with_breaker(MANY, BreakerOptions { failures: 1, ..quick_breaker() });
    rig.add(endpoint(1));
    rig.offer(1, 1..=4);
    assert_eq!(rig.take(), Some(1));
    rig.finish_with(1, 1, Health::Bad);
    rig.pass(seconds(10));
    assert_eq!(rig.take(), Some(2));
    assert_eq!(rig.finish_with(1, 2, Health::Bad), Some(Change::Opened));
    rig.pass(seconds(1));
    assert_eq!(rig.take_all(), [3]);
    rig.finish_with(1, 3, Health::Unknown);
    assert_eq!(rig.take_all(), [4]);
}

#[test]
fn what_a_window_cannot_hold_waits_in_the_store_and_comes_back_in_order() {
    let mut rig = Rig::with_slots(MANY);
    let mut one_by_one = endpoint(1);
    one_by_one.spec.max_in_flight = Some(1);
    rig.add(one_by_one);
    let total = 3 * i64::try_from(WINDOW).expect("small");
    rig.offer(1, 1..=total);
    assert_eq!(rig.window(1), WINDOW);
    let mut stored = 1..=total;
    let mut taken = Vec::new();
    while let Some(event) = rig.take() {
        taken.push(event);
        rig.finish(1, event);
        assert!(rig.window(1) <= WINDOW);
        for (id, held) in rig.hungry() {
            assert_eq!(id, 1);
            assert!(held.len() < LOW_WATER, "a page is read only for a window with room");
            // The store has what is not finished; held ones it passes over.
            let last_held = held.last().copied().unwrap_or(event);
            let page: Vec<_> = stored
                .by_ref()
                .skip_while(|event| *event <= last_held)
                .take(LOW_WATER)
                .map(|event| waiting(1, event))
                .collect();
            let more = page.len() == LOW_WATER;
            rig.page(1, Paged { waiting: page, more, next_due: None });
        }
    }
    assert_eq!(taken, (1..=total).collect::<Vec<_>>());
}

#[test]
fn a_window_is_bounded_in_bytes_and_keeps_the_oldest() {
    let mut rig = Rig::with_slots(MANY);
    let mut paused = endpoint(1);
    paused.state = EndpointState::Paused;
    rig.put(paused);
    rig.put(endpoint(1));
    assert_eq!(rig.hungry(), [(1, vec![])]);
    // While the page is read, newer ones fill the window.
    let half = WINDOW_BYTES / 2;
    for event in [30, 40, 50] {
        rig.scheduler.offer(sized(1, event, half), rig.now);
    }
    assert_eq!(rig.window(1), 2);
    rig.page(1, paged([sized(1, 10, half), sized(1, 20, half)]));
    assert_eq!(rig.window(1), 2);
    assert_eq!(rig.take_all(), [10, 20], "the newer ones made room");
    assert_eq!(rig.hungry(), [(1, vec![10, 20])], "and are read again");
    rig.page(1, paged([sized(1, 30, half), sized(1, 40, half)]));
    assert_eq!(rig.take_all(), [30, 40]);
}

#[test]
fn what_finished_while_a_page_was_read_does_not_come_back_with_it() {
    let mut rig = Rig::with_slots(MANY);
    rig.put(endpoint(1));
    assert_eq!(rig.hungry(), [(1, vec![])]);
    rig.offer(1, [7, 8]);
    assert_eq!(rig.take_all(), [7, 8]);
    rig.finish(1, 7);
    // The page was read before 7 was settled.
    rig.page(1, paged([waiting(1, 6), waiting(1, 7), waiting(1, 8)]));
    assert_eq!(rig.take_all(), [6], "8 is in flight");
}

#[test]
fn what_failed_while_a_page_was_read_is_looked_for_when_it_is_due() {
    let mut rig = Rig::with_slots(MANY);
    rig.put(endpoint(1));
    assert_eq!(rig.hungry(), [(1, vec![])]);
    rig.offer(1, [7]);
    assert_eq!(rig.take_all(), [7]);
    let due = rig.now.plus(seconds(30));
    rig.retry_at(1, 7, due, None);
    rig.page(1, Paged { next_due: Some(rig.now.plus(seconds(60))), ..paged([waiting(1, 7)]) });
    assert_eq!(rig.take(), None);
    assert_eq!(rig.scheduler.next_alarm(), Some(due));
    rig.set_clock(due);
    assert_eq!(rig.hungry(), [(1, vec![])]);
}

#[test]
fn what_is_offered_while_older_ones_wait_in_the_store_waits_there_too() {
    let mut rig = Rig::with_slots(MANY);
    rig.put(endpoint(1));
    rig.offer(1, [9]);
    assert_eq!(rig.take(), None, "nobody knows yet what is in the store");
    assert_eq!(rig.hungry(), [(1, vec![])]);
    rig.page(1, Paged { more: true, ..paged([waiting(1, 1), waiting(1, 2)]) });
    rig.offer(1, [10]);
    assert_eq!(rig.take_all(), [1, 2]);
    assert_eq!(rig.hungry(), [(1, vec![1, 2])]);
    rig.page(1, paged([waiting(1, 9), waiting(1, 10)]));
    assert_eq!(rig.take_all(), [9, 10]);
    rig.offer(1, [11]);
    assert_eq!(rig.take_all(), [11], "handed over in memory once the store is read out");
}

#[test]
fn one_page_is_read_at_a_time_and_a_failed_one_again_later() {
    let mut rig = Rig::with_slots(MANY);
    rig.put(endpoint(1));
    let id = EndpointId::from_i64(1);
    assert_eq!(rig.hungry(), [(1, vec![])]);
    rig.scheduler.note_stored(id, None, rig.now);
    assert!(!rig.scheduler.wants_pages());
    let retry_at = rig.now.plus(Duration::from_millis(500));
    rig.scheduler.page_failed(id, retry_at, rig.now);
    assert_eq!(rig.hungry(), [], "whatever was noted while it was read");
    rig.scheduler.note_stored(id, None, rig.now);
    assert_eq!(rig.hungry(), [], "a store that does not answer is not asked for every event");
    assert_eq!(rig.scheduler.next_alarm(), Some(retry_at));
    rig.set_clock(retry_at);
    assert_eq!(rig.hungry(), [(1, vec![])]);
}

#[test]
fn what_other_nodes_store_is_read_for_all_endpoints_at_the_same_moments() {
    let mut rig = Rig::with_slots(MANY);
    rig.set_clock(rig.now.plus(Duration::from_millis(3)));
    let ids = [1, 2].map(EndpointId::from_i64);
    for (number, id) in [1, 2].into_iter().zip(ids) {
        rig.put(endpoint(number));
        assert_eq!(rig.hungry(), [(number, vec![])]);
        rig.page(number, paged([]));
        rig.set_clock(rig.now.plus(Duration::from_millis(1)));
        rig.scheduler.told_of(id, None, rig.now);
        rig.scheduler.told_of(id, None, rig.now);
    }
    assert_eq!(rig.hungry(), [], "each has been read lately");
    let moment = rig.scheduler.next_alarm().expect("they are read later");
    rig.set_clock(moment);
    assert_eq!(rig.hungry(), [(1, vec![]), (2, vec![])]);
}

#[test]
fn a_page_passes_over_what_is_about_to_be_offered() {
    let mut rig = Rig::with_slots(MANY);
    rig.put(endpoint(1));
    rig.scheduler.expect(EventId::from_i64(5));
    assert_eq!(rig.hungry(), [(1, vec![])]);
    // The commit was visible to the page before whoever made it could offer.
    rig.page(1, paged([waiting(1, 4), waiting(1, 5)]));
    assert_eq!(rig.take_all(), [4]);
    assert_eq!(rig.scheduler.arrived(EventId::from_i64(5)), Meanwhile::PassedOver);
    rig.offer(1, [5]);
    assert_eq!(rig.take_all(), [5], "once");
    rig.scheduler.expect(EventId::from_i64(6));
    assert!(rig.reserve(1, 6));
    rig.unreserve(1, 6);
    assert_eq!(rig.scheduler.arrived(EventId::from_i64(6)), Meanwhile::Reserved);
    assert_eq!(rig.scheduler.arrived(EventId::from_i64(6)), Meanwhile::Nothing);
}

#[test]
fn what_a_page_brought_already_is_not_taken_in_twice() {
    let mut rig = Rig::with_slots(MANY);
    rig.put(endpoint(1));
    assert_eq!(rig.hungry(), [(1, vec![])]);
    rig.page(1, paged([waiting(1, 1), waiting(1, 2)]));
    assert_eq!(rig.take(), Some(1));
    rig.offer(1, [1, 2]);
    assert_eq!(rig.take_all(), [2]);
    assert_eq!(rig.scheduler.in_flight(), 2);
    rig.finish(1, 1);
    rig.finish(1, 2);
    assert_eq!(rig.scheduler.in_flight(), 0);
}

#[test]
fn what_was_not_due_gives_its_slot_and_its_token_back() {
    let mut rig = Rig::with_slots(MANY);
    let mut limited = endpoint(1);
    limited.spec.rate_limit = Some(RateLimit { per_second: 0.001, burst: 1 });
    rig.add(limited);
    rig.offer(1, [1]);
    assert_eq!(rig.take_all(), [1]);
    rig.scheduler.put_back(EndpointId::from_i64(1), DeliveryId::from_i64(1), rig.now);
    assert_eq!(rig.scheduler.in_flight(), 0);
    assert_eq!(rig.hungry(), [(1, vec![])], "the store says when it is due");
    let due = rig.now.plus(seconds(5));
    rig.page(1, Paged { next_due: Some(due), ..Paged::default() });
    assert_eq!(rig.scheduler.next_alarm(), Some(due));
    rig.offer(1, [2]);
    assert_eq!(rig.take_all(), [2], "the token was not used up");
}

#[test]
fn a_reserved_delivery_is_not_sent_and_is_looked_for_afterwards() {
    let mut rig = Rig::with_slots(MANY);
    rig.add(endpoint(1));
    rig.offer(1, [1, 2]);
    assert!(rig.reserve(1, 1));
    assert!(!rig.reserve(1, 1), "by one at a time");
    assert_eq!(rig.take_all(), [2]);
    assert!(!rig.reserve(1, 2), "it is in flight");
    rig.offer(1, [1]);
    assert_eq!(rig.take(), None, "not even if it is offered");
    assert_eq!(rig.hungry(), [(1, vec![1, 2])], "a page passes over it");
    rig.unreserve(1, 1);
    // The page may have been read before the change was made.
    rig.page(1, paged([waiting(1, 1)]));
    assert_eq!(rig.take(), None);
    assert_eq!(rig.hungry(), [(1, vec![2])]);
    rig.page(1, paged([waiting(1, 1)]));
    assert_eq!(rig.take_all(), [1]);
}

#[test]
fn a_paused_endpoint_keeps_everything_and_goes_on_where_it_stopped() {
    let mut rig = Rig::with_slots(MANY);
    rig.add(endpoint(1));
    rig.offer(1, [1, 2]);
    assert_eq!(rig.take(), Some(1));
    let mut paused = endpoint(1);
    paused.state = EndpointState::Paused;
    rig.put(paused);
    rig.offer(1, [3]);
    let due = rig.now.plus(seconds(30));
    rig.retry_at(1, 1, due, None);
    rig.pass(seconds(60));
    assert_eq!(rig.take(), None);
    assert_eq!(rig.hungry(), []);
    assert_eq!(rig.scheduler.next_alarm(), None, "nothing rings for it");
    rig.put(endpoint(1));
    assert_eq!(rig.take_all(), [2, 3]);
    assert_eq!(rig.hungry(), [(1, vec![2, 3])], "1 became due meanwhile");
    rig.page(1, paged([waiting(1, 1)]));
    assert_eq!(rig.take_all(), [1]);
}

#[test]
fn a_suspended_endpoint_is_not_sent_to_until_its_route_is_put_again() {
    let mut rig = Rig::with_slots(MANY);
    rig.add(endpoint(1));
    rig.offer(1, [1, 2]);
    rig.scheduler.suspend(EndpointId::from_i64(1));
    rig.offer(1, [3]);
    assert_eq!(rig.take(), None);
    rig.put(endpoint(1));
    assert_eq!(rig.take_all(), [1, 2, 3]);
}

#[test]
fn an_endpoint_that_is_forgotten_frees_its_slots_once() {
    let mut rig = Rig::with_slots(4);
    rig.add(endpoint(1));
    rig.add(endpoint(2));
    rig.offer(1, 1..=4);
    assert_eq!(rig.take_all(), [1, 2, 3, 4]);
    let due = rig.now.plus(seconds(5));
    rig.retry_at(1, 4, due, None);
    rig.scheduler.remove_route(EndpointId::from_i64(1));
    assert_eq!(rig.scheduler.in_flight(), 0);
    assert_eq!(rig.scheduler.next_alarm(), None);
    rig.finish(1, 1);
    assert_eq!(rig.scheduler.in_flight(), 0);
    assert!(!rig.scheduler.offer(waiting(1, 9), rig.now), "whoever offers has to know");
    rig.offer(2, 20..30);
    assert_eq!(rig.take_all(), [20, 21, 22, 23]);
}

#[test]
fn a_clock_set_back_does_not_stretch_a_wait_for_a_token() {
    let mut rig = Rig::with_slots(MANY);
    let mut limited = endpoint(1);
    limited.spec.rate_limit = Some(RateLimit { per_second: 1.0, burst: 1 });
    rig.add(limited);
    rig.offer(1, [1, 2]);
    assert_eq!(rig.take_all(), [1]);
    rig.set_clock(rig.now.minus(seconds(86_400)));
    assert_eq!(rig.take(), None);
    let alarm = rig.scheduler.next_alarm().expect("set");
    assert!(alarm.since(rig.now) <= seconds(1));
    rig.set_clock(alarm);
    assert_eq!(rig.take_all(), [2]);
}

#[test]
fn a_clock_set_back_does_not_keep_a_breaker_open() {
    let mut rig = Rig::with_breaker(MANY, BreakerOptions { failures: 1, ..quick_breaker() });
    rig.add(endpoint(1));
    rig.offer(1, 1..=3);
    assert_eq!(rig.take(), Some(1));
    rig.finish_with(1, 1, Health::Bad);
    rig.pass(seconds(10));
    assert_eq!(rig.take(), Some(2));
    assert_eq!(rig.finish_with(1, 2, Health::Bad), Some(Change::Opened));
    assert_eq!(rig.take(), None);
    rig.set_clock(rig.now.minus(seconds(86_400)));
    assert_eq!(rig.take_all(), [3], "a probe");
}

#[test]
fn a_clock_set_forward_rings_everything_that_has_become_due() {
    let mut rig = Rig::with_slots(MANY);
    for id in [1, 2, 3] {
        rig.add(endpoint(id));
        let due = rig.now.plus(seconds(60 * id.unsigned_abs()));
        rig.scheduler.note_stored(EndpointId::from_i64(id), Some(due), rig.now);
    }
    rig.set_clock(rig.now.plus(seconds(120)));
    assert_eq!(rig.hungry(), [(1, vec![]), (2, vec![])]);
    assert_eq!(rig.scheduler.next_alarm(), Some(START.plus(seconds(180))));
}

#[test]
fn once_stopped_nothing_more_starts() {
    let mut rig = Rig::with_slots(MANY);
    rig.add(endpoint(1));
    rig.offer(1, [1, 2]);
    assert_eq!(rig.take(), Some(1));
    rig.scheduler.stop();
    assert_eq!(rig.take(), None);
    assert_eq!(rig.scheduler.in_flight(), 1);
    rig.finish(1, 1);
    assert_eq!(rig.scheduler.in_flight(), 0);
}
