//! `/v1/keys`: making, changing and revoking keys, and who may.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Method;
use postrider_store::registry::KeyRecord;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tracing_subscriber::filter::LevelFilter;

use crate::gateway::{Call, Gateway, PATIENCE, Reply, START};

/// A key that was made over HTTP.
#[derive(Debug, Clone)]
pub(crate) struct Key {
    pub(crate) id: String,
    pub(crate) key: String,
}

impl Key {
    pub(crate) fn call(&self, method: Method, path: &str) -> Call {
        let value = format!("Bearer {}", self.key);
        Call::new(method, path).without_key().header("authorization", &value)
    }

    pub(crate) fn path(&self) -> String {
        format!("/v1/keys/{}", self.id)
    }
}

impl Gateway {
    pub(crate) async fn tenant(&self, name: &str) {
        let reply = self.post("/v1/tenants", json!({"name": name})).await;
        assert_eq!(reply.status, 201, "{reply:?}");
    }

    pub(crate) async fn key(&self, body: Value) -> Key {
        made(&self.post("/v1/keys", body).await)
    }

    pub(crate) async fn patch(&self, path: &str, body: Value) -> Reply {
        self.call(Call::new(Method::PATCH, path).json(&body)).await
    }

    /// The status of a request that any live key may make.
    pub(crate) async fn try_key(&self, key: &Key) -> u16 {
        self.call(key.call(Method::GET, "/v1/stats")).await.status.as_u16()
    }

    /// The key that the gateway was started with.
    pub(crate) async fn own(&self) -> Key {
        let ids = ids(&self.get("/v1/keys").await.json());
        Key { id: ids.last().expect("the first key").clone(), key: self.key.clone() }
    }
}

fn made(reply: &Reply) -> Key {
    assert_eq!(reply.status, 201, "{reply:?}");
    let body = reply.json();
    Key { id: text(&body["id"]), key: text(&body["key"]) }
}

fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}

fn ids(list: &Value) -> Vec<String> {
    list["data"].as_array().expect("a list").iter().map(|row| text(&row["id"])).collect()
}

#[tokio::test]
async fn a_new_key_is_shown_in_full_once() {
    let gateway = Gateway::start().await;
    gateway.tenant("acme").await;
    let expires_at = START.plus(Duration::from_hours(1)).to_string();
    let body = json!({"name": "ci", "tenant": "acme", "expires_at": expires_at});
    let reply = gateway.post("/v1/keys", body).await;
    let key = made(&reply);
    assert!(key.id.starts_with("key_"), "{key:?}");
    assert_eq!(key.key.strip_prefix("pr_").map(str::len), Some(43), "{key:?}");
    let mut shown = reply.json();
    let members = shown.as_object_mut().expect("an object");
    members.remove("key");
    assert_eq!(
        shown,
        json!({
            "id": key.id,
            "name": "ci",
            "role": "tenant",
            "tenant": "acme",
            "created_at": START,
            "expires_at": expires_at,
            "revoked_at": null,
            "last_used_at": null,
        })
    );
    assert_eq!(gateway.get(&key.path()).await.json(), shown);
    assert_eq!(gateway.get("/v1/keys").await.json()["data"][0], shown);
    assert_eq!(gateway.try_key(&key).await, 200);
}

