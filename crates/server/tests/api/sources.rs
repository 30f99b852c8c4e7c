//! Sources: made, changed, given another URL, deleted.

use http::Method;
use postrider_server::{ConnectionLimits, Inbound, ServerOptions, router, serve};
use postrider_store::audit::AuditQuery;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::gateway::{Call, Gateway};
use crate::ingest::{github, post_to};

const SECRET: &str = "a-secret-of-github";

pub(crate) async fn make(gateway: &Gateway, body: Value) -> Value {
    let reply = gateway.post("/v1/sources", body).await;
    assert_eq!(reply.status, 201, "{reply:?}");
    reply.json()
}

pub(crate) fn text<'v>(value: &'v Value, field: &str) -> &'v str {
    value[field].as_str().unwrap_or_else(|| panic!("no {field}: {value}"))
}

fn path_of(source: &Value) -> String {
    format!("/v1/sources/{}", text(source, "id"))
}

#[tokio::test]
async fn a_source_is_made_shown_changed_and_deleted() {
    let gateway = Gateway::start().await;
    let verify = json!({"scheme": "github", "secret": SECRET});
    let made = make(&gateway, json!({"name": "repository", "verify": verify})).await;
    let url = text(&made, "url").to_owned();
    let expected = json!({
        "id": made["id"],
        "name": "repository",
        "verify": {"scheme": "github", "secrets": 1},
        "on_invalid": "reject",
        "type_from": {"header": "x-github-event"},
        "dedup_from": {"header": "x-github-delivery"},
        "keep_headers": "all",
        "url": url,
        "created_at": "2026-01-01T00:00:00.000Z",
        "updated_at": "2026-01-01T00:00:00.000Z",
    });
    assert_eq!(made, expected);
    assert!(text(&made, "id").starts_with("src_"));
    let token = url.strip_prefix("/in/").expect("a path");
    assert_eq!(token.len(), 43, "256 bits");

    let path = path_of(&made);
    assert_eq!(gateway.get(&path).await.json(), made);
    gateway.clock.advance(std::time::Duration::from_secs(1));
    let change = json!({
        "name": "renamed",
        "on_invalid": "mark",
        "keep_headers": ["X-GitHub-Event"],
        "dedup_from": null,
    });
    let changed = gateway.call(Call::new(Method::PATCH, &path).json(&change)).await;
    assert_eq!(changed.status, 200, "{changed:?}");
    let mut expected = made.clone();
    expected["name"] = json!("renamed");
    expected["on_invalid"] = json!("mark");
    expected["keep_headers"] = json!(["x-github-event"]);
    expected["dedup_from"] = Value::Null;
    expected["updated_at"] = json!("2026-01-01T00:00:01.000Z");
    assert_eq!(changed.json(), expected);

    assert_eq!(gateway.ask(Method::DELETE, &path).await.status, 204);
    gateway.get(&path).await.problem(404);
    gateway.ask(Method::DELETE, &path).await.problem(404);
    gateway.call(post_to(&url, "{}")).await.problem(404);
    assert_eq!(gateway.get("/v1/sources").await.json()["data"], json!([]));
}

#[tokio::test]
async fn a_list_is_newest_first_and_shows_neither_urls_nor_secrets() {
    let gateway = Gateway::start().await;
    let mut ids = Vec::new();
    for number in 0..5 {
        let verify = json!({"scheme": "github", "secret": SECRET});
        let made = make(&gateway, json!({"name": number.to_string(), "verify": verify})).await;
        ids.insert(0, made["id"].clone());
    }
    let mut listed = Vec::new();
    let mut path = "/v1/sources?limit=2".to_owned();
    let mut pages = 0;
    loop {
        let reply = gateway.get(&path).await;
        let page = reply.json();
        let raw = String::from_utf8_lossy(&reply.body);
        assert!(!raw.contains("/in/") && !raw.contains(SECRET), "{raw}");
        let rows = page["data"].as_array().expect("a list");
        listed.extend(rows.iter().map(|row| row["id"].clone()));
        pages += 1;
        let Some(cursor) = page["next_cursor"].as_str() else { break };
        path = format!("/v1/sources?limit=2&cursor={cursor}");
    }
    assert_eq!((listed, pages), (ids, 3));
    for (path, field) in [
        ("/v1/sources?cursor=x", "cursor"),
        ("/v1/sources?limit=0", "limit"),
        ("/v1/sources?name=a", "name"),
    ] {
        assert_eq!(gateway.get(path).await.problem(422), [field], "{path}");
    }
}

