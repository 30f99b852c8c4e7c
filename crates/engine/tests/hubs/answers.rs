//! What is given to a hub, and what its answers make of a delivery.

use std::collections::BTreeMap;

use bytes::Bytes;
use postrider_core::endpoint::{Destination, EndpointState, Format, Spec};
use postrider_core::hub::Met;
use postrider_core::verification::{Inbound, Scheme, Verifier};
use postrider_core::{Class, Reason, State};
use postrider_engine::notices::NoticeKind;
use postrider_engine::{Private, Submission, WaitReason};
use serde_json::{Value, json};

use crate::gateway::{ACTING, Gateway, START, TENANT, delivery_of, event, policy, seconds};
use crate::rig::sink::Sink;
use crate::{ROOMY, behind, status};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

fn said(status: u16, headers: &[(&str, &str)], body: &str) -> Met {
    let headers = headers
        .iter()
        .map(|(name, value)| ((*name).to_owned(), Bytes::copy_from_slice(value.as_bytes())))
        .collect();
    Met::Status { status, headers, body: Bytes::copy_from_slice(body.as_bytes()), truncated: false }
}

struct Case {
    policy: Value,
    met: Met,
    state: State,
    class: Option<Class>,
    error: Option<&'static str>,
}

#[tokio::test]
async fn an_answer_means_what_it_would_mean_of_a_url() {
    let case = |policy: &str, met, state, class, error| Case {
        policy: json!(policy),
        met,
        state,
        class,
        error,
    };
    let (failed, retrying) = (State::Failed, State::Retrying);
    let (last, again) = (Some(Class::Final), Some(Class::Retryable));
    let cases = [
        case("edge", status(200), State::Delivered, None, None),
        case("edge", status(299), State::Delivered, None, None),
        case(
            "edge",
            said(404, &[], "no such\x07 thing"),
            failed,
            last,
            Some("HTTP 404 Not Found: no such  thing"),
        ),
        case("edge", status(400), failed, last, Some("HTTP 400 Bad Request")),
        case("edge", status(503), retrying, again, Some("HTTP 503 Service Unavailable")),
        case("standard", status(404), retrying, again, Some("HTTP 404 Not Found")),
        case("router", status(302), retrying, again, Some("HTTP 302 Found")),
        case(
            "edge",
            Met::Network { error: "connection\nrefused".into() },
            retrying,
            again,
            Some("connection refused"),
        ),
        case(
            "edge",
            Met::Timeout { error: "no answer within 15s".into() },
            retrying,
            again,
            Some("no answer within 15s"),
        ),
    ];
    let gateway = Gateway::start().await;
    let hub = gateway.hub().await;
    let mut agent = gateway.connect(hub, ROOMY).await;
    for (number, case) in cases.into_iter().enumerate() {
        let mut notices = gateway.engine.notices().subscribe();
        let kind = format!("case.{number}");
        let event_types = vec![postrider_core::pattern::Pattern::Exact(kind.clone())];
        let spec = Spec { policy: policy(case.policy), event_types, ..behind(hub) };
        gateway.endpoint(spec).await;
        let delivery = delivery_of(gateway.send(&kind).await);
        let deliver = agent.next().await;
        agent.answer(deliver.seq, case.met).expect("asked");
        notices.recv().await.expect("told");
        let record = gateway.record(delivery).await;
        assert_eq!((record.state, record.class), (case.state, case.class), "{number}");
        assert_eq!(record.last_error.as_deref(), case.error, "{number}");
        assert_eq!((record.attempts, record.tries), (1, 1), "{number}");
        let reason = (case.state == State::Failed).then_some(Reason::Rejected);
        assert_eq!(record.reason, reason, "{number}");
    }
}

