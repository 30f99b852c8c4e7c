//! The scheduler against a store of rows, with everything that can race mixed at random.

use super::*;

const STEPS: usize = 10_000;
const SEEDS: [u64; 6] = [1, 2, 3, 5, 8, 13];
const SLOTS: usize = 24;
const ENDPOINTS: i64 = 5;
/// Some endpoints are behind one of these, and change over now and then.
const HUBS: i64 = 2;
/// Far more steps than it takes to bring everything to its end once everything is allowed.
const HEALING_ROUNDS: usize = 10_000;

#[test]
fn nothing_is_taken_twice_or_stranded_and_caps_hold() {
    for seed in SEEDS {
        let _named = OnPanic(seed);
        let mut world = World::new(seed);
        for _ in 0..STEPS {
            world.step();
        }
        world.heal();
    }
}

/// Says which seed it was.
struct OnPanic(u64);

impl Drop for OnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the seed was {}", self.0);
        }
    }
}

/// A delivery as the store has it.
#[derive(Debug, Clone, Copy)]
struct Row {
    endpoint: i64,
    /// None when it may go at once.
    due: Option<Timestamp>,
    fence: u32,
    body_bytes: usize,
}

/// A page on its way: asked for, perhaps read, not yet handed to the scheduler.
struct PageUnderWay {
    endpoint: i64,
    held: Vec<DeliveryId>,
    read: Option<Paged>,
}

/// A change that is on disk, or not yet, and that the scheduler has not heard of.
struct Attempt {
    endpoint: i64,
    event: i64,
    fence: u32,
    /// The hub that has it.
    hub: Option<HubId>,
    /// Its hub's line has ended: it comes back untried.
    lost: bool,
    /// What the scheduler will be told, once the store has it.
    settled: Option<Finish>,
}

struct World {
    random: fastrand::Rng,
    rig: Rig,
    endpoints: BTreeMap<i64, Endpoint>,
    /// The hubs that are there, and how much each can hold.
    hubs: BTreeMap<HubId, usize>,
    /// How many have been given to a hub.
    forwarded: usize,
    /// What is unfinished, by event.
    rows: BTreeMap<i64, Row>,
    last_event: i64,
    finished: usize,
    pages: Vec<PageUnderWay>,
    attempts: Vec<Attempt>,
    /// Announced, and stored or not yet.
    arriving: Vec<(i64, Waiting, bool)>,
    reserved: Vec<(i64, i64)>,
}

impl World {
    fn new(seed: u64) -> Self {
        let breaker = BreakerOptions { failures: 5, failing_for: seconds(5), ..Default::default() };
        let mut world = Self {
            random: fastrand::Rng::with_seed(seed),
            rig: Rig::with_breaker(SLOTS, breaker),
            endpoints: BTreeMap::new(),
            hubs: BTreeMap::new(),
            forwarded: 0,
            rows: BTreeMap::new(),
            last_event: 0,
            finished: 0,
            pages: Vec::new(),
            attempts: Vec::new(),
            arriving: Vec::new(),
            reserved: Vec::new(),
        };
        for (id, cap) in (1..=ENDPOINTS).zip([1, 3, 8, 30, 100]) {
            let mut added = endpoint(id);
            added.spec.max_in_flight = Some(cap);
            if id == 2 {
                added.spec.rate_limit = Some(RateLimit { per_second: 20.0, burst: 5 });
            }
            if id > 3 {
                added.spec.destination = Target::Hub(HubId::from_i64(1));
            }
            world.endpoints.insert(id, added.clone());
            world.rig.put(added);
        }
        world
    }

