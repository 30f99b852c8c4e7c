//! Single requests: what is sent, what comes back, and what can go wrong between.

use std::sync::Arc;
use std::time::Duration;

use postrider_client::pull::LeaseRequest;
use postrider_client::{Error, Gateway, Method};
use postrider_core::pattern::Pattern;
use rustls::ServerConfig;
use rustls::pki_types::PrivatePkcs8KeyDer;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::fake::{ENDPOINT, Fake, Fault, KEY};
use crate::within;

#[tokio::test]
async fn a_request_carries_the_key_and_json_over_one_connection() {
    let fake = Fake::start().await;
    let gateway = fake.gateway();
    let body = json!({ "name": "n" });
    for _ in 0..5 {
        let answer = gateway.request(Method::POST, "/v1/hubs?a=b", Some(&body)).await;
        assert_eq!(answer.expect("an answer"), json!({ "path": "/v1/hubs?a=b", "body": body }));
    }
    let answer = gateway.clone().request(Method::GET, "/v1/hubs", None).await;
    assert_eq!(answer.expect("an answer")["body"], Value::Null);
    let tenant = gateway.in_tenant("acme").expect("a name");
    tenant.request(Method::DELETE, "/v1/hubs", None).await.expect("an answer");

    let seen = fake.look();
    assert_eq!(seen.connections, 1);
    assert_eq!(seen.calls[0].headers["content-type"], "application/json");
    assert!(seen.calls[0].headers.get("postrider-tenant").is_none());
    assert_eq!(seen.calls[5].method, "GET");
    assert!(seen.calls[5].headers.get("content-type").is_none());
    assert_eq!(seen.calls[6].headers["postrider-tenant"], "acme");
    for call in &seen.calls {
        assert_eq!(call.headers["authorization"], format!("Bearer {KEY}"));
    }
}

#[tokio::test]
async fn an_empty_answer_is_null() {
    let fake = Fake::with(|_| Some(Fault::Answer(204, &[], String::new()))).await;
    let answer = fake.gateway().request(Method::DELETE, "/v1/hubs/hub_1", None).await;
    assert_eq!(answer, Ok(Value::Null));
}

#[tokio::test]
async fn failures_are_told_apart_by_what_can_be_done_about_them() {
    let problem = r#"{"type":"urn:postrider:problem:conflict","title":"Conflict","status":409,"detail":"the lease has lapsed","errors":[]}"#;
    let refused = |status, kind: &str, detail: &str, wait: Option<u64>| Error::Refused {
        status,
        kind: kind.into(),
        detail: detail.into(),
        retry_after: wait.map(Duration::from_secs),
    };
    let location: &[(&str, &str)] = &[("location", "https://elsewhere.example/")];
    let redirect = "it redirects to https://elsewhere.example/, and redirects are not followed";
    let cases: [(Fault, Option<Error>, &str); 6] = [
        (
            Fault::Answer(409, &[], problem.into()),
            Some(refused(409, "conflict", "the lease has lapsed", None)),
            "says 409: the lease has lapsed",
        ),
        (
            Fault::Answer(503, &[("retry-after", "7")], "<html>".into()),
            Some(refused(503, "", "Service Unavailable", Some(7))),
            "says 503",
        ),
        (
            Fault::Answer(307, location, String::new()),
            Some(refused(307, "", redirect, None)),
            "307",
        ),
        (Fault::Answer(200, &[], "<html>".into()), None, "is not a gateway"),
        (Fault::Break, None, "does not answer"),
        (Fault::DoAndBreak, None, "does not answer"),
    ];
    for (fault, expected, says) in cases {
        let given = fault.clone();
        let fake = Fake::with(move |_| Some(given.clone())).await;
        let error = fake.gateway().request(Method::GET, "/v1/stats", None).await;
        let error = error.expect_err("a failure");
        assert!(error.to_string().contains(says), "{fault:?}: {error}");
        assert!(!format!("{error} {error:?}").contains(KEY), "{error:?}");
        if let Some(expected) = expected {
            assert_eq!(error, expected);
        }
        assert_eq!(fake.look().calls.len(), 1, "{fault:?}: nothing is asked twice");
    }
}

#[tokio::test]
async fn a_gateway_that_is_not_there_can_be_named() {
    // Bound and let go: nobody listens there.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("it is bound"));
    drop(listener);
    let gateway = Gateway::new(&url, KEY).expect("valid");
    let error = gateway.request(Method::GET, "/v1/stats", None).await.expect_err("nobody listens");
    assert!(error.is_temporary());
    let text = error.to_string();
    assert!(text.contains(&url) && text.to_lowercase().contains("refused"), "{text}");
}

#[tokio::test]
async fn a_certificate_that_nobody_vouches_for_is_not_believed() {
    let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("made");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("known versions")
        .with_no_client_auth()
        .with_single_cert(
            vec![certified.cert.der().clone()],
            PrivatePkcs8KeyDer::from(certified.signing_key.serialize_der()).into(),
        )
        .expect("a pair");
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = listener.local_addr().expect("it is bound").port();
    let serving = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.expect("a client");
        acceptor.accept(stream).await.map(|_| ()).expect_err("the client goes away").to_string()
    });
    let gateway = Gateway::new(&format!("https://localhost:{port}"), KEY).expect("valid");
    let error = gateway.request(Method::GET, "/v1/stats", None).await.expect_err("refused");
    assert!(error.to_string().contains("certificate"), "{error}");
    assert!(error.is_temporary());
    let seen = within("the end of the handshake", serving).await.expect("no panic");
    assert!(seen.contains("alert"), "{seen}");
}

#[tokio::test]
async fn leases_that_were_not_asked_for_are_not_believed() {
    let fake = Fake::with(|call| match call.verb() {
        "lease" => None,
        _ => Some(Fault::Answer(200, &[], r#"{"results":[{"lease":"lse_9_9","ok":true}]}"#.into())),
    })
    .await;
    fake.put(1);
    let gateway = fake.gateway();
    let request = LeaseRequest {
        endpoint: ENDPOINT,
        max: 1,
        wait: Duration::ZERO,
        lease: Duration::from_secs(30),
        event_types: vec![Pattern::parse("order.*").expect("a pattern")],
    };
    let leases = gateway.lease(&request).await.expect("an answer");
    assert_eq!(leases[0].event.body, r#"{"number":1}"#);
    let tokens = [leases[0].token.clone()];
    let error = gateway.ack(&tokens, None).await.expect_err("another lease");
    assert!(error.to_string().contains("other leases"), "{error}");
    let seen = fake.look();
    assert_eq!(
        seen.calls[0].body,
        json!({ "max": 1, "wait": "0s", "lease": "30s", "event_types": ["order.*"] })
    );
    assert_eq!(seen.calls[1].body, json!({ "leases": [tokens[0]] }));
}
