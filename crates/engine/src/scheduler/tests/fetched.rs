//! Endpoints whose deliveries are fetched by workers, or go through a hub: what is in the way, who
//! is called when it is no longer, and that slots are given back to whom they belong.

use futures_util::FutureExt as _;
use tokio::sync::Notify;

use super::*;

const HUB: HubId = HubId::from_i64(1);
const OTHER_HUB: HubId = HubId::from_i64(2);

fn to(id: i64, destination: Target) -> Endpoint {
    let mut endpoint = endpoint(id);
    endpoint.spec.destination = destination;
    endpoint
}

fn behind(id: i64, hub: HubId) -> Endpoint {
    to(id, Target::Hub(hub))
}

fn pulled(id: i64) -> Endpoint {
    to(id, Target::Pull)
}

impl Rig {
    fn set_hub(&mut self, hub: HubId, capacity: Option<usize>) {
        self.scheduler.set_hub(hub, capacity, self.now);
    }

    fn put_back(&mut self, endpoint: i64, event: i64) {
        let (id, delivery) = (EndpointId::from_i64(endpoint), DeliveryId::from_i64(event));
        self.scheduler.put_back(id, delivery, self.now);
    }

    /// What a worker may have, and what it must not be given.
    fn allow(&mut self, endpoint: i64, wanted: usize) -> Result<(usize, Vec<i64>), Blocked> {
        let allowed = self.scheduler.allow(EndpointId::from_i64(endpoint), wanted, self.now)?;
        let mut away: Vec<i64> = allowed.away.into_iter().map(DeliveryId::as_i64).collect();
        away.sort_unstable();
        Ok((allowed.count, away))
    }

    fn blocked(&self, endpoint: i64) -> Option<Blocked> {
        self.scheduler.blocked(EndpointId::from_i64(endpoint), self.now)
    }

    fn in_flight(&self, endpoint: i64) -> usize {
        self.scheduler.health(EndpointId::from_i64(endpoint)).expect("known").in_flight
    }

    /// In flight in all, and of each hub.
    fn taken(&self) -> (usize, usize, usize) {
        let hubs = [HUB, OTHER_HUB].map(|hub| self.scheduler.hub_in_flight(hub));
        (self.scheduler.in_flight(), hubs[0], hubs[1])
    }

    fn offer_elsewhere(&mut self) {
        self.put(pulled(2));
        self.offer(2, [9]);
        self.put(endpoint(3));
    }

    /// Whether something calls those who wait at a desk.
    fn rings(&mut self, endpoint: i64, change: impl FnOnce(&mut Self)) -> bool {
        let desk = self.scheduler.queueing(EndpointId::from_i64(endpoint)).expect("a desk");
        let bell: &Notify = &desk.bell;
        let mut rung = std::pin::pin!(bell.notified());
        rung.as_mut().enable();
        change(self);
        rung.now_or_never().is_some()
    }
}

#[test]
fn what_workers_fetch_is_neither_sent_nor_kept_in_memory() {
    let mut rig = Rig::with_slots(MANY);
    rig.put(pulled(1));
    rig.offer(1, [1, 2, 3]);
    rig.scheduler.note_stored(EndpointId::from_i64(1), None, rig.now);
    assert_eq!(rig.take(), None);
    assert_eq!(rig.hungry(), [], "no page is read for it");
    assert_eq!((rig.window(1), rig.scheduler.next_alarm()), (0, None));
    assert_eq!(rig.allow(1, 10), Ok((10, vec![])));
    assert!(rig.scheduler.queueing(EndpointId::from_i64(2)).is_none());
    assert_eq!(rig.allow(2, 10), Err(Blocked::Stopped), "there is no such endpoint");
}

