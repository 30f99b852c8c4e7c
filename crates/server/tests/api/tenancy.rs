//! No tenant sees or changes what another one has. The visits are made from the description of the
//! API, so a route is covered by being described, and every route is.

use bytes::Bytes;
use http::{Method, StatusCode};
use http_body_util::BodyExt as _;
use postrider_engine::notices::NoticeKind;
use serde_json::{Value, json};

use crate::gateway::{Call, Gateway, PATIENCE, Reply, await_notice};
use crate::sink::Sink;

/// Stands in everything that the other tenant has.
const MARKER: &str = "zebra7f3a";
const THEIRS: &str = "zebra7f3a-tenant";
const OURS: &str = "ours";

/// What the examples of the description call things by.
const EXAMPLE_DIGITS: &str = "0a1b2c3d4e5f6";
const EXAMPLE_LEASE: &str = "lse_0a1b2c3d4e5f600000001";

/// One tenant's key, and its ids by the schema that they have in the description.
struct Belongings {
    key: String,
    ids: Vec<(&'static str, String)>,
}

impl Belongings {
    fn id(&self, schema: &str) -> Option<&str> {
        self.ids.iter().find(|(name, _)| *name == schema).map(|(_, id)| id.as_str())
    }

    fn call(&self, method: Method, path: &str) -> Call {
        let call = Call::new(method, path).without_key();
        call.header("authorization", &format!("Bearer {}", self.key))
    }

    /// A text of the description with this tenant's ids in place of those in examples.
    fn fill(&self, text: &str) -> String {
        let text = self.id("LeaseToken").map(|lease| text.replace(EXAMPLE_LEASE, lease));
        let text = text.expect("everybody has a lease");
        self.ids.iter().fold(text, |text, (_, id)| match id.split_once('_') {
            Some((prefix, _)) => text.replace(&format!("{prefix}_{EXAMPLE_DIGITS}"), id),
            None => text,
        })
    }
}

/// One operation of the description.
struct Operation<'a> {
    document: &'a Value,
    method: Method,
    path: &'a str,
    about: &'a Value,
}

impl<'a> Operation<'a> {
    fn all(document: &'a Value) -> Vec<Self> {
        let paths = document["paths"].as_object().expect("paths");
        let of_path = |(path, methods): (&'a String, &'a Value)| {
            let methods = methods.as_object().expect("methods");
            methods.iter().map(move |(method, about)| Self {
                document,
                method: method.to_uppercase().parse().expect("a method"),
                path,
                about,
            })
        };
        paths.iter().flat_map(of_path).collect()
    }

    fn name(&self) -> &'a str {
        self.about["operationId"].as_str().expect("a name")
    }

    fn needs_key(&self) -> bool {
        self.about["security"] == json!([{"key": []}])
    }

    /// Whether what is in the path is a secret of its own: who has none like it is told nothing, not
    /// even that it is another's.
    fn is_lease(&self) -> bool {
        self.parameters("path").any(|(_, schema)| schema_name(schema) == "LeaseToken")
    }

    fn is_endless(&self) -> bool {
        self.about["responses"]["200"]["content"].get("text/event-stream").is_some()
    }

    fn parameters(&self, place: &'static str) -> impl Iterator<Item = (&'a str, &'a Value)> {
        let listed = self.about["parameters"].as_array().map(Vec::as_slice).unwrap_or_default();
        let document = self.document;
        listed.iter().filter_map(move |parameter| {
            let parameter = match parameter["$ref"].as_str() {
                Some(reference) => document.pointer(&reference[1..]).expect(reference),
                None => parameter,
            };
            let name = parameter["name"].as_str().expect("a name");
            (parameter["in"] == place).then_some((name, &parameter["schema"]))
        })
    }

    fn has_ids(&self) -> bool {
        self.parameters("path").next().is_some()
    }

    /// The path with somebody's ids in it. What cannot be filled in fails the test: a new kind of id
    /// needs somebody who has one.
    fn path_of(&self, of: &Belongings) -> String {
        self.parameters("path").fold(self.path.to_owned(), |path, (name, schema)| {
            let kind = schema_name(schema);
            let id = of.id(kind);
            let id = id.unwrap_or_else(|| panic!("{}: nobody has a {kind}", self.name()));
            path.replace(&format!("{{{name}}}"), id)
        })
    }

    /// Every way to name somebody's things in the query string.
    fn queries(&self, of: &Belongings) -> Vec<String> {
        let named = self.parameters("query").filter_map(|(name, schema)| {
            let id = of.id(schema_name(schema)).map(str::to_owned);
            let value = id.or_else(|| match name {
                "idempotency_key" => Some(MARKER.to_owned()),
                "subject" => of.id("EndpointId").map(str::to_owned),
                _ => None,
            })?;
            Some(format!("?{name}={value}"))
        });
        std::iter::once(String::new()).chain(named).collect()
    }

    /// The bodies to send: the example, and others that name somebody's things.
    fn bodies(&self, of: &Belongings) -> Vec<Option<String>> {
        let example = &self.about["requestBody"]["content"]["application/json"]["example"];
        if example.is_null() {
            return vec![None];
        }
        let mut bodies = vec![Some(of.fill(&example.to_string()))];
        if self.name() == "previewFilter" {
            let id = of.id("EventId");
            let body = json!({"filter": "event.payload.secret == 'x'", "event_id": id});
            bodies.push(Some(body.to_string()));
        }
        bodies
    }
}

