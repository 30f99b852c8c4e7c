//! Whose deliveries are whose: several hubs on one gateway, one that is revoked, and two processes
//! with one token.

use http::{Method, StatusCode};
use serde_json::json;

use super::{Hub, send, url_of};
use crate::gateway::{Gateway, Launch};
use crate::sink::{Reply, Sink};

const EVENTS: u64 = 20;

/// A hub with an endpoint behind it, which gets the events of a type.
struct Site {
    kind: &'static str,
    hub: Hub,
    service: Sink,
}

impl Site {
    async fn create(gateway: &Gateway, kind: &'static str, service: Sink) -> Self {
        let hub = Hub::create(gateway, kind).await;
        let spec = json!({
            "hub": hub.id, "policy": "edge", "ordering": "fifo", "event_types": [kind],
            "timeout": "60s",
        });
        gateway.create_endpoint(spec).await;
        Self { kind, hub, service }
    }

    fn launch(&self, gateway: &Gateway) -> Launch {
        self.hub.launch(&url_of(gateway), &self.service.url())
    }

    async fn until_arrived(&self, count: u64) {
        self.service.until("all arrivals", |seen| seen.arrivals.len() as u64 >= count).await;
    }

    fn numbers(&self) -> Vec<u64> {
        self.service.arrivals().iter().map(|arrival| arrival.number).collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_hub_gets_its_own_and_one_that_is_revoked_stops_while_the_other_goes_on() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let gateway = Launch::serve(directory.path()).start().await;
    let last = EVENTS - 1;
    let holding = Sink::start(move |arrival| {
        if arrival.number == last { Reply::WhenReleased } else { Reply::Now(StatusCode::OK) }
    });
    let here = Site::create(&gateway, "here", holding.await).await;
    let there = Site::create(&gateway, "there", Sink::accepting().await).await;
    let (here_launch, there_launch) = (here.launch(&gateway), there.launch(&gateway));
    let (here_runs, there_runs) = (here_launch.spawn(), there_launch.spawn());
    let mut held = String::new();
    for number in 0..EVENTS {
        held = send(&gateway, here.kind, number).await;
        send(&gateway, there.kind, 100 + number).await;
    }
    here.until_arrived(EVENTS).await;
    there.until_arrived(EVENTS).await;
    assert_eq!(here.numbers(), (0..EVENTS).collect::<Vec<_>>());
    assert_eq!(there.numbers(), (100..100 + EVENTS).collect::<Vec<_>>());

    let path = format!("/v1/hubs/{}", here.hub.id);
    let answer = gateway.call(Method::DELETE, &path, String::new()).await;
    assert_eq!(answer.status, StatusCode::NO_CONTENT, "{}", answer.body);
    let ended = here_runs.finished().await.expect_code(1);
    assert!(ended.stderr.contains("the hub was deleted at the gateway"), "{}", ended.stderr);
    // Its token opens nothing any more.
    let refused = here_launch.run().await.expect_code(2);
    assert!(refused.stderr.contains("refused the hub token"), "{}", refused.stderr);
    for output in [&ended, &refused] {
        assert!(!output.stderr.contains(&here.hub.token), "{}", output.stderr);
    }

    send(&gateway, there.kind, 200).await;
    there.until_arrived(EVENTS + 1).await;
    assert_eq!(there.numbers().last(), Some(&200));
    let behind = send(&gateway, here.kind, EVENTS).await;
    for (event, reason) in [(held, "hub_offline"), (behind, "behind")] {
        let waiting = gateway.delivery_of(&event).await;
        assert_eq!(waiting["state"], "pending", "{waiting}");
        assert_eq!(waiting["attempts"], 0, "{waiting}");
        assert_eq!(waiting["waiting_on"]["reason"], reason, "{waiting}");
    }
    there_runs.signal("TERM");
    there_runs.finished().await.expect_code(0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_process_with_the_same_token_takes_over_and_nothing_is_lost() {
    const HELD: u64 = 3;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let serve = Launch::serve(directory.path());
    let gateway = serve.start().await;
    let holding = Sink::start(|arrival| match arrival.number {
        HELD => Reply::WhenReleased,
        _ => Reply::Now(StatusCode::OK),
    });
    let site = Site::create(&gateway, "site", holding.await).await;
    let launch = site.launch(&gateway);
    let first = launch.spawn();
    let mut events = Vec::new();
    for number in 0..EVENTS {
        events.push(send(&gateway, site.kind, number).await);
    }
    // The first has one in its hands, and the rest waits behind it.
    site.until_arrived(HELD + 1).await;

    let second = launch.spawn();
    let ended = first.finished().await.expect_code(1);
    assert!(ended.stderr.contains("another hub uses this token"), "{}", ended.stderr);
    site.until_arrived(HELD + 2).await;
    site.service.release();
    site.until_arrived(EVENTS + 1).await;
    let expected: Vec<u64> = (0..=HELD).chain(HELD..EVENTS).collect();
    assert_eq!(site.numbers(), expected);
    second.signal("TERM");
    second.finished().await.expect_code(0);
    gateway.stop().await;

    let gateway = serve.start().await;
    for event in events {
        let delivery = gateway.delivery_of(&event).await;
        assert_eq!(delivery["state"], "delivered", "{delivery}");
        assert_eq!(delivery["attempts"], 1, "{delivery}");
    }
}
