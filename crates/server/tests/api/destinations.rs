//! Where endpoints may point: not back here, and with certificates that hold.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use postrider_engine::notices::NoticeKind;
use serde_json::{Value, json};

use crate::gateway::{Call, Gateway, await_notice};
use crate::sources::make;

/// The events of the gateway, newest first.
async fn events(gateway: &Gateway) -> Vec<Value> {
    gateway.get("/v1/events").await.json()["data"].as_array().expect("a list").clone()
}

#[tokio::test]
async fn an_endpoint_that_points_back_here_ends_after_one_hop() {
    let gateway = Gateway::start().await;
    let source = make(&gateway, json!({"name": "self", "verify": {"scheme": "none"}})).await;
    let path = source["url"].as_str().expect("a url");
    let url = format!("http://{}{path}", gateway.address);
    gateway
        .endpoint(json!({"url": url, "event_types": ["*"], "policy": {"max_attempts": 1}}))
        .await;
    let mut notices = gateway.engine.notices().subscribe();
    let event = gateway.event(json!({"type": "round.trip", "payload": 1})).await;
    let dead = await_notice(&mut notices, NoticeKind::Dead).await;
    let error = dead.delivery.as_ref().and_then(|delivery| delivery.last_error.clone());
    let error = error.expect("an error");
    assert!(error.contains("508") && error.contains("points back here"), "{error}");
    let events = events(&gateway).await;
    assert_eq!(events.len(), 1, "nothing came in again: {events:?}");
    assert_eq!(events[0]["id"], event);
}

#[tokio::test]
async fn what_another_gateway_sent_is_taken_in_but_not_what_went_round() {
    let gateway = Gateway::start().await;
    let post = |via: &str| {
        let body = json!({"type": "a.b", "payload": 1});
        gateway.call(Call::new(Method::POST, "/v1/events").json(&body).header("postrider-via", via))
    };
    assert_eq!(post("0123456789abcdef0123456789abcdef").await.status, 202);
    let far = ["x"; postrider_engine::via::MAX_HOPS].join(", ");
    post(&far).await.problem(508);
    let shown = events(&gateway).await;
    assert_eq!(shown.len(), 1);
    let id = shown[0]["id"].as_str().expect("an id");
    let headers = gateway.get(&format!("/v1/events/{id}")).await.json()["headers"].clone();
    assert_eq!(
        headers,
        json!([{"name": "postrider-via", "value": "0123456789abcdef0123456789abcdef"}])
    );
}

#[tokio::test]
async fn a_program_that_is_not_allowed_is_refused_by_name() {
    let gateway = Gateway::start().await;
    let body = json!({"command": ["/bin/true"]});
    let refused = gateway.post("/v1/endpoints", body).await;
    assert_eq!(refused.problem(422), ["command"]);
    assert!(String::from_utf8_lossy(&refused.body).contains("--allow-command"), "{refused:?}");
}

fn pem(label: &str, der: &[u8]) -> String {
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", STANDARD.encode(der))
}

#[tokio::test]
async fn certificates_are_read_when_they_are_set_and_the_key_is_never_shown() {
    let gateway = Gateway::start().await;
    let identity = rcgen::generate_simple_self_signed(["client.test".to_owned()]).expect("made");
    let cert = pem("CERTIFICATE", identity.cert.der());
    let key = pem("PRIVATE KEY", &identity.signing_key.serialize_der());
    let other = rcgen::KeyPair::generate().expect("a key").serialize_der();
    let other = pem("PRIVATE KEY", &other);
    for (tls, field) in [
        (json!({"client_cert": cert}), "tls.client_key"),
        (json!({"client_key": key}), "tls.client_cert"),
        (json!({"client_cert": "-----BEGIN", "client_key": key}), "tls.client_cert"),
        (json!({"client_cert": cert, "client_key": other}), "tls.client_key"),
        (json!({"ca": "no certificate"}), "tls.ca"),
    ] {
        let body = json!({"url": "https://example.com/", "tls": tls});
        let reply = gateway.post("/v1/endpoints", body).await;
        assert_eq!(reply.problem(422), [field], "{reply:?}");
        assert!(!String::from_utf8_lossy(&reply.body).contains("PRIVATE"), "{reply:?}");
    }
    let tls = json!({"client_cert": cert, "client_key": key, "ca": cert});
    let id = gateway.endpoint(json!({"url": "https://example.com/", "tls": tls})).await;
    let path = format!("/v1/endpoints/{id}");
    let shown = gateway.get(&path).await;
    assert!(!String::from_utf8_lossy(&shown.body).contains("PRIVATE"), "{shown:?}");
    let tls = json!({"client_cert": cert, "has_client_key": true, "ca": cert});
    assert_eq!(shown.json()["tls"], tls);
    let renamed = gateway.call(Call::new(Method::PATCH, &path).json(&json!({"name": "n"}))).await;
    assert_eq!(renamed.json()["tls"], tls, "what is not said stays");
    let without = gateway.call(Call::new(Method::PATCH, &path).json(&json!({"tls": null}))).await;
    assert_eq!(without.json().get("tls"), None);
}