fn schema_name(schema: &Value) -> &str {
    schema["$ref"].as_str().and_then(|reference| reference.rsplit('/').next()).unwrap_or_default()
}

/// Makes a tenant with one of everything.
async fn settle(gateway: &Gateway, name: &str, mark: &str, sink: &mut Sink) -> Belongings {
    let made = gateway.post("/v1/tenants", json!({"name": name})).await;
    assert_eq!(made.status, 201, "{made:?}");
    let key = gateway.post("/v1/keys", json!({"name": mark, "tenant": name})).await.json();
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let mut own = Belongings { key: text(&key["key"]), ids: vec![("KeyId", text(&key["id"]))] };
    let post = async |path: &str, body: Value, status: u16| {
        let reply = gateway.call(own.call(Method::POST, path).json(&body)).await;
        assert_eq!(reply.status, status, "{reply:?}");
        reply.json()
    };
    let mut notices = gateway.engine.notices().subscribe();
    let endpoint = json!({
        "name": mark,
        "url": sink.url,
        "event_types": [format!("{mark}.made")],
        "policy": "edge",
        "headers": {"x-mark": mark},
        "metadata": {"mark": mark},
    });
    let endpoint = text(&post("/v1/endpoints", endpoint, 201).await["id"]);
    let source = json!({"name": mark, "verify": {"scheme": "github", "secret": mark}});
    let source = text(&post("/v1/sources", source, 201).await["id"]);
    let hub = text(&post("/v1/hubs", json!({"name": mark}), 201).await["id"]);
    let pulled = json!({"name": mark, "pull": true, "event_types": [format!("{mark}.pulled")]});
    let pulled = text(&post("/v1/endpoints", pulled, 201).await["id"]);
    let waiting = json!({"type": format!("{mark}.pulled"), "payload": {"secret": mark}});
    post("/v1/events", waiting, 202).await;
    let leased = post(&format!("/v1/endpoints/{pulled}/lease"), json!({}), 200).await;
    let lease = text(&leased["leases"][0]["lease"]);
    let event = json!({
        "type": format!("{mark}.made"),
        "payload": {"secret": mark},
        "idempotency_key": mark,
        "ordering_key": mark,
        "metadata": {"session_id": mark},
    });
    let event = text(&post("/v1/events", event, 202).await["id"]);
    sink.next().await;
    await_notice(&mut notices, NoticeKind::Failed).await;
    let filter = json!({"filter": {"endpoint": endpoint, "state": "dead"}});
    let job = text(&post("/v1/dead-letters/replay", filter, 202).await["job"]);
    let path = format!("/v1/events/{event}/deliveries");
    let listed = gateway.call(own.call(Method::GET, &path)).await.json();
    own.ids.extend([
        ("EndpointId", endpoint),
        ("HubId", hub),
        ("LeaseToken", lease),
        ("SourceId", source),
        ("EventId", event),
        ("JobId", job),
        ("DeliveryId", text(&listed["data"][0]["id"])),
        ("TenantName", name.to_owned()),
        // Whoever knows the token may post; what is tried is one that nobody has.
        ("SourceToken", "0".repeat(43)),
    ]);
    own
}