    fn step(&mut self) {
        match self.random.u32(0..100) {
            0..12 => self.announce(),
            12..24 => self.store_announced(),
            24..36 => self.hand_over(),
            36..50 => self.settle(),
            50..64 => self.finish(),
            64..70 => self.ask_for_pages(),
            70..76 => self.read_page(),
            76..82 => self.hand_page(),
            82..85 => self.reserve(),
            85..89 => self.unreserve(),
            89..92 => self.pause_or_resume(),
            92 => self.change_caps(),
            93 => self.set_clock_back(),
            94 => self.come_or_go(),
            95 => self.change_way(),
            96 => self.put_back(),
            _ => self.pass(),
        }
        self.take_all();
    }

    /// New deliveries, sometimes so many that they overflow a window.
    fn announce(&mut self) {
        let count = if self.random.u32(0..100) == 0 { 1_500 } else { self.random.usize(1..4) };
        let endpoint = self.random.i64(1..=ENDPOINTS);
        for _ in 0..count {
            self.last_event += 1;
            let event = self.last_event;
            let body_bytes = if self.random.u32(0..50) == 0 { 300_000 } else { 100 };
            let mut waiting = sized(endpoint, event, body_bytes);
            waiting.delivery.due = self.rig.now;
            self.rig.scheduler.expect(EventId::from_i64(event));
            self.arriving.push((event, waiting, false));
        }
    }

    fn store_announced(&mut self) {
        for (event, waiting, stored) in &mut self.arriving {
            if !*stored && self.random.bool() {
                *stored = true;
                let endpoint = waiting.endpoint.as_i64();
                let body_bytes = waiting.event.body.len();
                self.rows.insert(*event, Row { endpoint, due: None, fence: 0, body_bytes });
            }
        }
    }

    fn hand_over(&mut self) {
        let handed: Vec<_> = {
            let random = &mut self.random;
            self.arriving.extract_if(.., |(_, _, stored)| *stored && random.bool()).collect()
        };
        for (event, waiting, _) in handed {
            let now = self.rig.now;
            let known = match self.rig.scheduler.arrived(EventId::from_i64(event)) {
                Meanwhile::Reserved => self.rig.scheduler.note_stored(waiting.endpoint, None, now),
                Meanwhile::Nothing | Meanwhile::PassedOver => {
                    self.rig.scheduler.offer(waiting, now)
                }
            };
            assert!(known);
        }
    }

    fn take_all(&mut self) {
        loop {
            let crowded = self.attempts.len() >= SLOTS;
            let Some((route, waiting)) = self.rig.scheduler.next(self.rig.now) else { break };
            let (endpoint, event) = (waiting.endpoint.as_i64(), waiting.event.id.as_i64());
            let row = self.rows.get(&event).copied();
            let row = row.unwrap_or_else(|| panic!("{event} has ended and was taken again"));
            assert_eq!(waiting.fence, row.fence, "{event} was changed since");
            assert!(
                self.attempts.iter().all(|attempt| attempt.event != event),
                "{event} was taken twice"
            );
            assert!(!self.reserved.contains(&(endpoint, event)), "{event} is reserved");
            let spec = &self.endpoints[&endpoint];
            assert_eq!(spec.state, EndpointState::Active, "{event}");
            let beside = self.attempts.iter().filter(|other| other.endpoint == endpoint).count();
            let cap = spec.spec.max_in_flight.expect("set") as usize;
            assert!(beside < cap, "{endpoint} has {beside} in flight of {cap}");
            assert!(!crowded || beside < RESERVED, "above the global limit without a reserve");
            let hub = hub_of(&route);
            if let Some(hub) = hub {
                let held = self.attempts.iter().filter(|other| other.hub == Some(hub)).count();
                let capacity = self.hubs.get(&hub).copied();
                assert!(capacity.is_some_and(|capacity| held < capacity), "{held} of {capacity:?}");
                self.forwarded += 1;
            }
            if row.due.is_some_and(|due| due > self.rig.now) {
                // The clock was set back since it was read: the courier gives it back.
                let (id, delivery) = (waiting.endpoint, waiting.id);
                self.rig.scheduler.put_back(id, delivery, self.rig.now);
                continue;
            }
            let fence = row.fence;
            self.attempts.push(Attempt { endpoint, event, fence, hub, lost: false, settled: None });
        }
        assert_eq!(self.rig.scheduler.in_flight(), self.attempts.len());
        for hub in (1..=HUBS).map(HubId::from_i64) {
            let held = self.attempts.iter().filter(|attempt| attempt.hub == Some(hub)).count();
            assert_eq!(self.rig.scheduler.hub_in_flight(hub), held);
        }
        let alarm = self.rig.scheduler.next_alarm();
        assert!(
            alarm.is_none_or(|at| at > self.rig.now || self.rig.now < self.rig.scheduler.rung_at),
            "an alarm in the past would ring for ever"
        );
    }

