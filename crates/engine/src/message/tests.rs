//! What people get to read, and what they are spared.

use postrider_core::{EventId, TenantId, Timestamp};
use serde_json::{Value, json};

use super::*;

fn event(kind: &str, body: &Value) -> Event {
    Event {
        id: EventId::from_i64(7),
        tenant: TenantId::DEFAULT,
        kind: kind.into(),
        content_type: "application/json".into(),
        body: body.to_string().into(),
        idempotency_key: None,
        ordering_key: None,
        metadata: None,
        received_at: Timestamp::MIN,
        deliver_at: None,
        source: None,
        verified: None,
        headers: Vec::new(),
        filter_errors: None,
        trace: None,
    }
}

fn sent(format: &Format, event: &Event) -> Value {
    serde_json::from_slice(&body(format, event)).expect("JSON")
}

fn slack(kind: &str, body: &Value) -> String {
    let sent = sent(&Format::Slack, &event(kind, body));
    assert_eq!(sent.as_object().map(serde_json::Map::len), Some(1));
    sent["text"].as_str().expect("text").to_owned()
}

fn telegram(kind: &str, body: &Value) -> String {
    let format = Format::Telegram { chat_id: "-100".into() };
    let sent = sent(&format, &event(kind, body));
    assert_eq!(sent["chat_id"], "-100");
    assert_eq!(sent.as_object().map(serde_json::Map::len), Some(2));
    sent["text"].as_str().expect("text").to_owned()
}

fn dead(name: &str, error: &str) -> Value {
    json!({
        "id": "1", "topic": "gateway:webhooks", "kind": "delivery.dead", "tenant": "default",
        "endpoint_id": "ep_1", "endpoint_name": name, "delivery_id": "dlv_1", "event_id": "evt_1",
        "correlation_id": null, "attempts": 10, "reason": "exhausted", "last_error": error,
    })
}

#[test]
fn a_dead_letter_says_what_died_where_and_why() {
    let body = dead("Billing", "HTTP 500 Internal Server Error");
    assert_eq!(
        slack("postrider.delivery.dead", &body),
        "Dead letter: delivery dlv_1 of event evt_1 to endpoint `Billing` ep_1, 10 attempts, \
         exhausted\n`HTTP 500 Internal Server Error`"
    );
    assert_eq!(
        telegram("postrider.delivery.dead", &body),
        "Dead letter: delivery dlv_1 of event evt_1 to endpoint Billing ep_1, 10 attempts, \
         exhausted\nHTTP 500 Internal Server Error"
    );
}

#[test]
fn every_event_has_words() {
    let disabled = json!({"kind": "endpoint.disabled", "endpoint_id": "ep_1", "detail": "gone"});
    let refused = json!({"kind": "source.signature_failed", "source_id": "src_1", "detail": "old"});
    let id = EventId::from_i64(7);
    let cases = [
        ("postrider.endpoint.disabled", disabled, "Endpoint disabled: endpoint ep_1\n`gone`"),
        ("postrider.source.signature_failed", refused, "Signature refused: source src_1\n`old`"),
        ("postrider.test", json!({"message": "A test."}), "`A test.`"),
        (
            "order.created",
            json!({"kind": "x", "message": "y"}),
            &format!("Event `order.created` {id}"),
        ),
        ("postrider.delivery.dead", json!([1]), &format!("Event `postrider.delivery.dead` {id}")),
        ("postrider.delivery.dead", json!({}), &format!("Event `postrider.delivery.dead` {id}")),
        ("postrider.new.kind", json!({"kind": "new.kind"}), "`new.kind`"),
    ];
    for (kind, body, expected) in cases {
        assert_eq!(slack(kind, &body), expected, "{kind}");
    }
    for kind in NoticeKind::ALL {
        let text = slack(&kind.event_type(), &json!({"kind": kind.as_str()}));
        assert_eq!(text, title(kind));
    }
}

#[test]
fn what_others_wrote_is_inert() {
    let hostile =
        "<!channel> <https://evil.example|pay> & `code` @here *b*\r\n\u{7}\u{202e}rev\u{200b}";
    for body in [dead(hostile, "x"), dead("x", hostile)] {
        let text = slack("postrider.delivery.dead", &body);
        assert!(!text.contains(['<', '>', '\r', '\u{7}', '\u{202e}']), "{text:?}");
        assert_eq!(text.matches('\n').count(), 1, "{text:?}");
        assert_eq!(text.matches('`').count(), 4, "only our own marks: {text:?}");
        assert!(text.contains("&lt;!channel&gt;") && text.contains("&amp;"), "{text:?}");
        assert!(text.contains("@\u{200b}here"), "{text:?}");
        let plain = telegram("postrider.delivery.dead", &body);
        assert!(!plain.contains(['\r', '\u{7}', '\u{202e}', '\u{200b}']), "{plain:?}");
        assert!(plain.contains("<!channel>"), "nothing has a meaning there: {plain:?}");
    }
    let link = slack("https://evil.example", &json!(null));
    assert!(link.starts_with("Event `https://evil.example` "), "{link}");
}

#[test]
fn a_text_is_bounded_whatever_it_is_made_of() {
    for part in ["a", "&", "@", "\u{1f4a3}", "`", "<"] {
        let long = part.repeat(20_000);
        let mut body = dead(&long, &long);
        for field in ["endpoint_id", "delivery_id", "event_id", "reason", "source_id"] {
            body[field] = long.clone().into();
        }
        body["attempts"] = u32::MAX.into();
        for kind in ["delivery.dead", &long] {
            body["kind"] = kind.into();
            for text in [
                slack("postrider.delivery.dead", &body),
                telegram("postrider.delivery.dead", &body),
            ] {
                let chars = text.chars().count();
                assert!(chars <= MAX_TEXT_CHARS, "{chars}: {text}");
                assert!(text.contains(CUT));
                assert!(!text.contains("&am…") && !text.contains("&l…"), "{text}");
            }
        }
    }
}