#[tokio::test]
async fn a_new_token_is_a_new_url_and_the_old_one_is_dead() {
    let gateway = Gateway::start().await;
    let made = make(&gateway, json!({"name": "open", "verify": {"scheme": "none"}})).await;
    let old = text(&made, "url").to_owned();
    assert_eq!(gateway.call(post_to(&old, "1")).await.status, 202);
    let rotated = gateway.ask(Method::POST, &format!("{}/rotate-token", path_of(&made))).await;
    assert_eq!(rotated.status, 200, "{rotated:?}");
    let rotated = rotated.json();
    let new = text(&rotated, "url").to_owned();
    assert_ne!(new, old);
    assert_eq!(rotated["id"], made["id"]);
    gateway.call(post_to(&old, "2")).await.problem(404);
    assert_eq!(gateway.call(post_to(&new, "3")).await.status, 202);
    assert_eq!(gateway.get("/v1/stats").await.json()["events"], 2);
}

#[tokio::test]
async fn secrets_rotate_with_both_alive_in_between() {
    let gateway = Gateway::start().await;
    let verify = json!({"scheme": "github", "secret": "old"});
    let made = make(&gateway, json!({"name": "repository", "verify": verify})).await;
    let url = text(&made, "url").to_owned();
    let accepted = async |secret: &str| gateway.call(github(&url, secret, "{}")).await.status;
    assert_eq!(accepted("old").await, 202);
    assert_eq!(accepted("new").await, 401);
    for (secrets, old, new) in [(json!(["new", "old"]), 202, 202), (json!(["new"]), 401, 202)] {
        let change = json!({"verify": {"secrets": secrets}});
        let changed = gateway.call(Call::new(Method::PATCH, &path_of(&made)).json(&change)).await;
        assert_eq!(changed.json()["verify"]["secrets"], secrets.as_array().map_or(0, Vec::len));
        assert_eq!(accepted("old").await, old, "{secrets}");
        assert_eq!(accepted("new").await, new, "{secrets}");
    }
}

#[tokio::test]
async fn another_tenants_source_is_not_there() {
    let gateway = Gateway::start().await;
    let tenant = gateway.post("/v1/tenants", json!({"name": "acme"})).await;
    assert_eq!(tenant.status, 201, "{tenant:?}");
    let made = make(&gateway, json!({"name": "ours", "verify": {"scheme": "none"}})).await;
    let theirs = |method, path: &str| Call::new(method, path).header("postrider-tenant", "acme");
    let path = path_of(&made);
    for (method, path) in [
        (Method::GET, path.clone()),
        (Method::DELETE, path.clone()),
        (Method::POST, format!("{path}/rotate-token")),
    ] {
        gateway.call(theirs(method, &path)).await.problem(404);
    }
    let change = theirs(Method::PATCH, &path).json(&json!({"name": "mine"}));
    gateway.call(change).await.problem(404);
    let listed = gateway.call(theirs(Method::GET, "/v1/sources")).await;
    assert_eq!(listed.json()["data"], json!([]));
    assert_eq!(gateway.get(&path).await.json(), made, "as it was");

    let body = json!({"name": "theirs", "verify": {"scheme": "none"}});
    let made = gateway.call(theirs(Method::POST, "/v1/sources").json(&body)).await.json();
    let accepted = gateway.call(post_to(text(&made, "url"), "{}")).await.json();
    let event = format!("/v1/events/{}", text(&accepted, "id"));
    gateway.get(&event).await.problem(404);
    assert_eq!(gateway.call(theirs(Method::GET, &event)).await.json()["source"], made["id"]);
}

