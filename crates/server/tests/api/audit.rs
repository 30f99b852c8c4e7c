//! `/v1/audit`: who changed what.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use crate::gateway::{Call, Gateway, START};
use crate::keys::Key;

fn rows(list: &Value) -> Vec<Value> {
    list["data"].as_array().expect("a list").clone()
}

/// The actions of a list, newest first.
fn actions(list: &Value) -> Vec<String> {
    let action = |row: &Value| row["action"].as_str().expect("an action").to_owned();
    rows(list).iter().map(action).collect()
}

#[tokio::test]
async fn a_change_of_keys_and_tenants_leaves_a_row() {
    let gateway = Gateway::start().await;
    let listed = gateway.get("/v1/audit").await.json();
    let [first] = rows(&listed).try_into().expect("the first key, made at start");
    assert_eq!((&first["actor"], &first["action"]), (&json!("gateway"), &json!("key.create")));
    let admin = first["subject"].clone();
    assert_eq!(admin, gateway.get("/v1/keys").await.json()["data"][0]["id"]);

    gateway.tenant("acme").await;
    let expiry = START.plus(Duration::from_hours(1));
    let Key { id, .. } = gateway.key(json!({"name": "ci", "tenant": "acme"})).await;
    let path = format!("/v1/keys/{id}");
    gateway.clock.advance(Duration::from_secs(1));
    let change = json!({"name": "ci", "expires_at": expiry});
    assert_eq!(gateway.patch(&path, change.clone()).await.status, 200);
    // Neither of these changes anything.
    assert_eq!(gateway.patch(&path, change).await.status, 200);
    assert_eq!(gateway.patch(&path, json!({})).await.status, 200);
    assert_eq!(gateway.ask(Method::DELETE, &path).await.status, 204);
    assert_eq!(gateway.ask(Method::DELETE, &path).await.status, 204);
    let powerful = gateway.key(json!({"name": "root", "role": "admin"})).await;

    let later = json!(START.plus(Duration::from_secs(1)));
    let detail = json!({"name": "ci", "role": "tenant", "tenant": "acme", "expires_at": null});
    let root = json!({"name": "root", "role": "admin", "tenant": null, "expires_at": null});
    let expected = [
        ("key.create", json!(powerful.id), json!(null), later.clone(), root),
        ("key.revoke", json!(id), json!("acme"), later.clone(), json!(null)),
        ("key.update", json!(id), json!("acme"), later, json!({"expires_at": expiry})),
        ("key.create", json!(id), json!("acme"), json!(START), detail),
        ("tenant.create", json!("acme"), json!(null), json!(START), json!(null)),
    ];
    let listed = rows(&gateway.get("/v1/audit").await.json());
    assert_eq!(listed.len(), expected.len() + 1);
    for (row, (action, subject, tenant, at, detail)) in listed.iter().zip(expected) {
        assert!(row["id"].as_str().is_some_and(|id| !id.is_empty()), "{row}");
        let wanted = json!({
            "id": row["id"],
            "at": at,
            "tenant": tenant,
            "actor": admin,
            "action": action,
            "subject": subject,
            "detail": detail,
        });
        assert_eq!(*row, wanted);
    }
}

#[tokio::test]
async fn what_was_refused_leaves_no_row() {
    let gateway = Gateway::start().await;
    gateway.tenant("acme").await;
    let key = gateway.key(json!({"name": "theirs", "tenant": "acme"})).await;
    let before = gateway.get("/v1/audit").await.json();
    let admin = rows(&before).pop().expect("the first key")["subject"].clone();
    let admin = format!("/v1/keys/{}", admin.as_str().expect("an id"));
    gateway.post("/v1/tenants", json!({"name": "acme"})).await.problem(409);
    gateway.post("/v1/keys", json!({"name": ""})).await.problem(422);
    gateway.ask(Method::DELETE, &admin).await.problem(409);
    gateway.call(key.call(Method::DELETE, &admin)).await.problem(404);
    let call = key.call(Method::POST, "/v1/tenants").json(&json!({"name": "mine"}));
    gateway.call(call).await.problem(403);
    assert_eq!(gateway.get("/v1/audit").await.json(), before);
}