#[test]
fn a_desk_says_what_is_in_the_way() {
    let mut rig = Rig::with_slots(MANY);
    let mut limited = pulled(1);
    limited.spec.rate_limit = Some(RateLimit { per_second: 0.5, burst: 3 });
    rig.put(limited.clone());
    assert_eq!(rig.allow(1, 2), Ok((2, vec![])));
    assert_eq!(rig.allow(1, 5), Ok((1, vec![])), "what is left of the burst");
    let token_at = rig.now.plus(seconds(2));
    assert_eq!(rig.allow(1, 5), Err(Blocked::RateLimit(token_at)));
    assert_eq!(rig.blocked(1), Some(Blocked::RateLimit(token_at)));
    rig.scheduler.disallow(EndpointId::from_i64(1), 2);
    assert_eq!(rig.allow(1, 5), Ok((2, vec![])), "what was not used is there again");

    let until = rig.now.plus(seconds(60));
    rig.retry_at(1, 7, until, Some(until));
    assert_eq!(rig.allow(1, 5), Err(Blocked::Hold(until)));
    assert_eq!(rig.blocked(1), Some(Blocked::Hold(until)));
    let sooner = rig.now.plus(seconds(10));
    rig.retry_at(1, 8, sooner, Some(sooner));
    assert_eq!(rig.blocked(1), Some(Blocked::Hold(until)), "a longer wait is not cut short");
    rig.set_clock(until);
    assert_eq!(rig.allow(1, 5), Ok((3, vec![])));

    let paused = Endpoint { state: EndpointState::Paused, ..limited.clone() };
    rig.put(paused);
    assert_eq!(rig.allow(1, 5), Err(Blocked::Stopped));
    limited.spec.rate_limit = None;
    rig.put(limited.clone());
    assert_eq!(rig.allow(1, 500), Ok((500, vec![])), "no limit, no tokens");
    rig.scheduler.suspend(EndpointId::from_i64(1));
    assert_eq!(rig.allow(1, 5), Err(Blocked::Stopped));
    rig.put(limited);
    assert_eq!(rig.allow(1, 5), Ok((5, vec![])));
    rig.scheduler.stop();
    assert_eq!(rig.allow(1, 5), Err(Blocked::Stopped));
}

#[test]
fn everything_that_may_bring_something_calls_those_who_wait() {
    let mut rig = Rig::with_slots(MANY);
    rig.put(pulled(1));
    let id = EndpointId::from_i64(1);
    let due = rig.now.plus(seconds(10));
    assert!(!rig.rings(1, Rig::offer_elsewhere), "what is not theirs does not");
    assert!(rig.rings(1, |rig| rig.offer(1, [1])));
    assert!(rig.rings(1, |rig| assert!(rig.scheduler.note_stored(id, Some(due), rig.now))));
    assert!(rig.rings(1, |rig| rig.finish(1, 1)), "a hand is free");
    assert!(rig.rings(1, |rig| rig.retry_at(1, 1, due, None)), "when to look has changed");
    assert!(rig.rings(1, |rig| rig.unreserve(1, 1)));
    assert!(rig.rings(1, |rig| rig.put(pulled(1))), "what is said of it has changed");
    assert!(rig.rings(1, |rig| rig.put(endpoint(1))), "nothing is to be had any more");
    rig.put(pulled(1));
    assert!(rig.rings(1, |rig| rig.scheduler.remove_route(id)));
    rig.put(pulled(1));
    assert!(rig.rings(1, |rig| rig.scheduler.stop()));
}

#[test]
fn what_was_sent_before_workers_took_over_is_not_theirs_and_is_counted_until_it_ends() {
    let mut rig = Rig::with_slots(MANY);
    rig.add(endpoint(1));
    rig.offer(1, 1..=5);
    for event in 1..=3 {
        assert_eq!(rig.take(), Some(event));
    }
    rig.put(pulled(1));
    assert_eq!(rig.take(), None);
    assert_eq!(rig.allow(1, 10), Ok((10, vec![1, 2, 3])));
    assert_eq!((rig.taken(), rig.in_flight(1)), ((3, 0, 0), 3));
    assert!(!rig.reserve(1, 2), "an operator sees that it is in flight");
    assert!(rig.reserve(1, 4));
    rig.unreserve(1, 4);
    assert!(rig.rings(1, |rig| rig.finish(1, 2)));
    rig.put_back(1, 3);
    assert_eq!(rig.allow(1, 10), Ok((10, vec![1])));

    // Back again, with one that is still on its way since the first time.
    rig.put(endpoint(1));
    assert_eq!((rig.taken(), rig.in_flight(1)), ((1, 0, 0), 1));
    assert_eq!(rig.hungry(), [(1, vec![1])], "it is not read again");
    rig.page(1, paged([waiting(1, 3), waiting(1, 4)]));
    assert_eq!(rig.take_all(), [3, 4]);
    assert_eq!(rig.scheduler.in_flight(), 3);
    for event in [1, 3, 4] {
        rig.finish(1, event);
    }
    assert_eq!((rig.taken(), rig.in_flight(1)), ((0, 0, 0), 0));
    rig.finish(1, 1);
    assert_eq!(rig.scheduler.in_flight(), 0, "once");
}

