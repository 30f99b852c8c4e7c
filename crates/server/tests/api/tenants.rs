//! `/v1/tenants`: name spaces, made by admin keys.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use crate::gateway::{Call, Gateway, START};

fn names(list: &Value) -> Vec<&str> {
    let rows = list["data"].as_array().expect("a list");
    rows.iter().map(|row| row["name"].as_str().expect("a name")).collect()
}

#[tokio::test]
async fn a_tenant_is_made_once_and_can_be_acted_in_at_once() {
    let gateway = Gateway::start().await;
    let inside = || Call::new(Method::GET, "/v1/events").header("postrider-tenant", "acme");
    gateway.call(inside()).await.problem(404);
    let reply = gateway.post("/v1/tenants", json!({"name": "acme"})).await;
    assert_eq!(reply.status, 201);
    assert_eq!(reply.json(), json!({"name": "acme", "created_at": START}));
    assert_eq!(gateway.get("/v1/tenants/acme").await.json(), reply.json());
    assert_eq!(gateway.call(inside()).await.status, 200);
    for taken in ["acme", "default"] {
        let again = gateway.post("/v1/tenants", json!({"name": taken})).await;
        assert!(again.problem(409).is_empty(), "{taken}");
    }
    gateway.get("/v1/tenants/nobody").await.problem(404);
    gateway.get("/v1/tenants/1").await.problem(404);
    gateway.ask(Method::DELETE, "/v1/tenants/acme").await.problem(405);
}

#[tokio::test]
async fn tenants_are_listed_newest_first() {
    let gateway = Gateway::start().await;
    for name in ["a", "b", "c", "d"] {
        gateway.clock.advance(Duration::from_secs(1));
        gateway.tenant(name).await;
    }
    let first = gateway.get("/v1/tenants?limit=2").await.json();
    assert_eq!(names(&first), ["d", "c"]);
    gateway.tenant("e").await;
    let cursor = first["next_cursor"].as_str().expect("a cursor");
    let rest = gateway.get(&format!("/v1/tenants?cursor={cursor}")).await.json();
    assert_eq!(names(&rest), ["b", "a", "default"]);
    assert_eq!(rest["next_cursor"], Value::Null);
    assert_eq!(rest["data"][2]["created_at"], Value::Null, "it was there from the start");
    for (query, field) in [("cursor=nobody", "cursor"), ("limit=251", "limit"), ("a=b", "a")] {
        let reply = gateway.get(&format!("/v1/tenants?{query}")).await;
        assert_eq!(reply.problem(422), [field], "{query}");
    }
}

#[tokio::test]
async fn a_name_that_cannot_be_used_is_refused() {
    let gateway = Gateway::start().await;
    for (body, field) in [
        (json!({}), "name"),
        (json!({"name": ""}), "name"),
        (json!({"name": "Acme"}), "name"),
        (json!({"name": "a b"}), "name"),
        (json!({"name": "x".repeat(64)}), "name"),
        (json!({"name": null}), "name"),
        (json!({"name": "a", "id": 7}), "id"),
    ] {
        assert_eq!(gateway.post("/v1/tenants", body.clone()).await.problem(422), [field], "{body}");
    }
    assert_eq!(names(&gateway.get("/v1/tenants").await.json()), ["default"]);
}

#[tokio::test]
async fn tenants_are_the_business_of_admin_keys() {
    let gateway = Gateway::start().await;
    gateway.tenant("acme").await;
    let key = gateway.key(json!({"name": "theirs", "tenant": "acme"})).await;
    for (method, path) in [
        (Method::GET, "/v1/tenants"),
        (Method::GET, "/v1/tenants/acme"),
        (Method::GET, "/v1/tenants/nobody"),
        (Method::POST, "/v1/tenants"),
    ] {
        let call = key.call(method.clone(), path).json(&json!({"name": "mine"}));
        assert!(gateway.call(call).await.problem(403).is_empty(), "{method} {path}");
        gateway.call(Call::new(method, path).without_key()).await.problem(401);
    }
    assert_eq!(names(&gateway.get("/v1/tenants").await.json()), ["acme", "default"]);
}
