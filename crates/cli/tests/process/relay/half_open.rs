//! A wire that loses everything and ends nothing: both sides notice by themselves, and what was
//! under way goes again.
//!
//! How long a side listens to silence cannot be set from outside, so this takes as long as it takes;
//! it does nothing meanwhile. The cases wait side by side.

use std::time::{Duration, Instant};

use http::StatusCode;
use serde_json::json;

use super::proxy::{Proxy, Vanishing};
use super::{Hub, send};
use crate::gateway::{Gateway, Launch};
use crate::sink::{Reply, Sink};

/// Within this time a dead peer has to be noticed.
const NOTICED_WITHIN: Duration = Duration::from_secs(45);

/// Answered at once, before the loss.
const EARLY: u64 = 1;
/// In the hub's hands when the loss begins.
const HELD: u64 = 2;
/// Sent when the loss has begun.
const LATE: u64 = 3;

struct Case {
    name: &'static str,
    vanishing: Vanishing,
    others: Others,
    gateway_learns: Learns,
    /// What the service gets in the end.
    arrive: &'static [u64],
}

/// What becomes of connections made later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Others {
    GetThrough,
    /// Not before both sides have noticed.
    Wait,
}

/// How the gateway finds out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Learns {
    ByItself,
    /// Perhaps: a hub that has noticed hangs up, or comes back and takes over.
    FromHub,
}

const CASES: [Case; 4] = [
    Case {
        name: "forgotten",
        vanishing: Vanishing::Everything,
        others: Others::GetThrough,
        gateway_learns: Learns::FromHub,
        arrive: &[EARLY, HELD, HELD, LATE],
    },
    Case {
        name: "down",
        vanishing: Vanishing::Everything,
        others: Others::Wait,
        gateway_learns: Learns::ByItself,
        arrive: &[EARLY, HELD, HELD, LATE],
    },
    Case {
        name: "mute",
        vanishing: Vanishing::FromHub { torn: 0 },
        others: Others::GetThrough,
        gateway_learns: Learns::ByItself,
        arrive: &[EARLY, HELD, HELD, LATE],
    },
    Case {
        name: "deaf",
        vanishing: Vanishing::FromGateway,
        others: Others::GetThrough,
        gateway_learns: Learns::FromHub,
        arrive: &[EARLY, HELD, LATE],
    },
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wire_that_only_loses_is_noticed_by_both_sides_and_nothing_is_stuck() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let launch = Launch::serve(directory.path());
    let gateway = launch.start().await;
    let [forgotten, down, mute, deaf] = &CASES;
    let events = tokio::join!(
        forgotten.play(&gateway),
        down.play(&gateway),
        mute.play(&gateway),
        deaf.play(&gateway)
    );
    gateway.stop().await;

    let gateway = launch.start().await;
    let events = [events.0, events.1, events.2, events.3];
    for (case, events) in CASES.iter().zip(events) {
        for event in events {
            let delivery = gateway.delivery_of(&event).await;
            assert_eq!(delivery["state"], "delivered", "{}: {delivery}", case.name);
            assert_eq!(delivery["attempts"], 1, "{}: {delivery}", case.name);
        }
    }
}

impl Case {
    /// Loses what is to be lost, and waits until all has arrived. Returns the events.
    async fn play(&self, gateway: &Gateway) -> [String; 3] {
        let name = self.name;
        let proxy = Proxy::start(gateway.address).await;
        let service = Sink::start(|arrival| match arrival.number {
            HELD => Reply::WhenReleased,
            _ => Reply::Now(StatusCode::OK),
        })
        .await;
        let hub = Hub::create(gateway, name).await;
        let spec = json!({
            "hub": hub.id, "policy": "edge", "ordering": "fifo", "event_types": [name],
            // Longer than it takes to notice: no answer is late.
            "timeout": "60s",
        });
        gateway.create_endpoint(spec).await;
        let process = hub.launch(&proxy.url(), &service.url()).spawn();
        let early = send(gateway, name, EARLY).await;
        let held = send(gateway, name, HELD).await;
        service.until("what is held", |seen| seen.arrivals.len() == 2).await;

        let lost = Instant::now();
        proxy.lose(self.vanishing);
        if self.others == Others::Wait {
            proxy.lead_to(None);
        }
        service.release();
        let late = send(gateway, name, LATE).await;
        let gateway_notices = async {
            if self.gateway_learns == Learns::ByItself {
                hub.disconnected(gateway).await;
                check_noticed(name, "the gateway", lost);
            }
        };
        let hub_notices = async {
            proxy.until_dialed(2).await;
            check_noticed(name, "the hub", lost);
        };
        tokio::join!(gateway_notices, hub_notices);
        if self.others == Others::Wait {
            let shown = hub.shown(gateway).await;
            assert_eq!((&shown["connected"], &shown["in_flight"]), (&json!(false), &json!(0)));
            let waiting = gateway.delivery_of(&held).await;
            assert_eq!(waiting["state"], "pending", "{waiting}");
            assert_eq!(waiting["attempts"], 0, "{waiting}");
            assert_eq!(waiting["waiting_on"]["reason"], "hub_offline", "{waiting}");
            proxy.lead_to(Some(gateway.address));
        }

        let all = self.arrive.len();
        service.until("all arrivals", |seen| seen.arrivals.len() >= all).await;
        let arrived: Vec<u64> = service.arrivals().iter().map(|arrival| arrival.number).collect();
        assert_eq!(arrived, self.arrive, "{name}");
        let shown = hub.shown(gateway).await;
        assert_eq!(shown["connected"], true, "{name}: {shown}");
        process.signal("TERM");
        process.finished().await.expect_code(0);
        [early, held, late]
    }
}

fn check_noticed(case: &str, who: &str, lost: Instant) {
    let after = lost.elapsed();
    println!("{case}: {who} noticed after {after:?}");
    assert!(after < NOTICED_WITHIN, "{case}: {who} noticed after {after:?}");
}
