//! Who may do what, and where.

use http::Method;
use postrider_server::{KeyError, ensure_admin_key};
use serde_json::json;

use crate::gateway::{Call, Gateway, START};
use crate::keys::Key;

#[tokio::test]
async fn without_a_known_key_there_is_nothing_but_health() {
    let gateway = Gateway::start().await;
    let get = |path: &str| Call::new(Method::GET, path).without_key();
    for path in ["/healthz", "/readyz"] {
        assert_eq!(gateway.call(get(path)).await.status, 200, "{path}");
    }
    let unknown = format!("Bearer pr_{}", "x".repeat(43));
    for value in ["", "Bearer", "Bearer ", "Basic cHI6", &unknown, "Bearer \u{e9}"] {
        let reply = gateway.call(get("/v1/events").header("authorization", value)).await;
        assert!(reply.problem(401).is_empty());
        assert_eq!(reply.headers["www-authenticate"], "Bearer");
    }
    gateway.call(get("/v1/events")).await.problem(401);
    let event = json!({"type": "a.b", "payload": 1});
    let call = Call::new(Method::POST, "/v1/events").without_key().json(&event);
    gateway.call(call).await.problem(401);
    assert_eq!(gateway.get("/v1/stats").await.json()["events"], 0);
}

#[tokio::test]
async fn a_key_acts_in_its_tenant_only() {
    let gateway = Gateway::start().await;
    gateway.tenant("acme").await;
    let Key { key: secret, .. } = gateway.key(json!({"name": "theirs", "tenant": "acme"})).await;
    let theirs = |method: Method, path: &str| {
        Call::new(method, path).without_key().header("authorization", &format!("bearer {secret}"))
    };

    let event = gateway.event(json!({"type": "a.b", "payload": 1, "idempotency_key": "k"})).await;
    let endpoint = gateway.endpoint(json!({"url": "https://example.com/"})).await;
    for path in [
        format!("/v1/events/{event}"),
        format!("/v1/events/{event}/payload"),
        format!("/v1/events/{event}/deliveries"),
        format!("/v1/endpoints/{endpoint}"),
        format!("/v1/endpoints/{endpoint}/secret"),
        format!("/v1/endpoints/{endpoint}/stats"),
    ] {
        assert_eq!(gateway.get(&path).await.status, 200, "{path}");
        gateway.call(theirs(Method::GET, &path)).await.problem(404);
    }
    gateway.call(theirs(Method::DELETE, &format!("/v1/endpoints/{endpoint}"))).await.problem(404);
    gateway.call(theirs(Method::POST, &format!("/v1/events/{event}/replay"))).await.problem(404);
    for path in ["/v1/events", "/v1/endpoints", "/v1/deliveries", "/v1/events?idempotency_key=k"] {
        assert_eq!(
            gateway.call(theirs(Method::GET, path)).await.json()["data"],
            json!([]),
            "{path}"
        );
    }
    let same_key = json!({"type": "a.b", "payload": 2, "idempotency_key": "k"});
    let own = gateway.call(theirs(Method::POST, "/v1/events").json(&same_key)).await;
    assert_eq!((own.status.as_u16(), own.json()["deliveries"].clone()), (202, json!(0)));

    let elsewhere = theirs(Method::GET, "/v1/events").header("postrider-tenant", "default");
    gateway.call(elsewhere).await.problem(403);
    let admin = |tenant| Call::new(Method::GET, "/v1/events").header("postrider-tenant", tenant);
    let seen = async |tenant| gateway.call(admin(tenant)).await.json()["data"].clone();
    assert_eq!(seen("default").await[0]["id"], event.as_str());
    assert_eq!(seen("acme").await[0]["id"], own.json()["id"]);
    gateway.call(admin("nobody")).await.problem(404);
}

#[tokio::test]
async fn an_admin_key_can_be_given_and_must_be_a_good_one() {
    let gateway = Gateway::start().await;
    let store = gateway.engine.store();
    let given = format!("pr_{}", "g".repeat(32));
    let made = ensure_admin_key(&**store, START, [8; 32], Some(&given)).await.expect("stored");
    assert_eq!(made, None, "the operator knows it already");
    let count = store.keys().await.expect("keys").len();
    assert_eq!(count, 2);
    ensure_admin_key(&**store, START, [9; 32], Some(&given)).await.expect("known");
    assert_eq!(ensure_admin_key(&**store, START, [9; 32], None).await.expect("known"), None);
    assert_eq!(store.keys().await.expect("keys").len(), count);
    let short = ensure_admin_key(&**store, START, [9; 32], Some("pr_short")).await;
    assert!(matches!(short, Err(KeyError::Malformed)));

    gateway.keys.reload(&**store).await.expect("reloaded");
    let call = Call::new(Method::GET, "/v1/stats").without_key();
    let call = call.header("authorization", &format!("Bearer {given}"));
    assert_eq!(gateway.call(call).await.status, 200);
}

#[tokio::test]
async fn a_given_admin_key_that_was_revoked_stays_so() {
    let gateway = Gateway::start().await;
    let store = gateway.engine.store();
    let given = format!("pr_{}", "g".repeat(32));
    ensure_admin_key(&**store, START, [8; 32], Some(&given)).await.expect("stored");
    gateway.keys.reload(&**store).await.expect("reloaded");
    let own = gateway.get("/v1/keys?limit=1").await.json()["data"][0]["id"].clone();
    let path = format!("/v1/keys/{}", own.as_str().expect("an id"));
    assert_eq!(gateway.ask(Method::DELETE, &path).await.status, 204);

    ensure_admin_key(&**store, START, [8; 32], Some(&given)).await.expect("a start goes on");
    gateway.keys.reload(&**store).await.expect("reloaded");
    let call = Call::new(Method::GET, "/v1/stats").without_key();
    let call = call.header("authorization", &format!("Bearer {given}"));
    gateway.call(call).await.problem(401);
}

#[tokio::test]
async fn where_no_admin_key_opens_anything_a_start_makes_one() {
    let gateway = Gateway::start().await;
    let store = gateway.engine.store();
    let [mut only] = store.keys().await.expect("keys").try_into().expect("one key");
    only.expires_at = Some(START);
    store.put_key(only, None).await.expect("stored");
    let made = ensure_admin_key(&**store, START, [8; 32], None).await.expect("stored");
    let made = made.expect("a new one");
    gateway.keys.reload(&**store).await.expect("reloaded");
    gateway.get("/v1/stats").await.problem(401);
    let call = Call::new(Method::GET, "/v1/stats").without_key();
    let call = call.header("authorization", &format!("Bearer {made}"));
    assert_eq!(gateway.call(call).await.status, 200);
}
