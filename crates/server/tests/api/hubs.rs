//! `/v1/hubs`: making, looking at and deleting hubs.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use crate::gateway::{Gateway, START};
use crate::hub_client::Hub;

fn ids(list: &Value) -> Vec<&str> {
    let rows = list["data"].as_array().expect("a list");
    rows.iter().map(|row| row["id"].as_str().expect("an id")).collect()
}

#[tokio::test]
async fn a_hub_is_made_with_a_token_that_is_shown_once() {
    let gateway = Gateway::start().await;
    let made = gateway.post("/v1/hubs", json!({"name": "the office"})).await;
    assert_eq!(made.status, 201, "{made:?}");
    let mut made = made.json();
    let token = made.as_object_mut().and_then(|made| made.remove("token")).expect("a token");
    let token = token.as_str().expect("a text");
    assert!(token.strip_prefix("prh_").is_some_and(|rest| rest.len() >= 43), "{token}");
    let id = made["id"].as_str().expect("an id").to_owned();
    assert!(id.starts_with("hub_"));
    assert_eq!(made, json!({"id": id, "name": "the office", "created_at": START}));

    let shown = json!({
        "id": id,
        "name": "the office",
        "created_at": START,
        "connected": false,
        "in_flight": 0,
        "waiting": 0,
    });
    let path = format!("/v1/hubs/{id}");
    assert_eq!(gateway.get(&path).await.json(), shown);
    assert_eq!(gateway.get("/v1/hubs").await.json()["data"], json!([shown]));
    for path in [path.as_str(), "/v1/hubs", "/v1/audit"] {
        let body = gateway.get(path).await.body;
        assert!(!String::from_utf8_lossy(&body).contains(token), "{path}");
    }

    assert_eq!(gateway.ask(Method::DELETE, &path).await.status, 204);
    gateway.get(&path).await.problem(404);
    gateway.ask(Method::DELETE, &path).await.problem(404);
    assert_eq!(gateway.get("/v1/hubs").await.json()["data"], json!([]));
    let changes = gateway.get("/v1/audit").await.json();
    for (row, action) in ["hub.delete", "hub.create"].into_iter().enumerate() {
        let row = &changes["data"][row];
        assert_eq!((&row["action"], &row["subject"]), (&json!(action), &json!(id)));
    }
}

#[tokio::test]
async fn hubs_are_listed_newest_first_by_pages() {
    let gateway = Gateway::start().await;
    let mut made = Vec::new();
    for index in 0..5 {
        made.push(gateway.hub(&format!("hub {index}")).await.id);
    }
    made.reverse();
    let mut seen = Vec::new();
    let mut path = "/v1/hubs?limit=2".to_owned();
    loop {
        let page = gateway.get(&path).await.json();
        seen.extend(ids(&page).into_iter().map(str::to_owned));
        match page["next_cursor"].as_str() {
            Some(cursor) => path = format!("/v1/hubs?limit=2&cursor={cursor}"),
            None => break,
        }
    }
    assert_eq!(seen, made);
}

#[tokio::test]
async fn what_cannot_be_used_is_refused_by_its_name() {
    let gateway = Gateway::start().await;
    let long = "é".repeat(201);
    for (body, field) in [
        (json!({}), "name"),
        (json!({"name": ""}), "name"),
        (json!({"name": " "}), "name"),
        (json!({"name": "a\nb"}), "name"),
        (json!({"name": long}), "name"),
        (json!({"name": 7}), "name"),
        (json!({"name": "a", "token": "prh_mine"}), "token"),
        (json!({"name": "a", "token": "x".repeat(64)}), "token"),
        (json!({"name": "a", "token": format!("pr_{}", "x".repeat(64))}), "token"),
        (json!({"name": "a", "token": format!("prh_{}", "x".repeat(31))}), "token"),
        (json!({"name": "a", "token": format!("prh_{}", "x".repeat(253))}), "token"),
        (json!({"name": "a", "token": format!("prh_{} ", "x".repeat(40))}), "token"),
        (json!({"name": "a", "token": format!("prh_{}é", "x".repeat(40))}), "token"),
        (json!({"name": "a", "token": 7}), "token"),
    ] {
        assert_eq!(gateway.post("/v1/hubs", body.clone()).await.problem(422), [field], "{body}");
    }
    for (path, field) in [
        ("/v1/hubs?limit=0", "limit"),
        ("/v1/hubs?cursor=AXAAAAAAAAAAAA", "cursor"),
        ("/v1/hubs?name=a", "name"),
    ] {
        assert_eq!(gateway.get(path).await.problem(422), [field], "{path}");
    }
    for bad in ["ep_0000000000000", "7", "%00"] {
        let path = format!("/v1/hubs/{bad}");
        assert_eq!(gateway.get(&path).await.problem(404), ["id"], "{path}");
    }
    assert!(ids(&gateway.get("/v1/hubs").await.json()).is_empty());
}