#[tokio::test]
async fn what_the_receiver_said_is_kept() {
    let mut gateway = Gateway::start().await;
    let hub = gateway.hub().await;
    gateway.endpoint(behind(hub)).await;
    let mut agent = gateway.connect(hub, ROOMY).await;
    for (code, kind) in [(200, NoticeKind::Delivered), (500, NoticeKind::RetryScheduled)] {
        gateway.send("n.1").await;
        let deliver = agent.next().await;
        let headers = [("x-request-id", "r-7"), ("date", "today"), ("x-a", "\u{1b}[31m")];
        let met = match said(code, &headers, "a long story") {
            Met::Status { status, headers, body, .. } => {
                Met::Status { status, headers, body, truncated: true }
            }
            other @ (Met::Network { .. } | Met::Timeout { .. }) => other,
        };
        agent.answer(deliver.seq, met).expect("asked");
        gateway.notice(kind).await;
        let attempts = gateway.attempts(deliver.delivery).await;
        assert_eq!((attempts.len(), attempts[0].status), (1, Some(code)));
        let response = attempts[0].response.as_ref().expect("kept");
        assert_eq!((&response.body[..], response.truncated), (&b"a long story"[..], true));
        let kept: Vec<(&str, &str)> =
            response.headers.iter().map(|(name, value)| (&**name, &**value)).collect();
        assert_eq!(kept, [("x-request-id", "r-7"), ("x-a", " [31m")]);
    }
}

#[tokio::test]
async fn a_receiver_that_asks_for_a_pause_gets_it_through_its_hub() {
    let mut gateway = Gateway::start().await;
    let hub = gateway.hub().await;
    gateway.endpoint(Spec { policy: policy(json!("standard")), ..behind(hub) }).await;
    let mut agent = gateway.connect(hub, ROOMY).await;
    gateway.send("n.1").await;
    let deliver = agent.next().await;
    agent.answer(deliver.seq, said(429, &[("retry-after", "60")], "")).expect("asked");
    gateway.notice(NoticeKind::RetryScheduled).await;
    let record = gateway.record(deliver.delivery).await;
    assert_eq!((record.attempts, record.deferrals), (0, 1));
    assert!(!gateway.attempts(deliver.delivery).await[0].counted);
    let other = delivery_of(gateway.send("n.2").await);
    assert!(agent.is_quiet().await, "the whole endpoint is held");
    assert_eq!(gateway.waits_on(other).await, Some(WaitReason::RetryAfter));
    let due = record.due.expect("it waits");
    assert!(due >= START.plus(seconds(60)));
    gateway.clock.set(due);
    let (first, second) = (agent.next().await, agent.next().await);
    let mut came = [(first.kind, first.attempt), (second.kind, second.attempt)];
    came.sort();
    assert_eq!(came, [("n.1".into(), 2), ("n.2".into(), 1)]);
}

#[tokio::test]
async fn a_receiver_that_is_gone_disables_its_endpoint_through_its_hub() {
    let mut gateway = Gateway::start().await;
    let hub = gateway.hub().await;
    let endpoint =
        gateway.endpoint(Spec { policy: policy(json!("standard")), ..behind(hub) }).await;
    let mut agent = gateway.connect(hub, ROOMY).await;
    gateway.send("n.1").await;
    let deliver = agent.next().await;
    agent.answer(deliver.seq, status(410)).expect("asked");
    gateway.notice(NoticeKind::EndpointDisabled).await;
    let state = gateway.engine.endpoint(TENANT, endpoint).expect("known").state;
    assert_eq!(state, EndpointState::Disabled);
    gateway.send("n.2").await;
    assert!(agent.is_quiet().await);
}

/// Names and values, in order of names.
type Headers = Vec<(String, Vec<u8>)>;