/// What a tenant sees of itself: unchanged, if nobody else could change it.
async fn look(gateway: &Gateway, own: &Belongings) -> Vec<Value> {
    let mut seen = Vec::new();
    for (prefix, schema) in [
        ("/v1/endpoints", "EndpointId"),
        ("/v1/sources", "SourceId"),
        ("/v1/hubs", "HubId"),
        ("/v1/events", "EventId"),
        ("/v1/deliveries", "DeliveryId"),
        ("/v1/jobs", "JobId"),
        ("/v1/keys", "KeyId"),
    ] {
        let path = format!("{prefix}/{}", own.id(schema).expect(schema));
        let reply = gateway.call(own.call(Method::GET, &path)).await;
        assert_eq!(reply.status, 200, "{path} {reply:?}");
        let mut shown = reply.json();
        // By looking, it uses its key.
        shown.as_object_mut().expect("an object").remove("last_used_at");
        seen.push(shown);
    }
    for path in ["/v1/dead-letters", "/v1/deliveries?state=in_flight"] {
        seen.push(gateway.call(own.call(Method::GET, path)).await.json());
    }
    seen
}

#[track_caller]
fn has_nothing_of(theirs: &Belongings, sent: &str, reply: &Reply, place: &str) {
    let body = String::from_utf8_lossy(&reply.body);
    let headers = format!("{:?}", reply.headers);
    let ids = theirs.ids.iter().map(|(_, id)| id.as_str());
    for secret in ids.chain([MARKER, theirs.key.as_str()]) {
        // What was sent along may be repeated.
        if !sent.contains(secret) {
            assert!(!body.contains(secret), "{place} shows {secret}: {body}");
            assert!(!headers.contains(secret), "{place} shows {secret}: {headers}");
        }
    }
}

#[tokio::test]
async fn another_tenants_things_can_be_neither_seen_nor_changed() {
    let gateway = Gateway::start().await;
    let mut sink = Sink::answering(400).await;
    let theirs = settle(&gateway, THEIRS, MARKER, &mut sink).await;
    let ours = settle(&gateway, OURS, "ours", &mut sink).await;
    let before = look(&gateway, &theirs).await;

    let document = gateway.call(Call::new(Method::GET, "/openapi.json").without_key()).await;
    let document = document.json();
    let operations = Operation::all(&document);
    assert!(operations.len() > 50, "only {} operations", operations.len());
    for operation in operations.iter().filter(|operation| !operation.is_endless()) {
        let path = operation.path_of(&theirs);
        for query in operation.queries(&theirs) {
            for body in operation.bodies(&theirs) {
                let uri = format!("{path}{query}");
                let place = format!("{} {uri}", operation.method);
                let mut call = ours.call(operation.method.clone(), &uri);
                if let Some(body) = &body {
                    let body = Bytes::from(body.clone());
                    call = call.header("content-type", "application/json").body(body);
                }
                let reply = gateway.call(call).await;
                let sent = format!("{uri} {}", body.as_deref().unwrap_or_default());
                has_nothing_of(&theirs, &sent, &reply, &place);
                let status = reply.status.as_u16();
                assert!(status < 500, "{place}: {reply:?}");
                if operation.is_lease() {
                    assert_eq!(status, 409, "{place}: {reply:?}");
                } else if operation.has_ids() {
                    assert!([403, 404].contains(&status), "{place}: {reply:?}");
                }
            }
        }
    }
    assert_eq!(look(&gateway, &theirs).await, before);
}