    /// Puts the end of a random attempt on disk.
    fn settle(&mut self) {
        let is_open = |attempt: &Attempt| attempt.settled.is_none() && !attempt.lost;
        let open: Vec<usize> =
            (0..self.attempts.len()).filter(|at| is_open(&self.attempts[*at])).collect();
        let Some(&at) = self.random.choice(&open) else { return };
        let fails = self.random.u32(0..10) < 4;
        self.settle_one(at, fails);
    }

    fn settle_one(&mut self, at: usize, fails: bool) {
        let now = self.rig.now;
        let attempt = &mut self.attempts[at];
        let mut finish = Finish {
            endpoint: EndpointId::from_i64(attempt.endpoint),
            delivery: DeliveryId::from_i64(attempt.event),
            health: Health::Good,
            hold_until: None,
            due: None,
        };
        // One that somebody else changed meanwhile is stale; its slot is freed all the same.
        let row = self.rows.get_mut(&attempt.event).filter(|row| row.fence == attempt.fence);
        if let Some(row) = row {
            if fails {
                let due = now.plus(Duration::from_millis(self.random.u64(1..20_000)));
                row.due = Some(due);
                row.fence += 1;
                finish.due = Some(due);
                finish.health = Health::Bad;
                if self.random.u32(0..20) == 0 {
                    finish.health = Health::Unknown;
                    finish.hold_until = Some(due);
                }
            } else {
                self.rows.remove(&attempt.event);
                self.finished += 1;
            }
        }
        attempt.settled = Some(finish);
    }

    fn finish(&mut self) {
        let settled: Vec<usize> =
            (0..self.attempts.len()).filter(|at| self.attempts[*at].settled.is_some()).collect();
        let Some(&at) = self.random.choice(&settled) else { return };
        let finish = self.attempts.swap_remove(at).settled.expect("chosen for it");
        self.rig.scheduler.finish(finish, self.rig.now);
    }

    fn ask_for_pages(&mut self) {
        for (id, held) in self.rig.scheduler.hungry() {
            let endpoint = id.as_i64();
            assert!(
                self.pages.iter().all(|page| page.endpoint != endpoint),
                "two pages of {endpoint} at the same time"
            );
            self.pages.push(PageUnderWay { endpoint, held, read: None });
        }
    }

    fn read_page(&mut self) {
        let unread: Vec<usize> =
            (0..self.pages.len()).filter(|at| self.pages[*at].read.is_none()).collect();
        let Some(&at) = self.random.choice(&unread) else { return };
        let page = &self.pages[at];
        let read = read(&self.rows, page.endpoint, &page.held, self.rig.now);
        self.pages[at].read = Some(read);
    }

    fn hand_page(&mut self) {
        if self.pages.is_empty() {
            return;
        }
        let page = self.pages.swap_remove(self.random.usize(0..self.pages.len()));
        if let Some(read) = page.read {
            self.rig.page(page.endpoint, read);
        } else {
            let retry_at = self.rig.now.plus(Duration::from_millis(500));
            let id = EndpointId::from_i64(page.endpoint);
            self.rig.scheduler.page_failed(id, retry_at, self.rig.now);
        }
    }

