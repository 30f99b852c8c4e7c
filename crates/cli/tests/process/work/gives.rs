//! What a program is given.

use std::collections::BTreeMap;

use serde_json::json;

use super::{Shop, line_about};
use crate::gateway::{KEY, text};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_body_is_on_its_input_to_the_byte() {
    let shop = Shop::strict().await;
    let source = json!({ "name": "in", "verify": { "scheme": "none" } });
    let source = shop.gateway.call(http::Method::POST, "/v1/sources", source.to_string()).await;
    let inbound = text(&source.body, "url");
    let worker = shop.script(&[], r#"cat > "$0/$POSTRIDER_EVENT_ID""#);

    let all: Vec<u8> = (0..=255).collect();
    let long = all.repeat(2_000);
    let raw = "/v1/events?type=job";
    for (path, content_type, body) in [
        (raw, "application/octet-stream", &all[..]),
        (raw, "application/octet-stream", &long),
        (raw, "text/plain", b""),
        (raw, "text/plain", b"\0\xff\0"),
        (&inbound, "application/json", b" {\"b\" : 1.0e2,\"b\":[ ]}\r\n"),
        (&inbound, "application/json", b"{\"b\" : 1.0e2,\"a\":\"\\u0041\xc3\xa9\"}"),
        (&inbound, "application/json", b"{\"cut o"),
        (&inbound, "application/json", b"null"),
    ] {
        let event = shop.send_bytes(path, content_type, body);
        let delivery = text(&shop.gateway.delivery_of(&event).await, "id");
        line_about(&worker, &delivery).await;
        assert_eq!(shop.delivery(&delivery).await["state"], "delivered");
        let got = std::fs::read(shop.path().join(&event)).expect("it was written");
        assert!(got == body, "{content_type}: {} of {} bytes", got.len(), body.len());
    }
    // A program that does not read what is too much for a pipe has still done its work.
    worker.signal("TERM");
    worker.finished().await.expect_code(0);
    let worker = shop.script(&[], "exit 0");
    let event = shop.send_bytes(raw, "application/octet-stream", &long);
    let delivery = text(&shop.gateway.delivery_of(&event).await, "id");
    let line = line_about(&worker, &delivery).await;
    assert!(line.ends_with(": done"), "{line}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_known_of_the_event_is_in_its_environment_and_no_key_is() {
    let policy = json!({ "schedule": { "list": ["1s"] }, "max_attempts": 2 });
    let shop = Shop::with(policy).await;
    let script = r#"env > "$0/$POSTRIDER_EVENT_TYPE.$POSTRIDER_ATTEMPT"
        [ "$POSTRIDER_EVENT_TYPE" = plain ] || [ "$POSTRIDER_ATTEMPT" = 2 ]"#;
    let worker = shop
        .work()
        .variable("ITS_OWN", "kept")
        .variable("POSTRIDER_TENANT", "default")
        .variable("POSTRIDER_ORDERING_KEY", "of somebody else")
        .and(["--", "sh", "-c", script])
        .and([shop.path()])
        .spawn();
    let full = json!({
        "type": "order.created",
        "payload": 1,
        "idempotency_key": "key-1",
        "ordering_key": "customer-7",
        "metadata": { "session_id": "s" },
    });
    let full = shop.send(full).await;
    let plain = shop.send(json!({ "type": "plain", "payload": 1 })).await;
    for delivery in [&full, &plain] {
        let done = |line: &str| line.starts_with(delivery.as_str()) && line.ends_with(": done");
        assert!(worker.stderr.line(done).await.is_some(), "{}", worker.stderr.text());
    }

    for (id, kind, attempt, keys) in [
        (&full, "order.created", "1", Some(("key-1", "customer-7"))),
        (&full, "order.created", "2", Some(("key-1", "customer-7"))),
        (&plain, "plain", "1", None),
    ] {
        let delivery = shop.delivery(id).await;
        let event_id = text(&delivery, "event_id");
        let event = shop.gateway.get(&format!("/v1/events/{event_id}")).await;
        let received_at = text(&event, "received_at");
        let file = std::fs::read_to_string(shop.path().join(format!("{kind}.{attempt}")));
        let file = file.expect("it was written");
        assert!(!file.contains(KEY) && file.contains("ITS_OWN=kept"), "{file}");
        let given: BTreeMap<&str, &str> = file
            .lines()
            .filter_map(|line| line.split_once('='))
            .filter(|(name, _)| name.starts_with("POSTRIDER_"))
            .collect();
        let metadata = if keys.is_some() { r#"{"session_id":"s"}"# } else { "{}" };
        let mut expected = BTreeMap::from([
            ("POSTRIDER_ATTEMPT", attempt),
            ("POSTRIDER_CONTENT_TYPE", "application/json"),
            ("POSTRIDER_DELIVERY_ID", id.as_str()),
            ("POSTRIDER_ENDPOINT_ID", shop.endpoint.as_str()),
            ("POSTRIDER_EVENT_ID", event_id.as_str()),
            ("POSTRIDER_EVENT_TYPE", kind),
            ("POSTRIDER_METADATA", metadata),
            ("POSTRIDER_RECEIVED_AT", received_at.as_str()),
        ]);
        if let Some((idempotency_key, ordering_key)) = keys {
            expected.insert("POSTRIDER_IDEMPOTENCY_KEY", idempotency_key);
            expected.insert("POSTRIDER_ORDERING_KEY", ordering_key);
        }
        assert_eq!(given, expected);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_types_that_were_asked_for_are_taken() {
    let shop = Shop::strict().await;
    let worker = shop.script(&["--event-types", "order.*,refund.made"], "exit 0");
    let other = shop.send(json!({ "type": "invoice.sent", "payload": 1 })).await;
    for kind in ["order.created", "refund.made"] {
        let id = shop.send(json!({ "type": kind, "payload": 1 })).await;
        let line = line_about(&worker, &id).await;
        assert!(line.contains(kind), "{line}");
    }
    // It is older than both, and has been passed over.
    assert_eq!(shop.delivery(&other).await["state"], "pending");
}