#[tokio::test]
async fn a_hub_is_given_what_a_url_would_receive() {
    for format in [None, Some(Format::Slack)] {
        let mut gateway = Gateway::start().await;
        let hub = gateway.hub().await;
        let sink = Sink::answering(200).await;
        let own = BTreeMap::from([("x-own".to_owned(), "ours".to_owned())]);
        let through = Spec { name: Some("Till".into()), headers: own, format, ..behind(hub) };
        let direct = Spec { destination: Destination::Url(sink.url()), ..through.clone() };
        let mut endpoints = Vec::new();
        for spec in [through, direct] {
            let private = Private { secret: Some(SECRET.into()), tls: None };
            let made = gateway.engine.create_endpoint(ACTING, spec, private).await;
            endpoints.push(made.expect("an endpoint").id);
        }
        let mut agent = gateway.connect(hub, ROOMY).await;
        let submitted = Submission {
            content_type: "application/json; charset=utf-8".into(),
            body: Bytes::from_static(b"{\"text\": \"any bytes\", \"x\": \"\xff\"}"),
            headers: vec![
                ("x-many".into(), Bytes::from_static(b"one")),
                ("x-many".into(), Bytes::from_static(b"tw\xf6")),
                ("webhook-id".into(), Bytes::from_static(b"somebody else's")),
            ],
            ..event("order.created")
        };
        let id = gateway.send_all([submitted.clone()]).await[0];
        let deliver = agent.next().await;
        let received = sink.nth(1).await;
        assert_eq!(deliver.body, received.body);
        let by_the_client = ["host", "content-length", "postrider-delivery-id"];
        let sorted = |mut headers: Headers| {
            headers.retain(|(name, _)| !by_the_client.contains(&&**name));
            headers.sort_by(|one, other| one.0.cmp(&other.0));
            headers
        };
        let given = deliver.headers.iter().map(|(name, value)| (name.clone(), value.to_vec()));
        let posted = received
            .headers
            .iter()
            .map(|(name, value)| (name.to_string(), value.as_bytes().to_vec()));
        assert_eq!(sorted(given.collect()), sorted(posted.collect()));

        assert_eq!((deliver.event, deliver.delivery), (id, delivery_of(id)));
        assert_eq!(
            (deliver.endpoint, deliver.endpoint_name.as_deref()),
            (endpoints[0], Some("Till"))
        );
        assert_eq!((deliver.kind.as_str(), deliver.attempt), ("order.created", 1));
        assert_eq!(deliver.timeout, seconds(15));
        let header = |name: &str| {
            let found = deliver.headers.iter().find(|(given, _)| given == name);
            let found = found.unwrap_or_else(|| panic!("no {name}"));
            String::from_utf8(found.1.to_vec()).expect("text")
        };
        assert_eq!(header("webhook-id"), id.to_string());
        assert_eq!(header("postrider-delivery-id"), deliver.delivery.to_string());
        if deliver.body == submitted.body {
            assert_eq!(header("content-type"), submitted.content_type);
            assert_eq!(header("x-many"), "one");
        }
        let verifier =
            Verifier::new(&Scheme::Standard { tolerance: seconds(60) }, &[SECRET.into()]);
        let headers: Vec<(&str, &[u8])> =
            deliver.headers.iter().map(|(name, value)| (&**name, &**value)).collect();
        let signed = Inbound { method: "POST", url: "", headers: &headers, body: &deliver.body };
        verifier.expect("a secret").verify(&signed, START).expect("genuine");
        agent.done(&deliver);
        gateway.delivered(2).await;
    }
}

#[tokio::test]
async fn every_try_of_a_delivery_has_the_same_id_and_body_and_a_number_of_its_own() {
    let mut gateway = Gateway::start().await;
    let hub = gateway.hub().await;
    gateway.endpoint(behind(hub)).await;
    let mut agent = gateway.connect(hub, ROOMY).await;
    gateway.send("n.1").await;
    let first = agent.next().await;
    agent.answer(first.seq, status(500)).expect("asked");
    gateway.notice(NoticeKind::RetryScheduled).await;
    gateway.clock.advance(seconds(10));
    let second = agent.next().await;
    assert_eq!((second.seq, second.attempt), (first.seq + 1, 2));
    assert_eq!((second.delivery, &second.body), (first.delivery, &first.body));
    let changed: Vec<&str> = first
        .headers
        .iter()
        .filter(|header| !second.headers.contains(header))
        .map(|(name, _)| name.as_str())
        .collect();
    let mut changed = changed;
    changed.sort_unstable();
    assert_eq!(changed, ["postrider-attempt", "webhook-signature", "webhook-timestamp"]);
}