#[test]
fn slots_and_bytes_are_right_whichever_ways_an_endpoint_goes_meanwhile() {
    let ways = [
        Target::Url("https://example.com/hook".into()),
        Target::Hub(HUB),
        Target::Pull,
        Target::Hub(OTHER_HUB),
        Target::Hub(HUB),
        Target::Pull,
        Target::Url("https://example.com/hook".into()),
    ];
    let huge = IN_FLIGHT_BYTES / 8;
    for from in 0..ways.len() {
        let mut rig = Rig::with_slots(MANY);
        rig.set_hub(HUB, Some(1));
        rig.set_hub(OTHER_HUB, Some(1));
        let mut events = 0;
        let mut taken = Vec::new();
        for way in ways.iter().cycle().skip(from).take(ways.len()) {
            rig.put(to(1, way.clone()));
            for (id, _) in rig.scheduler.hungry() {
                rig.scheduler.paged(id, Paged::default(), rig.now);
            }
            events += 1;
            rig.scheduler.offer(sized(1, events, huge), rig.now);
            let hub = match way {
                Target::Hub(hub) => Some(*hub),
                Target::Url(_) | Target::Pull | Target::Command(_) | Target::Handler(_) => None,
            };
            if let Some(event) = rig.take() {
                taken.push((event, hub));
            }
            let of = |hub| taken.iter().filter(|(_, whose)| *whose == Some(hub)).count();
            assert_eq!(rig.taken(), (taken.len(), of(HUB), of(OTHER_HUB)), "{way:?}");
            assert!(of(HUB) <= 1 && of(OTHER_HUB) <= 1, "each can hold one");
            assert_eq!(rig.in_flight(1), taken.len());
        }
        assert!(taken.len() >= 3, "from {from}: {taken:?}");
        for (event, _) in taken {
            rig.finish(1, event);
        }
        assert_eq!((rig.taken(), rig.in_flight(1)), ((0, 0, 0), 0), "from {from}");
        // Nothing is left of the bytes either: as many go as ever.
        rig.put(endpoint(1));
        for (id, _) in rig.scheduler.hungry() {
            rig.scheduler.paged(id, Paged::default(), rig.now);
        }
        let mut sent = rig.take_all().len();
        for event in 100..110 {
            rig.scheduler.offer(sized(1, event, huge), rig.now);
            sent += rig.take_all().len();
        }
        assert_eq!(sent, 8, "from {from}");
    }
}

#[test]
fn behind_a_hub_that_is_away_nothing_goes_and_nothing_is_lost() {
    let mut rig = Rig::with_slots(MANY);
    rig.add(behind(1, HUB));
    rig.offer(1, 1..=4);
    assert_eq!(rig.take(), None);
    assert_eq!(rig.blocked(1), Some(Blocked::Offline));
    assert_eq!(rig.scheduler.next_alarm(), None, "nothing to ring for");
    rig.set_hub(HUB, Some(2));
    assert_eq!(rig.take_all(), [1, 2]);
    assert_eq!(rig.blocked(1), Some(Blocked::Busy));
    rig.set_hub(HUB, None);
    rig.finish(1, 1);
    assert_eq!(rig.take(), None, "a free slot of a hub that is away is none");
    assert_eq!(rig.blocked(1), Some(Blocked::Offline));
    rig.put_back(1, 2);
    assert_eq!(rig.taken(), (0, 0, 0));
    assert_eq!(rig.hungry(), [(1, vec![3, 4])], "it is found in the store again");
    rig.page(1, paged([waiting(1, 2)]));
    assert_eq!(rig.take(), None);
    rig.set_hub(HUB, Some(10));
    assert_eq!(rig.take_all(), [2, 3, 4], "in order");
}

#[test]
fn what_a_hub_s_old_line_has_takes_room_until_it_is_back() {
    let mut rig = Rig::with_slots(MANY);
    rig.add(behind(1, HUB));
    rig.set_hub(HUB, Some(3));
    rig.offer(1, 1..=6);
    assert_eq!(rig.take_all(), [1, 2, 3]);
    rig.set_hub(HUB, Some(2));
    assert_eq!(rig.take(), None);
    rig.put_back(1, 1);
    assert_eq!(rig.take(), None, "two are still on their way back");
    rig.put_back(1, 2);
    rig.put_back(1, 3);
    assert_eq!(rig.hungry(), [(1, vec![4, 5, 6])]);
    rig.page(1, paged([waiting(1, 1), waiting(1, 2), waiting(1, 3)]));
    let taken = rig.take_all();
    assert_eq!(taken.len(), 2);
    assert_eq!(rig.taken(), (2, 2, 0));
}

