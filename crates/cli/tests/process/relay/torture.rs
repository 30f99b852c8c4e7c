//! Hub and gateway killed, and the wire between them losing answers, again and again: everything
//! arrives, in order, and nothing twice but what was in the hub's hands.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::StatusCode;
use serde_json::{Value, json};

use super::Hub;
use super::chance::Chance;
use super::feed::{Ack, Feed, Tally, kind};
use super::proxy::{Proxy, Vanishing};
use crate::gateway::{Gateway, Launch, Process, payload, text};
use crate::sink::{Arrival, Reply, Sink};

/// Each begins with answers that are lost, and ends with a killed hub.
const ROUNDS: usize = 20;
/// In every so manieth round the gateway is killed too.
const GATEWAY_EVERY: usize = 4;
/// What the hub takes at once.
const CAPACITY: usize = 16;
/// Attempts that arrive between one fault and the next, at most. What all faults take together stays
/// well below what there is.
const MOST_BETWEEN: usize = 250;
/// The most of a lost answer that gets through.
const MOST_TORN_BYTES: usize = 200;
/// The longest that a wire loses answers, from the first lost one until it is cut.
const MOST_LOSING_MS: usize = 40;

/// One endpoint of the hub.
struct Lane {
    ordering: Ordering,
    events: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ordering {
    Fifo,
    None,
}

const fn fifo(events: usize) -> Lane {
    Lane { ordering: Ordering::Fifo, events }
}

const fn unordered(events: usize) -> Lane {
    Lane { ordering: Ordering::None, events }
}

/// 10,000 events.
const LANES: [Lane; 6] =
    [fifo(1_000), fifo(1_000), fifo(1_000), fifo(1_000), unordered(3_000), unordered(3_000)];

fn lane_of(number: u64) -> usize {
    usize::try_from(number).expect("it was counted up to") % LANES.len()
}

/// How often the service refuses the event with this number before it takes it.
fn refusals(number: u64) -> u32 {
    u32::from((number / LANES.len() as u64) % 250 == 99)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_and_cut_off_again_and_again_the_relay_loses_nothing_and_keeps_the_order() {
    let started = Instant::now();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut relay = Relay::start(Launch::serve(directory.path()), Chance::seeded()).await;
    for round in 0..ROUNDS {
        // More than the hub had in its hands before: so some of it came over the wire of now.
        let more = CAPACITY + 1 + relay.chance.below(MOST_BETWEEN);
        relay.arrivals(more).await;
        relay.lose_answers().await;
        relay.some_arrivals().await;
        if round % GATEWAY_EVERY == GATEWAY_EVERY - 1 {
            relay.kill_gateway().await;
            relay.some_arrivals().await;
        }
        relay.kill_hub();
    }
    println!("all faults were made within {:?}", started.elapsed());
    relay.check().await;
    println!("done within {:?}", started.elapsed());
}

struct Relay {
    chance: Chance,
    launch: Launch,
    hub_launch: Launch,
    /// None only while it is being replaced, like the next one.
    gateway: Option<Gateway>,
    hub: Option<Process>,
    proxy: Proxy,
    service: Sink,
    feed: Feed,
    /// How many attempts had arrived before and after each fault.
    faults: Vec<Range<usize>>,
}

impl Relay {
    async fn start(launch: Launch, chance: Chance) -> Self {
        let gateway = launch.start().await;
        let proxy = Proxy::start(gateway.address).await;
        let tally = Tally::of(LANES.len());
        let service = Sink::start({
            let tally = Arc::clone(&tally);
            move |arrival| {
                tally.add(lane_of(arrival.number));
                let refused = arrival.attempt <= refusals(arrival.number);
                Reply::Now(if refused { StatusCode::BAD_GATEWAY } else { StatusCode::OK })
            }
        })
        .await;
        let hub = Hub::create(&gateway, "site").await;
        for (number, lane) in LANES.iter().enumerate() {
            let ordering = match lane.ordering {
                Ordering::Fifo => "fifo",
                Ordering::None => "none",
            };
            let spec = json!({
                "hub": hub.id, "policy": "edge", "ordering": ordering, "event_types": [kind(number)],
            });
            gateway.create_endpoint(spec).await;
        }
        let capacity = CAPACITY.to_string();
        let hub_launch = hub.launch(&proxy.url(), &service.url()).and(["--capacity", &*capacity]);
        let feed = Feed::start(&LANES.map(|lane| lane.events), tally);
        feed.turn_to(&gateway);
        Self {
            chance,
            launch,
            hub: Some(hub_launch.spawn()),
            hub_launch,
            gateway: Some(gateway),
            proxy,
            service,
            feed,
            faults: Vec::new(),
        }
    }

    fn arrived(&self) -> usize {
        self.service.arrivals().len()
    }

    async fn arrivals(&self, more: usize) {
        let enough = self.arrived() + more;
        self.service.until("arrivals", |seen| seen.arrivals.len() >= enough).await;
    }

    /// None now and then: then a fault follows on another at once.
    async fn some_arrivals(&mut self) {
        if self.chance.below(5) > 0 {
            let more = self.chance.below(MOST_BETWEEN);
            self.arrivals(more).await;
        }
    }

    /// What the hub says vanishes for a while, and then the wire is cut.
    async fn lose_answers(&mut self) {
        let (before, vanished) = (self.arrived(), self.proxy.vanished());
        self.proxy.lose(Vanishing::FromHub { torn: self.chance.below(MOST_TORN_BYTES) });
        self.proxy.until_vanished(vanished + 1).await;
        // No event tells how many answers to lose: so it is any moment.
        let losing = Duration::from_millis(self.chance.below(MOST_LOSING_MS) as u64);
        tokio::time::sleep(losing).await;
        self.proxy.cut();
        self.faults.push(before..self.arrived());
    }

    fn kill_hub(&mut self) {
        let before = self.arrived();
        self.hub.take().expect("it runs").kill();
        self.hub = Some(self.hub_launch.spawn());
        self.faults.push(before..self.arrived());
    }

    async fn kill_gateway(&mut self) {
        // Right after a yes, the producer is about to send more.
        self.feed.next_ack().await;
        let before = self.arrived();
        self.proxy.lead_to(None);
        self.gateway.take().expect("it runs").process.kill();
        let gateway = self.launch.start().await;
        self.proxy.lead_to(Some(gateway.address));
        self.feed.turn_to(&gateway);
        self.gateway = Some(gateway);
        self.faults.push(before..self.arrived());
    }

    /// Waits for everything stored to arrive, stops all, and checks what was made of it.
    async fn check(self) {
        let acks = self.feed.finish().await;
        let gateway = self.gateway.expect("it runs");
        let stored = gateway.get("/v1/stats").await["events"].as_u64().expect("a number");
        println!("{} acknowledged, {stored} stored", acks.len());
        let all = |seen: &crate::sink::Seen| seen.delivered.len() as u64 >= stored;
        self.service.until("the arrival of everything that is stored", all).await;
        let hub = self.hub.expect("it runs");
        hub.signal("TERM");
        hub.finished().await.expect_code(0);
        gateway.stop().await;

        let arrivals = self.service.arrivals();
        check_arrivals(&arrivals, &acks);
        check_order(&arrivals);
        check_repeats(&arrivals, &self.faults);
        // A start of its own shows what is on disk, not what is in memory.
        check_stored(&self.launch.start().await, &arrivals, stored).await;
    }
}

/// Everything acknowledged has arrived, as it was sent.
fn check_arrivals(arrivals: &[Arrival], acks: &[Ack]) {
    let mut events: HashMap<u64, (&str, &str)> = HashMap::new();
    let mut attempts: HashMap<u64, BTreeSet<u32>> = HashMap::new();
    for arrival in arrivals {
        assert_eq!(arrival.body, payload(arrival.number), "{arrival:?}");
        let is = (arrival.event.as_str(), arrival.delivery.as_str());
        assert_eq!(*events.entry(arrival.number).or_insert(is), is, "{arrival:?}");
        attempts.entry(arrival.number).or_default().insert(arrival.attempt);
    }
    for ack in acks {
        let arrived = events.get(&ack.number).map(|(event, _)| *event);
        assert_eq!(arrived, Some(ack.event.as_str()), "{ack:?} was lost");
    }
    for (number, attempts) in attempts {
        let expected: BTreeSet<u32> = (1..=refusals(number) + 1).collect();
        assert_eq!(attempts, expected, "the attempts at {number}");
    }
}

/// In an ordered lane no event arrives after a later one, be it for the first time or again.
fn check_order(arrivals: &[Arrival]) {
    let mut heads = BTreeMap::new();
    for arrival in arrivals {
        let lane = lane_of(arrival.number);
        match LANES[lane].ordering {
            Ordering::Fifo => {
                let head = heads.entry(lane).or_insert(arrival.number);
                assert!(*head <= arrival.number, "{arrival:?} arrived after {head}");
                *head = arrival.number;
            }
            Ordering::None => {}
        }
    }
}

/// An attempt arrives again only after a fault, and a fault repeats no more than the hub had in its
/// hands: of an ordered lane one, of all lanes together what it can hold.
fn check_repeats(arrivals: &[Arrival], faults: &[Range<usize>]) {
    let mut last: HashMap<(u64, u32), usize> = HashMap::new();
    let mut repeats = vec![0; LANES.len()];
    for (index, arrival) in arrivals.iter().enumerate() {
        let Some(before) = last.insert((arrival.number, arrival.attempt), index) else { continue };
        repeats[lane_of(arrival.number)] += 1;
        // What was on its way to the service may be written down a little after the fault.
        let explains = |fault: &Range<usize>| fault.start <= index && before < fault.end + CAPACITY;
        assert!(faults.iter().any(explains), "{arrival:?} arrived as no. {before} and {index}");
    }
    let arrived = arrivals.len();
    println!("{arrived} arrivals, {} faults, repeated in each lane: {repeats:?}", faults.len());
    for (lane, repeated) in LANES.iter().zip(&repeats) {
        match lane.ordering {
            Ordering::Fifo => assert!(*repeated <= faults.len(), "{repeats:?}"),
            Ordering::None => {}
        }
    }
    let repeated: usize = repeats.iter().sum();
    assert!(repeated > 0, "no answer was lost: the faults were none");
    assert!(repeated <= faults.len() * CAPACITY, "{repeats:?}");
}

/// Every delivery has ended, and no attempt was used up by a fault.
async fn check_stored(gateway: &Gateway, arrivals: &[Arrival], stored: u64) {
    let stats = gateway.get("/v1/stats").await;
    let expected = json!({
        "pending": 0, "in_flight": 0, "retrying": 0, "delivered": stored,
        "failed": 0, "dead": 0, "cancelled": 0,
    });
    assert_eq!(stats["deliveries"], expected, "{stats}");
    let numbers: HashMap<&str, u64> =
        arrivals.iter().map(|arrival| (arrival.delivery.as_str(), arrival.number)).collect();
    let mut seen = BTreeSet::new();
    let mut page = "/v1/deliveries?limit=250".to_owned();
    loop {
        let list = gateway.get(&page).await;
        for delivery in list["data"].as_array().expect("a list") {
            let id = text(delivery, "id");
            let number = numbers.get(id.as_str()).copied();
            let number = number.unwrap_or_else(|| panic!("never arrived: {delivery}"));
            assert_eq!(delivery["state"], "delivered", "{delivery}");
            assert_eq!(delivery["attempts"], refusals(number) + 1, "{delivery}");
            seen.insert(id);
        }
        match &list["next_cursor"] {
            Value::String(cursor) => page = format!("/v1/deliveries?limit=250&cursor={cursor}"),
            _ => break,
        }
    }
    assert_eq!(seen.len() as u64, stored);
}
