//! What happens to a hub, a line each: for people, or for programs.

use postrider_client::hub::Happening;
use postrider_core::hub::{Answer, Deliver, Met};
use postrider_core::span;
use serde_json::{Value, json};

pub(super) fn text(happening: &Happening) -> String {
    let line = match happening {
        Happening::Connected { hub, name } => format!("connected as {name} ({hub})"),
        Happening::Disconnected { reason, unanswered, retry_in } => {
            let again = span::format(*retry_in);
            match unanswered {
                0 => format!("not connected: {reason}; trying again in {again}"),
                _ => format!(
                    "not connected: {reason}; trying again in {again}; \
                     unanswered, to be sent again: {unanswered}"
                ),
            }
        }
        Happening::Received(deliver) => {
            format!("{}: {} bytes for {}", name_of(deliver), deliver.body.len(), place(deliver))
        }
        Happening::Answered { deliver, answer } => {
            let took = span::format(answer.duration);
            format!("{}, {took}: {}", name_of(deliver), outcome(answer))
        }
        Happening::Stopping { in_hand: 0 } => "stopping".to_owned(),
        Happening::Stopping { in_hand } => {
            format!("stopping: waiting for {in_hand} in hand; a second signal drops them")
        }
        Happening::Stopped { unanswered: 0 } => "stopped".to_owned(),
        Happening::Stopped { unanswered } => {
            format!("stopped; unanswered, to be sent again: {unanswered}")
        }
    };
    inert(&line)
}

pub(super) fn json(happening: &Happening) -> String {
    let line = match happening {
        Happening::Connected { hub, name } => {
            json!({"kind": "connected", "hub_id": hub, "name": name})
        }
        Happening::Disconnected { reason, unanswered, retry_in } => json!({
            "kind": "disconnected",
            "reason": reason,
            "unanswered": unanswered,
            "retry_in": span::format(*retry_in),
        }),
        Happening::Received(deliver) => {
            let mut line = about("received", deliver);
            line["bytes"] = deliver.body.len().into();
            line
        }
        Happening::Answered { deliver, answer } => {
            let mut line = about("answered", deliver);
            let millis = u64::try_from(answer.duration.as_millis()).unwrap_or(u64::MAX);
            line["duration_ms"] = millis.into();
            match &answer.met {
                Met::Status { status, .. } => line["status_code"] = (*status).into(),
                Met::Network { error } | Met::Timeout { error } => {
                    line["error"] = error.as_str().into();
                }
            }
            line
        }
        Happening::Stopping { in_hand } => json!({"kind": "stopping", "in_hand": in_hand}),
        Happening::Stopped { unanswered } => json!({"kind": "stopped", "unanswered": unanswered}),
    };
    inert(&line.to_string())
}

/// Names and errors come from elsewhere: nothing in them may move a cursor or forge a line.
fn inert(line: &str) -> String {
    line.replace(char::is_control, " ")
}

fn about(kind: &str, deliver: &Deliver) -> Value {
    json!({
        "kind": kind,
        "delivery_id": deliver.delivery,
        "event_id": deliver.event,
        "event_type": deliver.kind,
        "endpoint_id": deliver.endpoint,
        "endpoint_name": deliver.endpoint_name,
        "attempt": deliver.attempt,
    })
}

fn name_of(deliver: &Deliver) -> String {
    let Deliver { delivery, kind, attempt, .. } = deliver;
    format!("{delivery} {kind} attempt {attempt}")
}

fn place(deliver: &Deliver) -> String {
    match &deliver.endpoint_name {
        Some(name) => name.clone(),
        None => deliver.endpoint.to_string(),
    }
}