    /// An operator takes hold of a delivery …
    fn reserve(&mut self) {
        let Some(event) = self.any_event() else { return };
        let endpoint = self.rows[&event].endpoint;
        let in_flight = self.attempts.iter().any(|attempt| attempt.event == event);
        let taken = self.reserved.contains(&(endpoint, event));
        assert_eq!(self.rig.reserve(endpoint, event), !in_flight && !taken);
        if !in_flight && !taken {
            self.reserved.push((endpoint, event));
        }
    }

    /// … and lets go of it, with or without having changed it.
    fn unreserve(&mut self) {
        if self.reserved.is_empty() {
            return;
        }
        let at = self.random.usize(0..self.reserved.len());
        let (endpoint, event) = self.reserved.swap_remove(at);
        match self.random.u32(0..3) {
            0 => {
                self.rows.remove(&event);
                self.finished += 1;
            }
            1 => {
                let row = self.rows.get_mut(&event).expect("reserved");
                row.due = None;
                row.fence += 1;
            }
            _ => {}
        }
        self.rig.unreserve(endpoint, event);
    }

    fn any_event(&mut self) -> Option<i64> {
        let from = self.random.i64(0..=self.last_event);
        self.rows.range(from..).next().map(|(event, _)| *event)
    }

    fn pause_or_resume(&mut self) {
        let id = self.random.i64(1..=ENDPOINTS);
        let changed = self.endpoints.get_mut(&id).expect("all are known");
        changed.state = match changed.state {
            EndpointState::Active => EndpointState::Paused,
            EndpointState::Paused | EndpointState::Disabled | EndpointState::Deleted => {
                EndpointState::Active
            }
        };
        self.rig.scheduler.put_route(&route(changed.clone()), self.rig.now);
    }

    fn change_caps(&mut self) {
        let id = self.random.i64(1..=ENDPOINTS);
        let changed = self.endpoints.get_mut(&id).expect("all are known");
        changed.spec.max_in_flight = Some(self.random.u32(1..40));
        self.rig.scheduler.put_route(&route(changed.clone()), self.rig.now);
    }

    /// A hub connects, perhaps in place of its older connection, or its line ends.
    fn come_or_go(&mut self) {
        let hub = HubId::from_i64(self.random.i64(1..=HUBS));
        for attempt in self.attempts.iter_mut().filter(|attempt| attempt.hub == Some(hub)) {
            attempt.lost = attempt.settled.is_none();
        }
        let capacity = self.random.bool().then(|| self.random.usize(1..20));
        match capacity {
            Some(capacity) => self.hubs.insert(hub, capacity),
            None => self.hubs.remove(&hub),
        };
        self.rig.scheduler.set_hub(hub, capacity, self.rig.now);
    }

    /// What was lost comes back.
    fn put_back(&mut self) {
        let now = self.rig.now;
        for attempt in self.attempts.extract_if(.., |attempt| attempt.lost) {
            let id = EndpointId::from_i64(attempt.endpoint);
            self.rig.scheduler.put_back(id, DeliveryId::from_i64(attempt.event), now);
        }
    }

    /// An endpoint is given another way, with whatever it has in flight.
    fn change_way(&mut self) {
        let id = self.random.i64(1..=ENDPOINTS);
        let changed = self.endpoints.get_mut(&id).expect("all are known");
        changed.spec.destination = match self.random.i64(0..=HUBS) {
            0 => Target::Url("https://example.com/hook".into()),
            hub => Target::Hub(HubId::from_i64(hub)),
        };
        self.rig.scheduler.put_route(&route(changed.clone()), self.rig.now);
    }

    fn pass(&mut self) {
        self.rig.pass(Duration::from_millis(self.random.u64(0..2_000)));
    }

    fn set_clock_back(&mut self) {
        let back = Duration::from_millis(self.random.u64(0..30_000));
        self.rig.set_clock(self.rig.now.minus(back));
    }