#[tokio::test]
async fn what_is_ours_cannot_be_joined_to_what_is_theirs() {
    let gateway = Gateway::start().await;
    let mut sink = Sink::answering(400).await;
    let theirs = settle(&gateway, THEIRS, MARKER, &mut sink).await;
    let ours = settle(&gateway, OURS, "ours", &mut sink).await;
    let document = gateway.get("/openapi.json").await.json();
    let mut visited = 0;
    for operation in Operation::all(&document).iter().filter(|operation| operation.has_ids()) {
        for body in operation.bodies(&ours).into_iter().zip(operation.bodies(&theirs)) {
            // Only bodies that name something.
            let (Some(own), Some(other)) = body else { continue };
            if own == other {
                continue;
            }
            visited += 1;
            let path = operation.path_of(&ours);
            let call = ours.call(operation.method.clone(), &path);
            let call = call.header("content-type", "application/json").body(other.clone());
            let reply = gateway.call(call).await;
            assert!(reply.status.is_client_error(), "{path} {other}: {reply:?}");
            has_nothing_of(&theirs, &other, &reply, &path);
        }
    }
    assert!(visited > 0, "no operation names anything in its body");
}

#[tokio::test]
async fn every_operation_is_shut_without_a_key_and_to_the_key_of_another_tenant() {
    let gateway = Gateway::start().await;
    let mut sink = Sink::answering(400).await;
    let theirs = settle(&gateway, THEIRS, MARKER, &mut sink).await;
    let ours = settle(&gateway, OURS, "ours", &mut sink).await;
    let document = gateway.get("/openapi.json").await.json();
    for operation in Operation::all(&document).iter().filter(|operation| operation.needs_key()) {
        let (method, path) = (&operation.method, operation.path_of(&theirs));
        let anonymous = Call::new(method.clone(), &path).without_key();
        gateway.call(anonymous).await.problem(401);
        let elsewhere = ours.call(method.clone(), &path).header("postrider-tenant", THEIRS);
        let reply = gateway.call(elsewhere).await;
        assert!(reply.problem(403).is_empty(), "{method} {path}");
        has_nothing_of(&theirs, &path, &reply, &path);
    }
}

/// The same visits by the owner: if they did not show what is there, the test above would prove
/// nothing.
#[tokio::test]
async fn the_owner_sees_what_others_do_not() {
    let gateway = Gateway::start().await;
    let mut sink = Sink::answering(400).await;
    let theirs = settle(&gateway, THEIRS, MARKER, &mut sink).await;
    let document = gateway.get("/openapi.json").await.json();
    let mut marked = Vec::new();
    for operation in Operation::all(&document) {
        if operation.method != Method::GET || operation.is_endless() || !operation.needs_key() {
            continue;
        }
        let path = operation.path_of(&theirs);
        let reply = gateway.call(theirs.call(Method::GET, &path)).await;
        let admins_only =
            ["/v1/tenants", "/v1/nodes"].into_iter().any(|path| operation.path.starts_with(path));
        let expected = if admins_only { StatusCode::FORBIDDEN } else { StatusCode::OK };
        assert_eq!(reply.status, expected, "{path}: {reply:?}");
        if String::from_utf8_lossy(&reply.body).contains(MARKER) {
            marked.push(operation.name());
        }
    }
    for name in [
        "listEvents",
        "showPayload",
        "listEndpoints",
        "listSources",
        "showHub",
        "showKey",
        "listAudit",
    ] {
        assert!(marked.contains(&name), "{name} does not show the marker: {marked:?}");
    }
}

#[tokio::test]
async fn a_stream_tells_of_its_own_tenant_only() {
    let gateway = Gateway::start().await;
    let mut sink = Sink::answering(400).await;
    let theirs = settle(&gateway, THEIRS, MARKER, &mut sink).await;
    // What happens to us comes after what happens to them, and both are remembered.
    let ours = settle(&gateway, OURS, "ours", &mut sink).await;
    let document = gateway.get("/openapi.json").await.json();
    for operation in Operation::all(&document).iter().filter(|operation| operation.is_endless()) {
        let call = ours.call(Method::GET, operation.path).header("last-event-id", "0");
        let mut body = gateway.open(call).await.into_body();
        let mut seen = String::new();
        while !seen.contains(ours.id("DeliveryId").expect("a delivery")) {
            let frame = tokio::time::timeout(PATIENCE, body.frame()).await.expect("in time");
            let frame = frame.expect("the stream goes on").expect("no error");
            seen.push_str(&String::from_utf8_lossy(frame.data_ref().expect("data")));
        }
        assert!(!seen.contains(MARKER), "{seen}");
        assert!(!seen.contains(theirs.id("DeliveryId").expect("a delivery")), "{seen}");
    }
}