#[tokio::test]
async fn what_cannot_be_a_source_is_refused_by_the_name_of_the_field() {
    let gateway = Gateway::start().await;
    let made = make(&gateway, json!({"name": "a", "verify": {"scheme": "none"}})).await;
    for (body, field) in [
        (json!({"verify": {"scheme": "none"}}), "name"),
        (json!({"name": "a"}), "verify"),
        (json!({"name": "a", "verify": {"scheme": "stripe"}}), "verify.secret"),
        (json!({"name": "a", "verify": {"scheme": "stripe", "secret": ""}}), "verify.secret"),
        (json!({"name": "a", "verify": {"scheme": "none"}, "token": "mine"}), "token"),
    ] {
        assert_eq!(gateway.post("/v1/sources", body.clone()).await.problem(422), [field], "{body}");
    }
    for (body, field) in [
        (json!({"name": null}), "name"),
        (json!({"verify": {"scheme": "github"}}), "verify.secret"),
        (json!({"verify": {"secrets": ["x"]}}), "verify.secret"),
        (json!({"type_from": {"json_pointer": "x"}}), "type_from.json_pointer"),
        (json!({"url": "/in/mine"}), "url"),
    ] {
        let reply = gateway.call(Call::new(Method::PATCH, &path_of(&made)).json(&body)).await;
        assert_eq!(reply.problem(422), [field], "{body}");
    }
    let rotate = Call::new(Method::POST, &format!("{}/rotate-token", path_of(&made)));
    assert_eq!(gateway.call(rotate.json(&json!({"to": "mine"}))).await.problem(422), ["to"]);
    for id in ["ep_0000000000000", "7", "%FF"] {
        assert_eq!(gateway.get(&format!("/v1/sources/{id}")).await.problem(404), ["id"], "{id}");
    }
    assert_eq!(gateway.get(&path_of(&made)).await.json(), made, "as it was");
    assert_eq!(gateway.get("/v1/sources").await.json()["data"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn every_change_is_audited_without_what_is_secret() {
    let gateway = Gateway::start().await;
    let verify = json!({"scheme": "github", "secret": SECRET});
    let made = make(&gateway, json!({"name": "repository", "verify": verify})).await;
    let path = path_of(&made);
    let change = json!({"name": "b", "verify": {"secret": "another-secret"}});
    gateway.call(Call::new(Method::PATCH, &path).json(&change)).await;
    gateway.ask(Method::POST, &format!("{path}/rotate-token")).await;
    gateway.ask(Method::DELETE, &path).await;
    let subject = Some(text(&made, "id").to_owned());
    let query = AuditQuery { subject, limit: 10, ..AuditQuery::default() };
    let rows = gateway.engine.store().audit(query).await.expect("rows");
    let actions: Vec<&str> = rows.iter().rev().map(|row| row.action.as_str()).collect();
    assert_eq!(actions, ["source.create", "source.update", "source.rotate_token", "source.delete"]);
    let changed = rows[2].detail.as_deref().expect("what was changed");
    assert_eq!(changed, r#"{"changed":["name","verify.secrets"]}"#);
    let all = format!("{rows:?}");
    let token = text(&made, "url").trim_start_matches("/in/");
    for secret in [SECRET, "another-secret", token] {
        assert!(!all.contains(secret), "{all}");
    }
}

#[tokio::test]
async fn sources_are_there_again_after_a_start() {
    let mut gateway = Gateway::start().await;
    let verify = json!({"scheme": "github", "secret": SECRET});
    let made = make(&gateway, json!({"name": "repository", "verify": verify})).await;
    let inbound = Inbound::load(&**gateway.engine.store()).await.expect("the sources");
    let keys = gateway.keys.clone();
    let routes = router(gateway.engine.clone(), keys, inbound, ServerOptions::default());
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    gateway.address = listener.local_addr().expect("an address");
    tokio::spawn(serve(listener, routes, ConnectionLimits::default(), std::future::pending()));
    assert_eq!(gateway.get(&path_of(&made)).await.json(), made);
    let url = text(&made, "url");
    assert_eq!(gateway.call(github(url, SECRET, "{}")).await.status, 202);
    gateway.call(github(url, "another", "{}")).await.problem(401);
    let next = make(&gateway, json!({"name": "next", "verify": {"scheme": "none"}})).await;
    assert!(text(&next, "id") > text(&made, "id"));
}