fn outcome(answer: &Answer) -> String {
    match &answer.met {
        Met::Status { status, .. } => format!("{status}"),
        Met::Network { error } | Met::Timeout { error } => error.clone(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use postrider_core::{DeliveryId, EndpointId, EventId, HubId};

    use super::*;

    fn deliver(name: Option<&str>) -> Arc<Deliver> {
        Arc::new(Deliver {
            seq: 1,
            delivery: DeliveryId::from_i64(1),
            event: EventId::from_i64(2),
            endpoint: EndpointId::from_i64(3),
            endpoint_name: name.map(str::to_owned),
            kind: "order.created".to_owned(),
            attempt: 2,
            timeout: Duration::from_secs(15),
            headers: vec![("authorization".to_owned(), "hunter2".into())],
            body: "hunter2".into(),
        })
    }

    fn answered(met: Met) -> Happening {
        let answer = Answer { seq: 1, duration: Duration::from_millis(1_012), met };
        Happening::Answered { deliver: deliver(Some("orders")), answer }
    }

    #[test]
    fn there_is_a_line_for_everything_that_happens() {
        let status = Met::Status {
            status: 404,
            headers: Vec::new(),
            body: "hunter2".into(),
            truncated: false,
        };
        let refused = Met::Network { error: "Connection refused".to_owned() };
        for (happening, text_line, json_line) in [
            (
                Happening::Connected { hub: HubId::from_i64(4), name: "office".to_owned() },
                "connected as office (hub_0000000000004)",
                r#"{"hub_id":"hub_0000000000004","kind":"connected","name":"office"}"#,
            ),
            (
                Happening::Disconnected {
                    reason: "the gateway hung up".to_owned(),
                    unanswered: 0,
                    retry_in: Duration::from_millis(340),
                },
                "not connected: the gateway hung up; trying again in 340ms",
                r#"{"kind":"disconnected","reason":"the gateway hung up","retry_in":"340ms","unanswered":0}"#,
            ),
            (
                Happening::Disconnected {
                    reason: "it broke".to_owned(),
                    unanswered: 2,
                    retry_in: Duration::ZERO,
                },
                "not connected: it broke; trying again in 0s; unanswered, to be sent again: 2",
                r#"{"kind":"disconnected","reason":"it broke","retry_in":"0s","unanswered":2}"#,
            ),
            (
                Happening::Received(deliver(None)),
                "dlv_0000000000001 order.created attempt 2: 7 bytes for ep_0000000000003",
                r#"{"attempt":2,"bytes":7,"delivery_id":"dlv_0000000000001","endpoint_id":"ep_0000000000003","endpoint_name":null,"event_id":"evt_0000000000002","event_type":"order.created","kind":"received"}"#,
            ),
            (
                answered(status),
                "dlv_0000000000001 order.created attempt 2, 1s12ms: 404",
                r#"{"attempt":2,"delivery_id":"dlv_0000000000001","duration_ms":1012,"endpoint_id":"ep_0000000000003","endpoint_name":"orders","event_id":"evt_0000000000002","event_type":"order.created","kind":"answered","status_code":404}"#,
            ),
            (
                answered(refused),
                "dlv_0000000000001 order.created attempt 2, 1s12ms: Connection refused",
                r#"{"attempt":2,"delivery_id":"dlv_0000000000001","duration_ms":1012,"endpoint_id":"ep_0000000000003","endpoint_name":"orders","error":"Connection refused","event_id":"evt_0000000000002","event_type":"order.created","kind":"answered"}"#,
            ),
            (
                Happening::Stopping { in_hand: 3 },
                "stopping: waiting for 3 in hand; a second signal drops them",
                r#"{"in_hand":3,"kind":"stopping"}"#,
            ),
            (
                Happening::Stopped { unanswered: 0 },
                "stopped",
                r#"{"kind":"stopped","unanswered":0}"#,
            ),
        ] {
            assert_eq!(text(&happening), text_line);
            assert_eq!(json(&happening), json_line);
        }
    }

    #[test]
    fn a_line_is_one_line_that_no_terminal_obeys() {
        let received = Happening::Received(deliver(Some("a\u{1b}[2J\r\nb\u{9b}2J")));
        for line in [text(&received), json(&received)] {
            assert!(!line.contains(char::is_control), "{line:?}");
        }
    }
}
