//! The search: from an id, a key or a type to the page of what it is of.

use serde_json::json;

use crate::browser::Browser;
use crate::client::Client;
use crate::gateway::text;
use crate::hostile::assert_inert;
use crate::sink::Sink;

fn searching(for_what: &str) -> String {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    format!("/search?{}", query.append_pair("q", for_what).finish())
}

#[tokio::test]
async fn whole_ids_keys_and_types_lead_to_their_pages() {
    let browser = Browser::signed_in().await;
    let gateway = &browser.gateway;
    let sink = Sink::answering(200).await;
    let endpoint = gateway.endpoint(&sink.url(), json!({})).await;
    let key = "order-7&\"more\"/<b>";
    let event = json!({"type": "order.created", "payload": 1, "idempotency_key": key});
    let sent = gateway.send(event).await;
    let source = json!({"name": "shop", "verify": {"scheme": "none"}});
    let source = text(&gateway.client.post("/v1/sources", &source).await.expect(201)["id"]);
    let hub = gateway.client.post("/v1/hubs", &json!({"name": "office"})).await.expect(201);
    let delivery = sent.only();
    let attempt = format!("att_{}0001", delivery.trim_start_matches("dlv_"));
    for (searched, page) in [
        (sent.event.clone(), format!("/events/{}", sent.event)),
        (format!("  \"{}\" ", sent.event), format!("/events/{}", sent.event)),
        (delivery.to_owned(), format!("/deliveries/{delivery}")),
        (attempt, format!("/deliveries/{delivery}")),
        (endpoint.clone(), format!("/endpoints/{endpoint}")),
        (source.clone(), format!("/sources/{source}")),
        (text(&hub["id"]), "/hubs".to_owned()),
        (key.to_owned(), format!("/events/{}", sent.event)),
        ("order.created".to_owned(), "/events?type=order.created".to_owned()),
    ] {
        let found = browser.get(&searching(&searched)).await.expect(303);
        assert_eq!(found.location(), Some(page), "{searched}");
    }
}

#[tokio::test]
async fn what_is_not_there_is_said_so() {
    let browser = Browser::signed_in().await;
    let sent = browser.gateway.send(json!({"type": "a.b", "payload": 1})).await;
    let Client { key, .. } = browser.gateway.tenant("other").await;
    let other = Browser::with_key(&browser.gateway, &key).await;
    let page = other.get(&searching(&sent.event)).await.expect(404);
    page.assert_has("There is no event");
    for searched in [
        "evt_0000000000007",
        "dlv_0000000000007",
        "nothing of the kind",
        "\"><script>alert(1)</script>",
        "\u{202e}\u{1b}[31m",
        "//evil.example",
        &"x".repeat(1_500),
    ] {
        let page = browser.get(&searching(searched)).await.expect(404);
        assert_inert(&page);
    }
    browser.get("/search").await.expect(200).assert_has("Type a whole id");
    browser.get("/search?q=%ff").await.expect(404);
}
