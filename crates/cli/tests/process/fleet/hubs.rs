//! A hub that is connected to any node gets what is for it; when that node goes, it gets the rest
//! from another.

use std::time::{Duration, Instant};

use serde_json::json;

use super::load::{Ack, Kind, Load};
use super::route::{check_complete, check_order, repeats_among};
use super::{Fleet, LOOK};
use crate::relay::Hub;
use crate::relay::proxy::Proxy;
use crate::sink::{Arrival, Reply, Sink};
use crate::within;

/// What the hub takes at once.
const CAPACITY: usize = 8;
/// Between one move and the next.
const ARRIVALS: usize = 60;

/// The kinds of events, each for an endpoint of the hub.
const LINE: u64 = 0;
const PLAIN: u64 = 1;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_gets_the_rest_from_another_node_in_order() {
    let mut fleet = Fleet::start().await;
    let service = Sink::start(|_| Reply::After(Duration::from_millis(5))).await;
    let hub = Hub::create(fleet.node(0), "site").await;
    for (node, kind, ordering) in [(1, "hub.line", "fifo"), (2, "hub.plain", "none")] {
        let spec = json!({
            "hub": hub.id, "policy": "edge", "ordering": ordering, "event_types": [kind],
        });
        fleet.node(node).create_endpoint(spec).await;
    }
    fleet.settled().await;
    let proxy = Proxy::start(fleet.node(0).address).await;
    let capacity = CAPACITY.to_string();
    let launch = hub.launch(&proxy.url(), &service.url()).and(["--capacity", &*capacity]);
    let process = launch.spawn();
    hub.connected(fleet.node(0)).await;

    let kind = |name: &str, per_second| Kind { name: name.into(), per_second, producers: 1 };
    let kinds = vec![kind("hub.line", 30), kind("hub.plain", 60)];
    let mut load = Load::start(kinds, fleet.roster());
    arrivals(&service).await;
    let mut moves = Vec::new();
    for (from, to) in [(0, 1), (1, 2), (2, 0)] {
        proxy.lead_to(None);
        moves.push(Instant::now());
        if from == 1 {
            // Nobody is killed: only the wire breaks, and comes up elsewhere.
            proxy.cut();
        } else {
            fleet.kill(from);
        }
        proxy.lead_to(Some(fleet.node(to).address));
        hub.connected(fleet.node(to)).await;
        for node in fleet.running() {
            let path = format!("/v1/hubs/{}", hub.id);
            let known = async {
                while fleet.node(node).get(&path).await["connected"] != true {
                    tokio::time::sleep(LOOK).await;
                }
            };
            within("every node to know of the connection", known).await;
        }
        arrivals(&service).await;
        if from != 1 {
            fleet.launch(from).await;
        }
    }
    let acks = load.finish().await;
    let all = |seen: &crate::sink::Seen| seen.delivered.len() >= acks.len();
    service.until("the arrival of everything acknowledged", all).await;
    fleet.all_delivered(acks.len(), acks.len()).await;
    process.signal("TERM");
    process.finished().await.expect_code(0);

    let arrivals = service.arrivals();
    check_complete(&arrivals, &acks.iter().collect::<Vec<&Ack>>());
    let of_kind = |kind: u64| -> Vec<Arrival> {
        arrivals.iter().filter(|arrival| arrival.number % 2 == kind).cloned().collect()
    };
    check_order(&of_kind(LINE));
    let repeated = [LINE, PLAIN].map(|kind| repeats_among(0, &of_kind(kind)).len());
    println!("{} events, {} moves, repeated {repeated:?}", acks.len(), moves.len());
    assert!(repeated[0] <= moves.len(), "{repeated:?}");
    assert!(repeated.iter().sum::<usize>() <= moves.len() * CAPACITY, "{repeated:?}");
    assert!(acks.iter().any(|ack| ack.at > moves[2]), "nothing came after the last move");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_for_a_hub_goes_to_whichever_node_it_comes_to() {
    let fleet = Fleet::start().await;
    let service = Sink::accepting().await;
    let hub = Hub::create(fleet.node(0), "site").await;
    let spec = json!({ "hub": hub.id, "policy": "edge", "ordering": "fifo" });
    fleet.node(0).create_endpoint(spec).await;
    fleet.settled().await;
    let mut number = 0;
    for node in fleet.running() {
        for (through, reason) in fleet.running().zip(["hub_offline", "behind", "behind"]) {
            let event = fleet.node(through).send(number).await;
            let delivery = fleet.delivery_of(node, &event).await;
            assert_eq!(delivery["waiting_on"]["reason"], reason, "{delivery}");
            assert_eq!(delivery["state"], "pending", "{delivery}");
            number += 1;
        }
        let url = format!("http://{}", fleet.node(node).address);
        let process = hub.launch(&url, &service.url()).spawn();
        service.until("what waited", |seen| seen.delivered.len() as u64 == number).await;
        process.signal("TERM");
        process.finished().await.expect_code(0);
        hub.disconnected(fleet.node(node)).await;
    }
    let arrived: Vec<u64> = service.arrivals().iter().map(|arrival| arrival.number).collect();
    assert_eq!(arrived, (0..number).collect::<Vec<_>>());
}

async fn arrivals(service: &Sink) {
    let enough = service.arrivals().len() + ARRIVALS;
    service.until("arrivals", |seen| seen.arrivals.len() >= enough).await;
}