#[tokio::test]
async fn a_key_is_nowhere_but_in_the_answer_that_made_it() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(LevelFilter::TRACE)
        .with_writer(move || writer.clone())
        .finish();
    let _logging = tracing::subscriber::set_default(subscriber);

    let gateway = Gateway::start().await;
    let key = gateway.key(json!({"name": "secretive"})).await;
    let admin = gateway.key(json!({"name": "secretive too", "role": "admin"})).await;
    for key in [&key, &admin] {
        assert_eq!(gateway.try_key(key).await, 200);
        assert_eq!(gateway.patch(&key.path(), json!({"name": "renamed"})).await.status, 200);
        gateway.call(key.call(Method::POST, "/v1/keys").body("no JSON")).await.problem(422);
        gateway.call(key.call(Method::GET, "/v1/keys/nonsense")).await.problem(404);
        assert_eq!(gateway.ask(Method::DELETE, &key.path()).await.status, 204);
        gateway.call(key.call(Method::GET, "/v1/keys")).await.problem(401);
    }
    gateway.keys.flush(&**gateway.engine.store()).await.expect("written");
    tracing::info!("the log is being read");

    let mut places = vec![("log", log.text()), ("debug", format!("{:?}", gateway.keys))];
    for path in ["/v1/keys", "/v1/audit", &key.path(), &admin.path()] {
        let reply = gateway.get(path).await;
        assert_eq!(reply.status, 200, "{path}");
        places.push(("answer", format!("{:?} {:?}", reply.headers, reply.body)));
    }
    assert!(places[0].1.contains("the log is being read"), "nothing is captured");
    for (place, content) in &places {
        for key in [&key, &admin] {
            let secret = key.key.trim_start_matches("pr_");
            assert!(!content.contains(secret), "in {place}: {content}");
        }
        assert!(!content.contains("sha256"), "in {place}: {content}");
    }
}

#[tokio::test]
async fn what_makes_no_key_is_refused_by_the_name_of_the_field() {
    let gateway = Gateway::start().await;
    let long = "n".repeat(201);
    for (body, field) in [
        (json!({}), "name"),
        (json!({"name": ""}), "name"),
        (json!({"name": " "}), "name"),
        (json!({"name": "a\nb"}), "name"),
        (json!({"name": long}), "name"),
        (json!({"name": 7}), "name"),
        (json!({"name": "a", "role": "owner"}), "role"),
        (json!({"name": "a", "tenant": "nobody"}), "tenant"),
        (json!({"name": "a", "tenant": 1}), "tenant"),
        (json!({"name": "a", "role": "admin", "tenant": "default"}), "tenant"),
        (json!({"name": "a", "expires_at": "tomorrow"}), "expires_at"),
        (json!({"name": "a", "expires_at": START}), "expires_at"),
        (json!({"name": "a", "key": "pr_mine"}), "key"),
    ] {
        assert_eq!(gateway.post("/v1/keys", body.clone()).await.problem(422), [field], "{body}");
    }
    let key = gateway.key(json!({"name": "a"})).await;
    for (body, field) in [
        (json!({"name": ""}), "name"),
        (json!({"expires_at": START}), "expires_at"),
        (json!({"expires_at": 5}), "expires_at"),
        (json!({"role": "admin"}), "role"),
        (json!({"revoked_at": null}), "revoked_at"),
    ] {
        assert_eq!(gateway.patch(&key.path(), body.clone()).await.problem(422), [field], "{body}");
    }
    for query in ["limit=0", "cursor=key_", "cursor=7", "tenant=acme"] {
        let fields = gateway.get(&format!("/v1/keys?{query}")).await.problem(422);
        assert_eq!(fields, [query.split('=').next().expect("a name")]);
    }
    assert_eq!(gateway.get("/v1/keys").await.json()["data"].as_array().map(Vec::len), Some(2));
}

