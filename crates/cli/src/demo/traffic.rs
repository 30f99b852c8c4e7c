//! What the demo sends: the life of a small shop, as events and as webhooks.

use std::time::Duration;

use postrider_client::{Gateway, Method};
use serde_json::{Value, json};
use tokio::time::MissedTickBehavior;

use super::scene::Posting;

/// Of so many, one comes by the source instead of the API, and one of those is forged.
const ONE_POSTED_OF: u64 = 6;
const ONE_FORGED_OF: u64 = 5;
const CUSTOMERS: u64 = 7;

/// Sends `rate` events a second until it is told to stop.
pub(super) async fn send(
    gateway: Gateway,
    posting: Posting,
    rate: u32,
    stop: impl Future<Output = ()>,
) {
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / rate.max(1));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut stop = std::pin::pin!(stop);
    for number in 0.. {
        tokio::select! {
            () = &mut stop => return,
            _ = ticks.tick() => {}
        }
        let (path, body) = message(number, &posting);
        if let Err(error) = gateway.request(Method::POST, path, Some(&body)).await {
            tracing::warn!(%error, "an event of the demo was not taken");
        }
    }
}

/// The next one, and where it goes.
fn message(number: u64, posting: &Posting) -> (&str, Value) {
    let (kind, payload) = happening(number);
    if number % ONE_POSTED_OF != ONE_POSTED_OF - 1 {
        let key = format!("customer-{}", number % CUSTOMERS);
        return (
            "/v1/events",
            json!({
                "type": kind,
                "payload": payload,
                "idempotency_key": format!("demo-{number}"),
                "ordering_key": key,
                "metadata": { "session_id": key },
            }),
        );
    }
    let is_forged = number / ONE_POSTED_OF % ONE_FORGED_OF == ONE_FORGED_OF - 1;
    let path = if is_forged { &posting.forged } else { &posting.genuine };
    (path, json!({ "id": format!("webshop-{number}"), "type": kind, "data": payload }))
}

fn happening(number: u64) -> (&'static str, Value) {
    let customer = number % CUSTOMERS;
    let cents = 499 + number * 37 % 20_000;
    match number % 8 {
        0 | 4 => {
            ("order.created", json!({ "order": number, "customer": customer, "cents": cents }))
        }
        1 => ("user.created", json!({ "user": customer, "plan": "free" })),
        2 => ("invoice.created", json!({ "invoice": number, "cents": cents })),
        3 => ("invoice.paid", json!({ "invoice": number, "cents": cents, "by": "card" })),
        5 => ("user.deleted", json!({ "user": customer })),
        6 => ("order.shipped", json!({ "order": number, "parcels": 1 + number % 3 })),
        _ => ("order.cancelled", json!({ "order": number, "why": "changed <b>mind</b>" })),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn the_traffic_is_varied_and_some_of_it_is_forged() {
        let posting = Posting { genuine: "/in/a?token=a".into(), forged: "/in/a?token=b".into() };
        let sent: Vec<_> = (0..240).map(|number| message(number, &posting)).collect();
        let kinds: HashSet<&str> =
            sent.iter().filter_map(|(_, body)| body["type"].as_str()).collect();
        assert_eq!(kinds.len(), 7);
        let to = |path: &str| sent.iter().filter(|(to, _)| *to == path).count();
        assert_eq!([to("/v1/events"), to(&posting.genuine), to(&posting.forged)], [200, 32, 8]);
        for (_, body) in &sent {
            let kind = body["type"].as_str().expect("a type");
            assert!(postrider_core::pattern::check_type(kind).is_ok(), "{kind}");
        }
    }
}