#[tokio::test]
async fn a_tenants_key_sees_the_rows_of_its_tenant_only() {
    let gateway = Gateway::start().await;
    let mut keys = Vec::new();
    for tenant in ["acme", "globex"] {
        gateway.tenant(tenant).await;
        let key = gateway.key(json!({"name": "first", "tenant": tenant})).await;
        let own = key.call(Method::POST, "/v1/endpoints").json(&json!({"url": "https://a.test/"}));
        assert_eq!(gateway.call(own).await.status, 201);
        keys.push((tenant, key));
    }
    for (tenant, key) in &keys {
        let seen = gateway.call(key.call(Method::GET, "/v1/audit")).await.json();
        assert_eq!(actions(&seen), ["endpoint.create", "key.create"], "{tenant}");
        for row in rows(&seen) {
            assert_eq!(row["tenant"], *tenant);
        }
        assert_eq!(rows(&seen)[0]["actor"], key.id.as_str());
        assert_eq!(rows(&seen)[1]["subject"], key.id.as_str());
        let by_header = Call::new(Method::GET, "/v1/audit").header("postrider-tenant", tenant);
        assert_eq!(gateway.call(by_header).await.json(), seen);
    }
    let [(_, acme), (globex_name, globex)] = &keys[..] else { panic!("two keys") };
    let by_subject = format!("/v1/audit?subject={}", globex.id);
    let seen = gateway.call(acme.call(Method::GET, &by_subject)).await.json();
    assert_eq!(rows(&seen), Vec::<Value>::new());
    assert_eq!(actions(&gateway.get(&by_subject).await.json()), ["key.create"]);
    let elsewhere = acme.call(Method::GET, "/v1/audit").header("postrider-tenant", globex_name);
    gateway.call(elsewhere).await.problem(403);
    gateway.call(Call::new(Method::GET, "/v1/audit").without_key()).await.problem(401);
}

#[tokio::test]
async fn rows_can_be_filtered_and_read_page_by_page() {
    let gateway = Gateway::start().await;
    for name in ["a", "b", "c"] {
        gateway.tenant(name).await;
        gateway.key(json!({"name": name, "tenant": name})).await;
    }
    let subjects = |list: &Value| -> Vec<Value> {
        rows(list).iter().map(|row| row["subject"].clone()).collect()
    };
    let made = gateway.get("/v1/audit?action=tenant.create").await.json();
    assert_eq!(subjects(&made), ["c", "b", "a"]);
    assert_eq!(made["next_cursor"], Value::Null);
    let one = gateway.get("/v1/audit?action=tenant.create&subject=b").await.json();
    assert_eq!(subjects(&one), ["b"]);
    assert!(rows(&gateway.get("/v1/audit?action=tenant").await.json()).is_empty());

    let first = gateway.get("/v1/audit?action=tenant.create&limit=2").await.json();
    assert_eq!(subjects(&first), ["c", "b"]);
    gateway.tenant("d").await;
    let cursor = first["next_cursor"].as_str().expect("a cursor");
    let path = format!("/v1/audit?action=tenant.create&limit=1&cursor={cursor}");
    let second = gateway.get(&path).await.json();
    assert_eq!((subjects(&second), &second["next_cursor"]), (vec![json!("a")], &Value::Null));
    for (query, field) in [
        ("cursor=x", "cursor"),
        ("cursor=-1", "cursor"),
        ("limit=x", "limit"),
        ("actor=a", "actor"),
    ] {
        let reply = gateway.get(&format!("/v1/audit?{query}")).await;
        assert_eq!(reply.problem(422), [field], "{query}");
    }
}