#[tokio::test]
async fn a_tenants_key_manages_the_keys_of_its_tenant_only() {
    let gateway = Gateway::start().await;
    gateway.tenant("acme").await;
    gateway.tenant("globex").await;
    let own = gateway.key(json!({"name": "own", "tenant": "acme"})).await;
    let sibling = gateway.key(json!({"name": "sibling", "tenant": "acme"})).await;
    let other = gateway.key(json!({"name": "other", "tenant": "globex"})).await;
    let admin = gateway.own().await;

    let listed = gateway.call(own.call(Method::GET, "/v1/keys")).await.json();
    assert_eq!(ids(&listed), [sibling.id.as_str(), own.id.as_str()]);
    for foreign in [&other, &admin] {
        let before = gateway.get(&foreign.path()).await.json()["name"].clone();
        let change = json!({"name": "taken over"});
        for call in [
            own.call(Method::GET, &foreign.path()),
            own.call(Method::DELETE, &foreign.path()),
            own.call(Method::PATCH, &foreign.path()).json(&change),
        ] {
            let reply = gateway.call(call).await;
            assert!(reply.problem(404).is_empty());
            assert_eq!(reply.json()["detail"], "there is no such key");
        }
        let after = gateway.get(&foreign.path()).await.json();
        assert_eq!((&after["name"], &after["revoked_at"]), (&before, &Value::Null));
    }
    for (body, status) in [
        (json!({"name": "a", "role": "admin"}), 403),
        (json!({"name": "a", "tenant": "globex"}), 403),
        (json!({"name": "a", "tenant": "default"}), 403),
        (json!({"name": "a", "tenant": "nobody"}), 403),
    ] {
        gateway.call(own.call(Method::POST, "/v1/keys").json(&body)).await.problem(status);
    }
    for body in [json!({"name": "a"}), json!({"name": "b", "role": "tenant", "tenant": "acme"})] {
        let reply = gateway.call(own.call(Method::POST, "/v1/keys").json(&body)).await;
        assert_eq!(reply.json()["tenant"], "acme");
        assert_eq!(gateway.try_key(&made(&reply)).await, 200);
    }
    let change = json!({"name": "renamed"});
    let renamed = gateway.call(own.call(Method::PATCH, &sibling.path()).json(&change)).await;
    assert_eq!(renamed.json()["name"], "renamed");
    assert_eq!(gateway.call(own.call(Method::DELETE, &sibling.path())).await.status, 204);
    assert_eq!(gateway.try_key(&sibling).await, 401);
}

#[tokio::test]
async fn an_admin_key_manages_all_keys_or_those_of_the_tenant_it_names() {
    let gateway = Gateway::start().await;
    gateway.tenant("acme").await;
    let admin = gateway.own().await;
    let in_acme = |method, path: &str| admin.call(method, path).header("postrider-tenant", "acme");
    let new = json!({"name": "by header"});
    let theirs = made(&gateway.call(in_acme(Method::POST, "/v1/keys").json(&new)).await);
    let usual = gateway.key(json!({"name": "usual"})).await;
    assert_eq!(gateway.get(&theirs.path()).await.json()["tenant"], "acme");
    assert_eq!(gateway.get(&usual.path()).await.json()["tenant"], "default");

    assert_eq!(ids(&gateway.get("/v1/keys").await.json()).len(), 3);
    let listed = gateway.call(in_acme(Method::GET, "/v1/keys")).await.json();
    assert_eq!(ids(&listed), [theirs.id.as_str()]);
    for foreign in [&usual, &admin] {
        gateway.call(in_acme(Method::GET, &foreign.path())).await.problem(404);
        gateway.call(in_acme(Method::DELETE, &foreign.path())).await.problem(404);
    }
    let elsewhere = json!({"name": "a", "tenant": "default"});
    let refused = gateway.call(in_acme(Method::POST, "/v1/keys").json(&elsewhere)).await;
    assert_eq!(refused.problem(422), ["tenant"]);
    let powerful = json!({"name": "a", "role": "admin"});
    let refused = gateway.call(in_acme(Method::POST, "/v1/keys").json(&powerful)).await;
    assert_eq!(refused.problem(422), ["role"]);
}

#[tokio::test]
async fn a_list_goes_on_where_it_ended_while_keys_come_and_go() {
    let gateway = Gateway::start().await;
    let mut made = Vec::new();
    for index in 0..5 {
        made.push(gateway.key(json!({"name": format!("key {index}")})).await);
    }
    let first = gateway.get("/v1/keys?limit=2").await.json();
    assert_eq!(ids(&first), [made[4].id.as_str(), made[3].id.as_str()]);
    gateway.key(json!({"name": "newer"})).await;
    assert_eq!(gateway.ask(Method::DELETE, &made[3].path()).await.status, 204);
    let cursor = text(&first["next_cursor"]);
    let second = gateway.get(&format!("/v1/keys?limit=3&cursor={cursor}")).await.json();
    assert_eq!(ids(&second), [2, 1, 0].map(|index: usize| made[index].id.clone()));
    let cursor = text(&second["next_cursor"]);
    let last = gateway.get(&format!("/v1/keys?limit=3&cursor={cursor}")).await.json();
    assert_eq!(ids(&last), [gateway.own().await.id]);
    assert_eq!(last["next_cursor"], Value::Null);
}