#[test]
fn endpoints_of_a_full_hub_take_turns() {
    let mut rig = Rig::with_slots(MANY);
    for id in 1..=3 {
        rig.add(behind(id, HUB));
    }
    rig.set_hub(HUB, Some(1));
    rig.offer(1, 100..110);
    rig.offer(2, 200..202);
    rig.offer(3, 300..302);
    let mut order = Vec::new();
    for _ in 0..8 {
        let event = rig.take().expect("there is room for one");
        assert_eq!(rig.take(), None, "and for no other");
        rig.finish(event / 100, event);
        order.push(event);
    }
    assert_eq!(order, [100, 200, 300, 101, 201, 301, 102, 103]);
}

#[test]
fn an_endpoint_that_found_its_hub_full_is_called_by_whoever_makes_room() {
    let mut rig = Rig::with_slots(MANY);
    rig.add(behind(1, HUB));
    rig.add(behind(2, HUB));
    rig.add(behind(3, OTHER_HUB));
    rig.set_hub(HUB, Some(1));
    rig.set_hub(OTHER_HUB, Some(1));
    rig.offer(1, [1]);
    rig.offer(3, [3]);
    assert_eq!(rig.take_all(), [1, 3]);
    rig.offer(2, [2]);
    assert_eq!(rig.take(), None);
    assert_eq!(rig.blocked(2), Some(Blocked::Busy));
    rig.finish(3, 3);
    assert_eq!(rig.take(), None, "that was another hub's");
    // The one that has it goes elsewhere, and takes nothing along.
    rig.put(endpoint(1));
    assert_eq!(rig.take(), None);
    rig.put(pulled(1));
    assert_eq!(rig.take(), None);
    assert_eq!(rig.taken(), (1, 1, 0));
    rig.finish(1, 1);
    assert_eq!(rig.take_all(), [2]);
    assert_eq!(rig.taken(), (1, 1, 0));
}

#[test]
fn an_endpoint_that_is_forgotten_frees_its_hub() {
    for last_way in [behind(1, HUB), pulled(1), endpoint(1)] {
        let mut rig = Rig::with_slots(MANY);
        rig.add(behind(1, HUB));
        rig.add(behind(2, HUB));
        rig.set_hub(HUB, Some(2));
        rig.offer(1, [1, 2]);
        assert_eq!(rig.take_all(), [1, 2]);
        rig.offer(2, [3, 4]);
        assert_eq!(rig.take(), None);
        rig.put(last_way);
        rig.scheduler.remove_route(EndpointId::from_i64(1));
        assert_eq!(rig.taken(), (0, 0, 0));
        assert_eq!(rig.take_all(), [3, 4]);
        rig.finish(1, 1);
        assert_eq!(rig.taken(), (2, 2, 0), "once");
    }
}

#[test]
fn what_goes_past_the_queues_takes_a_hub_s_room_as_well() {
    let mut rig = Rig::with_slots(MANY);
    rig.add(behind(1, HUB));
    assert_eq!(rig.scheduler.enter_hub(HUB), Err(Blocked::Offline));
    rig.set_hub(HUB, Some(1));
    assert_eq!(rig.scheduler.enter_hub(HUB), Ok(()));
    assert_eq!(rig.scheduler.enter_hub(HUB), Err(Blocked::Busy));
    rig.offer(1, [1]);
    assert_eq!(rig.take(), None);
    assert_eq!(rig.taken(), (0, 1, 0));
    rig.scheduler.leave_hub(HUB, rig.now);
    assert_eq!(rig.take_all(), [1]);
}

#[test]
fn a_hub_that_is_away_and_holds_nothing_is_forgotten() {
    let mut rig = Rig::with_slots(MANY);
    rig.add(behind(1, HUB));
    rig.set_hub(HUB, Some(1));
    rig.offer(1, [1]);
    assert_eq!(rig.take_all(), [1]);
    rig.set_hub(HUB, None);
    rig.put(endpoint(1));
    assert_eq!(rig.taken(), (1, 1, 0), "it is known as long as it has something");
    rig.put_back(1, 1);
    assert_eq!(rig.taken(), (0, 0, 0));
    assert!(rig.scheduler.hubs.is_empty());
}
