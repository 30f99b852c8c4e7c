//! What one node tells of the others: the stream; and what it finishes for them: a replay.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::header::{AUTHORIZATION, HOST};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use postrider_core::{EndpointId, JobId, Lane};
use serde_json::{Value, json};
use tokio::net::TcpStream;

use super::census::Census;
use super::{Fleet, LOOK, NAMES};
use crate::gateway::{Gateway, KEY, text};
use crate::sink::{Reply, Sink};
use crate::within;

/// So many that every node surely carries some.
const ENDPOINTS: usize = 24;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_stream_on_any_node_shows_what_all_nodes_deliver() {
    let fleet = Fleet::start().await;
    let sink = Sink::accepting().await;
    let mut endpoints = BTreeSet::new();
    for number in 0..ENDPOINTS {
        let spec = json!({ "url": sink.url() });
        endpoints.insert(fleet.node(number % 3).create_endpoint(spec).await);
    }
    fleet.settled().await;
    let mut carriers = BTreeSet::new();
    for endpoint in &endpoints {
        carriers.insert(fleet.carrier_of(endpoint).await);
    }
    assert_eq!(carriers.len(), 3, "every node carries something");

    let mut streams = Vec::new();
    for node in fleet.running() {
        streams.push(Stream::follow(fleet.node(node)).await);
    }
    // Whoever listens has said so to the others when its first notice from each has come. What
    // happens before may be missed, as it would have been had the stream been opened later.
    let mut number = 0;
    for stream in &mut streams {
        let mut heard = BTreeSet::new();
        while heard.len() < ENDPOINTS {
            fleet.node(number % 3).send(number as u64).await;
            number += 1;
            stream.take_what_is_there(&mut heard).await;
        }
    }
    // From now on nothing is missed.
    let event = fleet.node(1).send(number as u64).await;
    for stream in &mut streams {
        let mut told = BTreeSet::new();
        while told.len() < ENDPOINTS {
            let notice = within("a notice", stream.next()).await.expect("the stream goes on");
            assert_eq!(notice["kind"], "delivery.delivered", "{notice}");
            if notice["event_id"] == *event {
                let endpoint = text(&notice, "endpoint_id");
                assert!(told.insert(endpoint), "told twice: {notice}");
            }
        }
        assert_eq!(told, endpoints);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replay_whose_node_is_killed_is_finished_by_another() {
    const LETTERS: usize = 80;
    const PER_SECOND: u32 = 10;
    const BEFORE_THE_KILL: usize = 10;
    let mut fleet = Fleet::start().await;
    let is_well = Arc::new(AtomicBool::new(false));
    let sink = Sink::start({
        let is_well = Arc::clone(&is_well);
        move |_| {
            let well = is_well.load(Ordering::SeqCst);
            Reply::Now(if well { StatusCode::OK } else { StatusCode::BAD_REQUEST })
        }
    })
    .await;
    let spec = json!({
        "url": sink.url(), "policy": { "max_attempts": 1 }, "max_in_flight": 4, "ordering": "none",
    });
    let endpoint = fleet.node(0).create_endpoint(spec).await;
    fleet.settled().await;
    for number in 0..LETTERS {
        fleet.node(number % 3).send(number as u64).await;
    }
    let path = format!("/v1/endpoints/{endpoint}/stats");
    let buried = async {
        while fleet.node(0).get(&path).await["deliveries"]["dead"] != LETTERS {
            tokio::time::sleep(LOOK).await;
        }
    };
    within("dead letters", buried).await;
    is_well.store(true, Ordering::SeqCst);

    let body = json!({ "filter": {}, "rate_per_second": PER_SECOND }).to_string();
    let answer = fleet.node(0).call(Method::POST, "/v1/dead-letters/replay", body).await;
    assert_eq!(answer.status, StatusCode::ACCEPTED, "{}", answer.body);
    let job = text(&answer.body, "job");
    sink.until("the first of them", |seen| seen.delivered.len() >= BEFORE_THE_KILL).await;
    let census = fleet.census(0).await.expect("it answers");
    let runner = runner_of(&job, &census);
    fleet.kill(runner);
    let replayed = sink.delivered().len();
    println!("node {runner} was killed with {replayed} replayed");
    assert!(replayed < LETTERS, "it had finished");

    sink.until("all of them", |seen| seen.delivered.len() == LETTERS).await;
    let from = fleet.other_than(runner);
    let path = format!("/v1/jobs/{job}");
    let finished = async {
        loop {
            let job = fleet.node(from).get(&path).await;
            if job["state"] == "finished" {
                return job;
            }
            tokio::time::sleep(LOOK).await;
        }
    };
    let job = within("the end of the job", finished).await;
    let counted = |field: &str| job[field].as_u64().unwrap_or_else(|| panic!("{job}"));
    assert_eq!(counted("matched"), LETTERS as u64, "{job}");
    // How far it had come was noted once a second: what was replayed since then is not counted again.
    let seen = counted("replayed") + counted("skipped");
    let uncounted = (LETTERS as u64).checked_sub(seen);
    assert!(uncounted.is_some_and(|few| few <= 2 * u64::from(PER_SECOND)), "{job}");
    fleet.all_delivered(LETTERS, LETTERS).await;
    // Each died once and was delivered once; only what was in flight at the kill came again.
    let again = sink.arrivals().len() - 2 * LETTERS;
    assert!(again <= 4, "{again} were sent once too often");
}

/// The node that runs a job.
fn runner_of(job: &str, census: &Census) -> usize {
    let id: JobId = job.parse().expect("the id of a job");
    let Lane(lane) = Lane::of(EndpointId::from_i64(id.as_i64()), census.lanes);
    let seat = census.nodes.iter().find(|seat| seat.live && seat.lanes.contains(&lane));
    let name = &seat.expect("somebody has the lane").name;
    NAMES.iter().position(|known| known == name).expect("one of ours")
}

/// Somebody who follows `/v1/stream`.
struct Stream {
    body: Incoming,
    text: String,
}

impl Stream {
    async fn follow(node: &Gateway) -> Self {
        let stream = TcpStream::connect(node.address).await.expect("it listens");
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.expect("a connection");
        tokio::spawn(async move { drop(connection.await) });
        let request = Request::builder()
            .uri("/v1/stream")
            .header(HOST, node.address.to_string())
            .header(AUTHORIZATION, format!("Bearer {KEY}"))
            .body(Empty::<Bytes>::new())
            .expect("a valid request");
        let answer = within("an answer", sender.send_request(request)).await.expect("an answer");
        assert_eq!(answer.status(), StatusCode::OK);
        Self { body: answer.into_body(), text: String::new() }
    }

    /// The next notice; none when the stream has ended.
    async fn next(&mut self) -> Option<Value> {
        loop {
            while let Some(end) = self.text.find("\n\n") {
                let frame: String = self.text.drain(..end + 2).collect();
                let data = frame.lines().find_map(|line| line.strip_prefix("data: "));
                if let Some(data) = data {
                    return Some(serde_json::from_str(data).expect("JSON"));
                }
            }
            let frame = self.body.frame().await?.expect("the connection stays");
            if let Ok(bytes) = frame.into_data() {
                self.text.push_str(std::str::from_utf8(&bytes).expect("text"));
            }
        }
    }

    /// Adds the endpoints of all notices that come without being waited for long.
    async fn take_what_is_there(&mut self, endpoints: &mut BTreeSet<String>) {
        while let Ok(notice) = tokio::time::timeout(LOOK, self.next()).await {
            endpoints.insert(text(&notice.expect("the stream goes on"), "endpoint_id"));
        }
    }
}