#[tokio::test]
async fn a_key_opens_nothing_from_the_moment_it_expires() {
    let gateway = Gateway::start().await;
    let expiry = START.plus(Duration::from_mins(10));
    let key = gateway.key(json!({"name": "short", "expires_at": expiry})).await;
    gateway.clock.set(expiry.minus(Duration::from_millis(1)));
    assert_eq!(gateway.try_key(&key).await, 200);
    gateway.clock.set(expiry);
    let reply = gateway.call(key.call(Method::GET, "/v1/stats")).await;
    assert!(reply.problem(401).is_empty());
    assert_eq!(reply.json()["detail"], "this key has expired");

    let later = expiry.plus(Duration::from_mins(1));
    let changed = gateway.patch(&key.path(), json!({"expires_at": later})).await;
    assert_eq!(changed.json()["expires_at"], json!(later));
    assert_eq!(gateway.try_key(&key).await, 200);
    gateway.clock.set(later);
    assert_eq!(gateway.try_key(&key).await, 401);
    let changed = gateway.patch(&key.path(), json!({"expires_at": null})).await;
    assert_eq!(changed.json()["expires_at"], Value::Null);
    assert_eq!(gateway.try_key(&key).await, 200);
}

#[tokio::test]
async fn a_revoked_key_opens_nothing_and_stays_in_the_list() {
    let gateway = Gateway::start().await;
    let key = gateway.key(json!({"name": "old"})).await;
    assert_eq!(gateway.try_key(&key).await, 200);
    gateway.clock.advance(Duration::from_secs(5));
    // By itself, which it may.
    let reply = gateway.call(key.call(Method::DELETE, &key.path())).await;
    assert_eq!((reply.status.as_u16(), reply.body.len()), (204, 0));
    let reply = gateway.call(key.call(Method::GET, "/v1/stats")).await;
    assert!(reply.problem(401).is_empty());
    assert_eq!(reply.json()["detail"], "this key has been revoked");

    let at = json!(START.plus(Duration::from_secs(5)));
    assert_eq!(gateway.get("/v1/keys").await.json()["data"][0]["revoked_at"], at);
    gateway.clock.advance(Duration::from_secs(5));
    assert_eq!(gateway.ask(Method::DELETE, &key.path()).await.status, 204);
    assert_eq!(gateway.get(&key.path()).await.json()["revoked_at"], at);
    for change in [json!({"name": "again"}), json!({"expires_at": null})] {
        gateway.patch(&key.path(), change).await.problem(409);
    }
    gateway.keys.reload(&**gateway.engine.store()).await.expect("reloaded");
    assert_eq!(gateway.try_key(&key).await, 401, "also after a start");
}

#[tokio::test]
async fn a_request_that_is_slow_does_not_outlive_its_key() {
    let gateway = Gateway::start().await;
    for path in ["/v1/keys", "/v1/tenants"] {
        let stolen = gateway.key(json!({"name": "stolen", "role": "admin"})).await;
        let body = json!({"name": "another"}).to_string();
        let mut stream = TcpStream::connect(gateway.address).await.expect("a connection");
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: gateway.test\r\nauthorization: Bearer {}\r\n\
             expect: 100-continue\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
            stolen.key,
            body.len()
        );
        stream.write_all(head.as_bytes()).await.expect("writable");
        // The body is asked for when the key has been looked at.
        let mut go_on = [0; "HTTP/1.1 100 Continue\r\n\r\n".len()];
        let read = tokio::time::timeout(PATIENCE, stream.read_exact(&mut go_on)).await;
        read.expect("in time").expect("readable");
        assert!(go_on.starts_with(b"HTTP/1.1 100 "), "{path}");
        assert_eq!(gateway.ask(Method::DELETE, &stolen.path()).await.status, 204);
        stream.write_all(body.as_bytes()).await.expect("writable");
        let mut answer = String::new();
        let read = tokio::time::timeout(PATIENCE, stream.read_to_string(&mut answer)).await;
        read.expect("in time").expect("readable");
        assert!(answer.starts_with("HTTP/1.1 401 "), "{path}: {answer}");
    }
    assert_eq!(ids(&gateway.get("/v1/keys").await.json()).len(), 3);
    gateway.get("/v1/tenants/another").await.problem(404);
}

