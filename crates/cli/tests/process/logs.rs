//! What the log says of attempts, for people and for programs.

use http::StatusCode;
use serde_json::{Value, json};

use crate::gateway::{Launch, text};
use crate::sink::{Reply, Sink};
use crate::within;

/// Of one kind and endpoint so many lines are said before the rest is counted.
const FIRST: usize = 5;

fn policy(delays: &[&str], attempts: u32) -> Value {
    json!({ "schedule": { "list": delays, "jitter": 0.0 }, "max_attempts": attempts })
}

#[tokio::test]
async fn attempts_are_told_apart_and_named_in_json() {
    let data = tempfile::tempdir().expect("a temporary directory");
    let launch = Launch::serve(data.path()).and(["--log-format", "json", "--log", "debug"]);
    let gateway = launch.start().await;
    let sink = Sink::start(|arrival| match (arrival.number, arrival.attempt) {
        (1, _) | (2, 2) => Reply::Now(StatusCode::OK),
        (2 | 3, _) => Reply::Now(StatusCode::BAD_GATEWAY),
        _ => Reply::Now(StatusCode::GONE),
    })
    .await;
    let spec = json!({ "url": sink.url(), "policy": policy(&["100ms"], 2) });
    let endpoint = gateway.create_endpoint(spec).await;
    let mut events = Vec::new();
    for number in 1..=3 {
        events.push(gateway.send(number).await);
    }
    let ended = |line: &str| line.contains("gave up") && line.contains(&events[2]);
    within("the last attempt", gateway.process.stderr.line(ended)).await.expect("it is said");
    let delivery = text(&gateway.delivery_of(&events[2]).await, "id");
    events.push(gateway.send(4).await);
    let refused = |line: &str| line.contains("refused for good");
    within("the refusal", gateway.process.stderr.line(refused)).await.expect("it is said");
    let stopped = gateway.stop().await;

    let lines: Vec<Value> = stopped
        .stderr
        .lines()
        .map(|line| serde_json::from_str(line).expect("a line of the log is JSON"))
        .collect();
    let of = |event: &str| -> Vec<&Value> {
        lines.iter().filter(|line| line["event"] == event && !line["attempt"].is_null()).collect()
    };
    for line in events.iter().flat_map(|event| of(event)) {
        assert_eq!(line["endpoint"], json!(endpoint), "{line}");
        assert!(line["delivery"].as_str().is_some_and(|id| id.starts_with("dlv_")), "{line}");
    }
    let told = |event: &str| -> Vec<(String, u64, String)> {
        let lines = of(event).into_iter();
        lines
            .map(|line| {
                let number = line["attempt"].as_u64().expect("a number");
                (text(line, "level"), number, text(line, "message"))
            })
            .collect()
    };
    let one = |level: &str, number, message: &str| (level.to_owned(), number, message.to_owned());
    let failed = one("INFO", 1, "first attempt failed, next one scheduled");
    assert_eq!(told(&events[0]), [one("DEBUG", 1, "first attempt succeeded")]);
    assert_eq!(told(&events[1]), [failed.clone(), one("INFO", 2, "retry succeeded")]);
    assert_eq!(told(&events[2]), [failed, one("WARN", 2, "retry failed, gave up")]);
    let refused = one("WARN", 1, "first attempt failed, refused for good");
    assert_eq!(told(&events[3]), [refused]);

    let [first, last] = of(&events[2])[..] else { panic!("two lines") };
    assert_eq!((&first["class"], &first["status"]), (&json!("retryable"), &json!(502)), "{first}");
    assert!(first["delay"].as_str().is_some_and(|delay| delay.ends_with("ms")), "{first}");
    assert_eq!((&last["reason"], &last["delivery"]), (&json!("exhausted"), &json!(delivery)));
    let request = lines.iter().find(|line| line["message"] == "request answered");
    let request = request.expect("requests are said at debug");
    assert!(request["route"].is_string() && request["status"].is_u64(), "{request}");
}

#[tokio::test]
async fn a_herd_of_failures_is_said_in_a_few_lines_and_a_number() {
    let herd = 200;
    let data = tempfile::tempdir().expect("a temporary directory");
    let gateway = Launch::serve(data.path()).start().await;
    let [bad, good] = [StatusCode::INTERNAL_SERVER_ERROR, StatusCode::OK]
        .map(|status| Sink::start(move |_| Reply::Now(status)));
    let (bad, good) = (bad.await, good.await);
    let spec = json!({ "url": bad.url(), "policy": policy(&["1h"], 1) });
    let endpoint = gateway.create_endpoint(spec).await;
    gateway.create_endpoint(json!({ "url": good.url() })).await;
    for number in 0..herd {
        gateway.send(number).await;
    }
    for sink in [&bad, &good] {
        sink.until("all attempts", |seen| seen.arrivals.len() as u64 == herd).await;
    }
    let log = gateway.stop().await.stderr;
    let lines = |word: &str| log.lines().filter(|line| line.contains(word)).collect::<Vec<_>>();
    let (said, rests) = (lines("dlv_"), lines("more like it"));
    let mut more = 0;
    for rest in &rests {
        assert!(rest.contains("WARN") && rest.contains(&endpoint), "{rest}");
        assert!(rest.contains("gave up"), "{rest}");
        let number = rest.split("and ").nth(1).and_then(|rest| rest.split(' ').next());
        more += number.and_then(|number| number.parse::<u64>().ok()).expect("a number");
    }
    // All are accounted for, whatever number of spans it took on a slow machine.
    assert_eq!(said.len() as u64 + more, herd, "{log}");
    assert!(!rests.is_empty() && said.len() <= FIRST * (rests.len() + 1), "{log}");
    assert_eq!(lines("succeeded"), Vec::<&str>::new(), "successes are not said at info");
}