    /// Allows everything, and demands that everything comes to its end.
    fn heal(&mut self) {
        for hub in (1..=HUBS).map(HubId::from_i64) {
            self.hubs.insert(hub, 100);
            self.rig.scheduler.set_hub(hub, Some(100), self.rig.now);
        }
        self.put_back();
        for id in 1..=ENDPOINTS {
            let healed = self.endpoints.get_mut(&id).expect("all are known");
            healed.state = EndpointState::Active;
            healed.spec.max_in_flight = Some(100);
            healed.spec.rate_limit = None;
            self.rig.scheduler.put_route(&route(healed.clone()), self.rig.now);
        }
        for _ in 0..HEALING_ROUNDS {
            self.store_announced();
            self.hand_over();
            while !self.reserved.is_empty() {
                self.unreserve();
            }
            self.ask_for_pages();
            while !self.pages.is_empty() {
                self.read_page();
                if self.pages.iter().all(|page| page.read.is_some()) {
                    self.hand_page();
                }
            }
            self.take_all();
            for at in 0..self.attempts.len() {
                if self.attempts[at].settled.is_none() {
                    self.settle_one(at, false);
                }
            }
            while !self.attempts.is_empty() {
                self.finish();
            }
            self.take_all();
            if self.rows.is_empty() && self.arriving.is_empty() && self.attempts.is_empty() {
                assert_eq!(self.finished, usize::try_from(self.last_event).expect("a count"));
                assert_eq!(self.rig.scheduler.in_flight(), 0);
                assert!(self.forwarded > STEPS / 100, "only {} went to hubs", self.forwarded);
                return;
            }
            if self.attempts.is_empty() && !self.rig.scheduler.wants_pages() {
                // Nothing to do but to wait for the next alarm.
                if let Some(alarm) = self.rig.scheduler.next_alarm() {
                    self.rig.set_clock(alarm.max(self.rig.now));
                    self.take_all();
                } else {
                    assert!(!self.arriving.is_empty(), "stranded: {:?}", self.rows);
                }
            }
        }
        panic!("{} deliveries did not come to their end", self.rows.len());
    }
}

/// What a store answers: what is ready by age, what is due by time, and when there is more.
fn read(rows: &BTreeMap<i64, Row>, endpoint: i64, held: &[DeliveryId], now: Timestamp) -> Paged {
    let held: HashSet<DeliveryId> = held.iter().copied().collect();
    let limit = LOW_WATER;
    let free = || {
        rows.iter().filter(|(event, row)| {
            row.endpoint == endpoint && !held.contains(&DeliveryId::from_i64(**event))
        })
    };
    let ready: Vec<_> = free().filter(|(_, row)| row.due.is_none()).take(limit + 1).collect();
    let mut timed: Vec<_> =
        free().filter_map(|(event, row)| Some((row.due?, event, row))).collect();
    timed.sort_unstable_by_key(|(due, event, _)| (*due, **event));
    let due: Vec<_> =
        timed.iter().filter(|(due, ..)| *due <= now).take(limit + 1).copied().collect();
    let mut more = ready.len() > limit || due.len() > limit;
    let mut found: Vec<(&i64, &Row)> = ready.into_iter().take(limit).collect();
    found.extend(due.into_iter().take(limit).map(|(_, event, row)| (event, row)));
    found.sort_unstable_by_key(|(event, _)| **event);
    let mut waiting = Vec::new();
    let mut bytes = 0;
    for (event, row) in found {
        bytes += row.body_bytes;
        if bytes > WINDOW_BYTES && !waiting.is_empty() {
            more = true;
            break;
        }
        let mut one = sized(endpoint, *event, row.body_bytes);
        one.fence = row.fence;
        waiting.push(one);
    }
    let next_due = timed.iter().map(|(due, ..)| *due).find(|due| *due > now);
    Paged { waiting, more, next_due }
}