#[tokio::test]
async fn the_last_admin_key_that_stays_cannot_be_taken_away() {
    let gateway = Gateway::start().await;
    let admin = gateway.own().await;
    let soon = START.plus(Duration::from_hours(1));
    let stays = async || {
        gateway.ask(Method::DELETE, &admin.path()).await.problem(409);
        gateway.patch(&admin.path(), json!({"expires_at": soon})).await.problem(409);
        assert_eq!(gateway.try_key(&admin).await, 200);
    };
    stays().await;
    gateway.key(json!({"name": "a tenant's"})).await;
    stays().await;
    let body = json!({"name": "for an hour", "role": "admin", "expires_at": soon});
    let passing = gateway.key(body).await;
    stays().await;
    let revoked = gateway.key(json!({"name": "revoked", "role": "admin"})).await;
    assert_eq!(gateway.ask(Method::DELETE, &revoked.path()).await.status, 204);
    stays().await;

    let renamed = gateway.patch(&admin.path(), json!({"name": "main", "expires_at": null})).await;
    assert_eq!(renamed.json()["name"], "main");
    assert_eq!(gateway.ask(Method::DELETE, &passing.path()).await.status, 204);
    let second = gateway.key(json!({"name": "second", "role": "admin"})).await;
    assert_eq!(gateway.patch(&admin.path(), json!({"expires_at": soon})).await.status, 200);
    assert_eq!(gateway.ask(Method::DELETE, &admin.path()).await.status, 204);
    gateway.call(second.call(Method::DELETE, &second.path())).await.problem(409);
}

#[tokio::test]
async fn two_admin_keys_that_revoke_each_other_leave_one() {
    let gateway = Gateway::start().await;
    let one = gateway.own().await;
    let two = gateway.key(json!({"name": "two", "role": "admin"})).await;
    let (first, second) = tokio::join!(
        gateway.call(one.call(Method::DELETE, &two.path())),
        gateway.call(two.call(Method::DELETE, &one.path())),
    );
    let revoked = [&first, &second].iter().filter(|reply| reply.status == 204).count();
    assert_eq!(revoked, 1, "{first:?} {second:?}");
    let open = [gateway.try_key(&one).await, gateway.try_key(&two).await];
    assert_eq!(open.iter().filter(|status| **status == 200).count(), 1, "{open:?}");
}

#[tokio::test]
async fn the_last_use_of_a_key_is_noted_every_minute() {
    let gateway = Gateway::start().await;
    let key = gateway.key(json!({"name": "used"})).await;
    let stored = async || {
        let keys = gateway.engine.store().keys().await.expect("readable");
        let found = keys.into_iter().find(|record: &KeyRecord| record.id.to_string() == key.id);
        found.expect("stored").last_used_at
    };
    gateway.clock.advance(Duration::from_secs(10));
    let first = START.plus(Duration::from_secs(10));
    assert_eq!(gateway.try_key(&key).await, 200);
    assert_eq!(gateway.get(&key.path()).await.json()["last_used_at"], json!(first));
    assert_eq!(stored().await, None, "not with every request");

    gateway.clock.advance(Duration::from_mins(1));
    let noted = async {
        while stored().await != Some(first) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, noted).await.expect("noted in time");

    let second = START.plus(Duration::from_secs(70));
    assert_eq!(gateway.try_key(&key).await, 200);
    // A change of the key does not lose it.
    assert_eq!(gateway.patch(&key.path(), json!({"name": "renamed"})).await.status, 200);
    assert_eq!(stored().await, Some(first));
    gateway.keys.flush(&**gateway.engine.store()).await.expect("written");
    assert_eq!(stored().await, Some(second));
    gateway.clock.advance(Duration::from_secs(1));
    assert_eq!(gateway.ask(Method::DELETE, &key.path()).await.status, 204);
    assert_eq!(gateway.try_key(&key).await, 401);
    let shown = gateway.get(&key.path()).await.json()["last_used_at"].clone();
    assert_eq!(shown, json!(second), "what was refused is no use");
}

/// What was logged.
#[derive(Debug, Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().expect("no panic")).into_owned()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no panic").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