#[tokio::test]
async fn a_token_can_be_chosen_and_changed_and_is_one_hubs() {
    let gateway = Gateway::start().await;
    let chosen = |letter: &str| format!("prh_{}", letter.repeat(32));
    let made = gateway.post("/v1/hubs", json!({"name": "a", "token": chosen("a")})).await;
    assert_eq!(made.status, 201, "{made:?}");
    let made = made.json();
    assert_eq!(made["token"], chosen("a"));
    let id = made["id"].as_str().expect("an id").to_owned();
    let mut hub = Hub { id, token: chosen("a") };
    let again = gateway.post("/v1/hubs", json!({"name": "b", "token": chosen("a")})).await;
    again.problem(409);
    let mut connection = gateway.connect(&hub, 8).await;

    let rotate = format!("{}/rotate-token", hub.path());
    assert_eq!(gateway.post(&rotate, json!({"token": "prh_short"})).await.problem(422), ["token"]);
    // The same again changes nothing for whoever is connected.
    assert_eq!(gateway.post(&rotate, json!({"token": chosen("a")})).await.status, 200);
    assert_eq!(gateway.get(&hub.path()).await.json()["connected"], true);
    let rotated = gateway.post(&rotate, json!({"token": chosen("c")})).await;
    assert_eq!((rotated.status.as_u16(), &rotated.json()["token"]), (200, &json!(chosen("c"))));
    assert_eq!(connection.closed().await.0, 1008);
    gateway.call(hub.call(Method::GET, "/v1/hub")).await.problem(401);
    hub.token = chosen("c");
    drop(gateway.connect(&hub, 8).await);

    let made = gateway.ask(Method::POST, &rotate).await.json();
    let token = made["token"].as_str().expect("a new one");
    assert!(token.starts_with("prh_") && token != hub.token, "{token}");
    gateway.call(hub.call(Method::GET, "/v1/hub")).await.problem(401);
    let audit = gateway.get("/v1/audit?action=hub.rotate_token").await.json();
    assert_eq!(audit["data"].as_array().expect("rows").len(), 3);
    gateway.post("/v1/hubs/hub_0000000000000/rotate-token", json!({})).await.problem(404);
}

#[tokio::test]
async fn what_waits_for_a_hub_is_counted_and_goes_nowhere_else() {
    let gateway = Gateway::start().await;
    let hub = gateway.hub("the office").await;
    let other = gateway.hub("elsewhere").await;
    let endpoint = gateway.endpoint(json!({"hub": hub.id})).await;
    let shown = gateway.get(&format!("/v1/endpoints/{endpoint}")).await.json();
    assert_eq!((&shown["hub"], shown.get("url")), (&json!(hub.id), None));
    let event = gateway.event(json!({"type": "a.b", "payload": 1})).await;
    gateway.clock.advance(Duration::from_millis(1_500));
    let view = gateway.get(&hub.path()).await.json();
    assert_eq!((&view["waiting"], &view["lag_seconds"]), (&json!(1), &json!(1.5)));
    assert_eq!(gateway.get(&other.path()).await.json()["waiting"], 0);
    let delivery = gateway.delivery_of(&event).await;
    assert_eq!((&delivery["state"], &delivery["attempts"]), (&json!("pending"), &json!(0)));
    assert_eq!(delivery["waiting_on"], json!({"reason": "hub_offline", "until": null}));
    gateway.ask(Method::POST, &format!("/v1/endpoints/{endpoint}/test")).await.problem(409);

    // Without its hub it waits on, and can be given another way.
    assert_eq!(gateway.ask(Method::DELETE, &hub.path()).await.status, 204);
    assert_eq!(gateway.delivery_of(&event).await["waiting_on"]["reason"], "hub_offline");
    let path = format!("/v1/endpoints/{endpoint}");
    assert_eq!(gateway.patch(&path, json!({"hub": other.id})).await.status, 200);
    assert_eq!(gateway.get(&other.path()).await.json()["waiting"], 1);
    assert_eq!(gateway.patch(&path, json!({"pull": true})).await.status, 200);
    let leases = gateway.lease(&endpoint, json!({})).await;
    assert_eq!(leases[0]["event"]["id"], event.as_str());
}

#[tokio::test]
async fn another_tenants_hub_can_be_neither_seen_nor_used() {
    let gateway = Gateway::start().await;
    gateway.tenant("acme").await;
    let theirs = gateway.key(json!({"name": "theirs", "tenant": "acme"})).await;
    let Hub { id, .. } = gateway.hub("ours").await;
    let path = format!("/v1/hubs/{id}");
    gateway.call(theirs.call(Method::GET, &path)).await.problem(404);
    gateway.call(theirs.call(Method::DELETE, &path)).await.problem(404);
    let listed = gateway.call(theirs.call(Method::GET, "/v1/hubs")).await.json();
    assert!(ids(&listed).is_empty());
    let call = theirs.call(Method::POST, "/v1/endpoints").json(&json!({"hub": id}));
    assert_eq!(gateway.call(call).await.problem(422), ["hub"]);
    let call = theirs.call(Method::POST, "/v1/endpoints").json(&json!({"pull": true}));
    let endpoint = gateway.call(call).await.json();
    let path_of_theirs = format!("/v1/endpoints/{}", endpoint["id"].as_str().expect("an id"));
    let call = theirs.call(Method::PATCH, &path_of_theirs).json(&json!({"hub": id}));
    assert_eq!(gateway.call(call).await.problem(422), ["hub"]);
    let unknown = json!({"hub": "hub_0000000000000"});
    assert_eq!(gateway.post("/v1/endpoints", unknown).await.problem(422), ["hub"]);
    assert_eq!(gateway.get(&path).await.status, 200);
}
