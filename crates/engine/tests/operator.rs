//! What operators are told and how: events of reserved types, messages for people, and endpoints
//! that are disabled because they fail for days. Time is virtual.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use postrider_core::endpoint::{Destination, EndpointState, Format, Spec};
use postrider_core::pattern::Pattern;
use postrider_core::signing::{Secret, Signer};
use postrider_core::{EndpointId, TenantId, Timestamp};
use postrider_engine::notices::{Notice, NoticeKind};
use postrider_engine::ports::{Clock as _, ManualClock, SystemEntropy};
use postrider_engine::{Acting, EndpointAction, Engine, Options, Private};
use postrider_store::Store;
use postrider_store::audit::{Actor, AuditQuery};
use postrider_store::ledger::EventQuery;
use postrider_store::sealing::{Keyring, SealingKey};
use postrider_store::sqlite::{self, Sqlite};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::broadcast;

#[allow(dead_code, reason = "other tests use the rest of it")]
mod rig;

use rig::sink::{self, Reply, Sink};

const PATIENCE: Duration = Duration::from_secs(30);
const START: Timestamp = Timestamp::from_millis(1_800_000_000_000);
const DAY: Duration = Duration::from_hours(24);
const TENANT: TenantId = TenantId::DEFAULT;
const ACTING: Acting = Acting::gateway(TENANT);

struct Gateway {
    engine: Engine,
    clock: ManualClock,
    notices: broadcast::Receiver<Arc<Notice>>,
    data: TempDir,
}

impl Gateway {
    async fn start(options: Options) -> Self {
        Self::open(TempDir::new().expect("a folder"), START, options).await
    }

    async fn open(data: TempDir, now: Timestamp, options: Options) -> Self {
        let keyring = Keyring::new(vec![SealingKey::from_bytes([7; 32])]).expect("one key");
        let path = data.path().join("postrider.db");
        let store = Sqlite::open(&path, sqlite::Options::default(), keyring).expect("a database");
        let store: Arc<dyn Store> = Arc::new(store);
        let options =
            Options { allowed: vec!["127.0.0.0/8".parse().expect("a network")], ..options };
        let clock = ManualClock::at(now);
        let engine =
            Engine::start(options, store, Arc::new(clock.clone()), Arc::new(SystemEntropy))
                .await
                .expect("the engine starts");
        let notices = engine.notices().subscribe();
        Self { engine, clock, notices, data }
    }

    /// Stops in good order and starts again.
    async fn restart(self, options: Options) -> Self {
        assert_eq!(self.engine.drain(PATIENCE).await.abandoned, 0);
        let now = self.clock.now();
        drop(self.engine);
        Self::open(self.data, now, options).await
    }

    async fn endpoint(&self, spec: Spec) -> EndpointId {
        let made = self.engine.create_endpoint(ACTING, spec, Private::default()).await;
        made.expect("an endpoint").id
    }

    async fn send(&self, kind: &str) {
        let body = Bytes::from_static(b"an event");
        rig::send_bodies(&self.engine, kind, vec![body]).await;
    }

    /// The next notice of this kind about this endpoint; others pass by.
    async fn notice(&mut self, kind: NoticeKind, endpoint: EndpointId) -> Arc<Notice> {
        let found = async {
            loop {
                let notice = self.notices.recv().await.expect("the engine goes on");
                if notice.kind == kind && notice.about() == Some(endpoint) {
                    return notice;
                }
            }
        };
        let found = tokio::time::timeout(PATIENCE, found).await;
        found.unwrap_or_else(|_| panic!("no {kind:?} of {endpoint} came"))
    }

    /// Lets time pass until the delivery of an endpoint is tried again, `times` times, each of
    /// which fails. Returns when the last of these was.
    async fn fail_on(&mut self, endpoint: EndpointId, times: usize) -> Timestamp {
        for _ in 0..times {
            self.clock.advance(DAY);
            self.notice(NoticeKind::RetryScheduled, endpoint).await;
        }
        self.clock.now()
    }

    fn state(&self, endpoint: EndpointId) -> EndpointState {
        self.engine.endpoint(TENANT, endpoint).expect("known").state
    }

    /// The types of all events, oldest first.
    async fn types(&self) -> Vec<String> {
        let query = EventQuery { limit: 100, ..EventQuery::default() };
        let listed = self.engine.store().events(TENANT, query).await.expect("readable");
        listed.rows.into_iter().rev().map(|event| event.kind).collect()
    }
}

fn spec(sink: &Sink, event_types: &[&str], policy: Value) -> Spec {
    let patterns = event_types.iter().map(|text| Pattern::parse(text).expect("a pattern"));
    Spec {
        event_types: patterns.collect(),
        policy: serde_json::from_value(policy).expect("a policy"),
        ..rig::spec(sink.url(), "replaced.above")
    }
}

/// Gives up after one attempt.
fn once() -> Value {
    json!({"schedule": {"list": ["1s"], "jitter": 0.0}, "max_attempts": 1})
}

/// Tries every day, for months.
fn daily() -> Value {
    json!({"schedule": {"list": ["24h"], "jitter": 0.0}, "max_attempts": 100})
}

fn payload(received: &sink::Received) -> Value {
    serde_json::from_slice(&received.body).expect("JSON")
}

#[tokio::test]
async fn a_dead_letter_is_told_to_who_asks_for_it_and_to_nobody_else() {
    let mut gateway = Gateway::start(Options::default()).await;
    let broken = Sink::start(|_| Reply::status(500).body("out of order")).await;
    let (exact, prefix, any, other) = (
        Sink::answering(200).await,
        Sink::answering(200).await,
        Sink::answering(200).await,
        Sink::answering(200).await,
    );
    let named = Spec { name: Some("Billing".into()), ..spec(&broken, &["order.*"], once()) };
    let endpoint = gateway.endpoint(named).await;
    gateway.endpoint(spec(&exact, &["postrider.delivery.dead"], once())).await;
    gateway.endpoint(spec(&prefix, &["postrider.*"], once())).await;
    let everything = gateway.endpoint(spec(&any, &["*"], once())).await;
    gateway.endpoint(spec(&other, &["postrider.endpoint.disabled"], once())).await;
    gateway.send("order.created").await;
    let notice = gateway.notice(NoticeKind::Dead, endpoint).await;
    let told = exact.nth(1).await;
    assert_eq!(told.header("postrider-event-type"), "postrider.delivery.dead");
    assert_eq!(told.header("content-type"), "application/json");
    assert!(told.header("webhook-signature").starts_with("v1,"));
    let delivery = notice.delivery.as_ref().expect("about a delivery");
    assert_eq!(
        payload(&told),
        json!({
            "id": notice.id.to_string(),
            "topic": "gateway:webhooks",
            "kind": "delivery.dead",
            "at": START,
            "tenant": "default",
            "endpoint_id": endpoint,
            "endpoint_name": "Billing",
            "delivery_id": delivery.delivery_id,
            "event_id": delivery.event_id,
            "correlation_id": null,
            "attempts": 1,
            "reason": "exhausted",
            "last_error": "HTTP 500 Internal Server Error: out of order",
            "next_attempt_at": null,
        })
    );
    // The one that goes to everything is told of, too, but is not told.
    prefix.nth(2).await;
    let mut kinds: Vec<_> =
        prefix.received().iter().map(|one| payload(one)["kind"].clone()).collect();
    kinds.sort_by_key(Value::to_string);
    assert_eq!(kinds, ["delivery.dead", "delivery.delivered"]);
    assert_eq!(any.bodies(), ["an event"]);
    assert_eq!((exact.count(), other.count()), (1, 0));
    assert_eq!(gateway.state(everything), EndpointState::Active);
}

#[tokio::test]
async fn what_becomes_of_telling_is_not_told() {
    let mut gateway = Gateway::start(Options::default()).await;
    let (broken, deaf) = (Sink::answering(500).await, Sink::answering(500).await);
    let (gone, watcher) = (Sink::answering(410).await, Sink::answering(200).await);
    let ordinary = gateway.endpoint(spec(&broken, &["order.*"], once())).await;
    let twice = json!({"schedule": {"list": ["1h"], "jitter": 0.0}, "max_attempts": 2});
    let fails = gateway.endpoint(spec(&deaf, &["postrider.*"], twice)).await;
    let leaves = gateway.endpoint(spec(&gone, &["postrider.*"], json!("standard"))).await;
    let types = ["postrider.endpoint.*", "postrider.delivery.cancelled"];
    gateway.endpoint(spec(&watcher, &types, once())).await;
    gateway.send("order.created").await;
    gateway.notice(NoticeKind::Dead, ordinary).await;
    // One is told, and fails; one is told, and is disabled for its answer.
    gateway.notice(NoticeKind::EndpointDisabled, leaves).await;
    deaf.nth(1).await;
    gateway.clock.advance(DAY);
    gateway.notice(NoticeKind::Dead, fails).await;
    assert_eq!(gateway.types().await, ["order.created", "postrider.delivery.dead"]);
    // Nor is what an operator does about it.
    gateway.engine.delete_endpoint(ACTING, leaves).await.expect("deleted");
    let waiting = gateway.endpoint(spec(&gone, &["postrider.*"], daily())).await;
    let pause = gateway.engine.set_endpoint_state(ACTING, waiting, EndpointAction::Pause);
    pause.await.expect("paused");
    gateway.send("order.created").await;
    gateway.notice(NoticeKind::Dead, ordinary).await;
    let told_again = async {
        while gateway.types().await.len() < 4 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, told_again).await.expect("it is told again");
    gateway.engine.delete_endpoint(ACTING, waiting).await.expect("deleted");
    gateway.notice(NoticeKind::Cancelled, waiting).await;
    assert_eq!(watcher.count(), 0);
    // Had anything been told, it would have been told before this.
    broken.answer(410);
    let last = gateway.endpoint(spec(&broken, &["last"], json!("standard"))).await;
    gateway.send("last").await;
    let told = payload(&watcher.nth(1).await);
    assert_eq!((&told["kind"], &told["endpoint_id"]), (&json!("endpoint.disabled"), &json!(last)));
    assert_eq!(watcher.count(), 1);
    let all =
        ["order.created", "postrider.delivery.dead", "order.created", "postrider.delivery.dead"];
    let all = all.into_iter().chain(["last", "postrider.delivery.failed"]);
    let all: Vec<_> = all.chain(["postrider.endpoint.disabled"]).collect();
    assert_eq!(gateway.types().await, all);
    assert_eq!(gateway.engine.operator_events_lost(), 0);
}

#[tokio::test]
async fn a_filter_chooses_what_is_told_and_what_none_lets_pass_is_not_stored() {
    let mut gateway = Gateway::start(Options::default()).await;
    let (broken, watcher) = (Sink::answering(500).await, Sink::answering(200).await);
    let one = gateway.endpoint(spec(&broken, &["one"], once())).await;
    let two = gateway.endpoint(spec(&broken, &["two"], once())).await;
    let filter = Some(format!("payload.endpoint_id == \"{two}\""));
    gateway.endpoint(Spec { filter, ..spec(&watcher, &["postrider.*"], once()) }).await;
    gateway.send("one").await;
    gateway.notice(NoticeKind::Dead, one).await;
    gateway.send("two").await;
    assert_eq!(payload(&watcher.nth(1).await)["endpoint_id"], json!(two));
    assert_eq!(gateway.types().await, ["one", "two", "postrider.delivery.dead"]);
}

#[tokio::test]
async fn what_is_told_when_the_engine_stops_is_sent_when_it_is_back() {
    let mut gateway = Gateway::start(Options::default()).await;
    let (broken, watcher) =
        (Sink::start(|_| Reply::status(500).held()).await, Sink::answering(200).await);
    gateway.endpoint(spec(&broken, &["order.*"], once())).await;
    gateway.endpoint(spec(&watcher, &["postrider.*"], once())).await;
    gateway.send("order.created").await;
    broken.nth(1).await;
    let engine = gateway.engine.clone();
    let draining = tokio::spawn(async move { engine.drain(PATIENCE).await });
    broken.release(1);
    assert_eq!(draining.await.expect("no panic").abandoned, 0);
    assert_eq!(watcher.count(), 0, "it sends nothing any more");
    gateway = Gateway::open(gateway.data, START, Options::default()).await;
    assert_eq!(payload(&watcher.nth(1).await)["kind"], "delivery.dead");
    assert_eq!(gateway.types().await, ["order.created", "postrider.delivery.dead"]);
}

#[tokio::test]
async fn a_dead_letter_reaches_a_chat() {
    let gateway = Gateway::start(Options::default()).await;
    let broken =
        Sink::start(|_| Reply::status(500).body("<!channel> & \u{202e}@here `x`\r\n")).await;
    let (slack, telegram) = (Sink::answering(200).await, Sink::answering(200).await);
    let name = Some("<https://evil.example|Billing>".into());
    gateway.endpoint(Spec { name, ..spec(&broken, &["order.*"], once()) }).await;
    let dead = ["postrider.delivery.dead"];
    let to_slack = Spec { format: Some(Format::Slack), ..spec(&slack, &dead, once()) };
    let to_slack = gateway.endpoint(to_slack).await;
    let format = Some(Format::Telegram { chat_id: "-100".into() });
    gateway.endpoint(Spec { format, ..spec(&telegram, &dead, once()) }).await;
    gateway.send("order.created").await;

    let received = slack.nth(1).await;
    let text = payload(&received)["text"].as_str().expect("text").to_owned();
    assert!(text.starts_with("Dead letter: delivery dlv_"), "{text}");
    assert!(text.contains("`&lt;https://evil.example|Billing&gt;` ep_"), "{text}");
    assert!(
        text.ends_with(
            "`HTTP 500 Internal Server Error: &lt;!channel&gt; &amp; @\u{200b}here 'x'`"
        ),
        "{text}"
    );
    assert_eq!(text.lines().count(), 2);
    assert_eq!(received.header("content-type"), "application/json");
    // The signature is that of what was sent.
    let endpoint = gateway.engine.endpoint(TENANT, to_slack).expect("known");
    let secret = Secret::parse(&endpoint.secrets[0].text, &endpoint.spec.signing).expect("usable");
    let signer = Signer::new(&endpoint.spec.signing, &[secret]);
    let (id, at) = (received.header("webhook-id"), received.header("webhook-timestamp"));
    let signature = signer.sign(id, at.parse().expect("a number"), &received.body);
    let signature = signature.expect("signed");
    assert_eq!(received.header("webhook-signature"), signature.value);

    let received = payload(&telegram.nth(1).await);
    assert_eq!(received["chat_id"], "-100");
    let text = received["text"].as_str().expect("text");
    assert!(text.ends_with("HTTP 500 Internal Server Error: <!channel> & @here `x`"), "{text}");
}

#[tokio::test]
async fn the_token_of_a_chat_is_not_repeated() {
    const TOKEN: &str = "bot123456:ABC-DEF1234ghIkl-zyx57W2v1u123ew11";
    let mut gateway = Gateway::start(Options::default()).await;
    let echo = Sink::start(|_| {
        Reply::status(404).body("no /bot123456:ABC-DEF1234ghIkl-zyx57W2v1u123ew11/sendMessage")
    })
    .await;
    let format = Some(Format::Telegram { chat_id: "-100".into() });
    let destination = Destination::Url(echo.url().replace("hook", &format!("{TOKEN}/sendMessage")));
    let chat = Spec { format, destination, ..spec(&echo, &["order.*"], once()) };
    let chat = gateway.endpoint(chat).await;
    gateway.send("order.created").await;
    let notice = gateway.notice(NoticeKind::Dead, chat).await;
    let error = notice.delivery.as_ref().and_then(|delivery| delivery.last_error.clone());
    assert_eq!(error.as_deref(), Some("HTTP 404 Not Found: no /[concealed]/sendMessage"));
    let endpoint = gateway.engine.endpoint(TENANT, chat).expect("known");
    assert!(!format!("{endpoint:?}").contains(TOKEN));
}

#[tokio::test]
async fn an_endpoint_that_fails_for_days_is_disabled_until_it_is_enabled() {
    let mut gateway = Gateway::start(Options::default()).await;
    let (broken, watcher) = (Sink::answering(500).await, Sink::answering(200).await);
    let failing = gateway.endpoint(spec(&broken, &["order.*"], daily())).await;
    gateway.endpoint(spec(&watcher, &["postrider.endpoint.disabled"], once())).await;
    gateway.send("order.created").await;
    gateway.notice(NoticeKind::RetryScheduled, failing).await;
    gateway.fail_on(failing, 4).await;
    assert_eq!(gateway.state(failing), EndpointState::Active, "four days and five failures");
    gateway.fail_on(failing, 1).await;
    let notice = gateway.notice(NoticeKind::EndpointDisabled, failing).await;
    let reason = format!("every attempt has failed since {START}, the last 6 in a row");
    assert_eq!(notice.detail.as_deref(), Some(reason.as_str()));
    assert_eq!(gateway.state(failing), EndpointState::Disabled);
    let told = payload(&watcher.nth(1).await);
    assert_eq!((&told["endpoint_id"], &told["detail"]), (&json!(failing), &json!(reason)));
    let query =
        AuditQuery { action: Some("endpoint.disable".into()), limit: 10, ..AuditQuery::default() };
    let audited = gateway.engine.store().audit(query).await.expect("readable");
    assert_eq!(audited.len(), 1);
    assert_eq!((audited[0].actor, &audited[0].subject), (Actor::Gateway, &failing.to_string()));

    // What waits goes on waiting, and a first failure after it is enabled is a first failure.
    gateway.clock.advance(7 * DAY);
    gateway
        .engine
        .set_endpoint_state(ACTING, failing, EndpointAction::Enable)
        .await
        .expect("enabled");
    gateway.notice(NoticeKind::RetryScheduled, failing).await;
    gateway.fail_on(failing, 4).await;
    assert_eq!(gateway.state(failing), EndpointState::Active);
    broken.answer(200);
    gateway.clock.advance(DAY);
    gateway.notice(NoticeKind::Delivered, failing).await;
    assert_eq!(broken.count(), 6 + 5 + 1);
}

#[tokio::test]
async fn only_failures_without_a_success_between_them_count() {
    let mut gateway = Gateway::start(Options::default()).await;
    let broken = Sink::answering(500).await;
    let failing = gateway.endpoint(spec(&broken, &["order.*", "other"], daily())).await;
    gateway.send("order.created").await;
    gateway.notice(NoticeKind::RetryScheduled, failing).await;
    gateway.fail_on(failing, 4).await;
    broken.follow(|request| match request.header("postrider-event-type") {
        "other" => Reply::status(200),
        _ => Reply::status(500),
    });
    gateway.send("other").await;
    gateway.notice(NoticeKind::Delivered, failing).await;
    gateway.fail_on(failing, 5).await;
    assert_eq!(gateway.state(failing), EndpointState::Active, "four days since the success");
    gateway.fail_on(failing, 1).await;
    gateway.notice(NoticeKind::EndpointDisabled, failing).await;
}

#[tokio::test]
async fn since_when_it_fails_is_known_after_a_restart() {
    let mut gateway = Gateway::start(Options::default()).await;
    let broken = Sink::answering(500).await;
    let failing = gateway.endpoint(spec(&broken, &["order.*"], daily())).await;
    gateway.send("order.created").await;
    gateway.notice(NoticeKind::RetryScheduled, failing).await;
    gateway.fail_on(failing, 2).await;
    gateway = gateway.restart(Options::default()).await;
    assert_eq!(gateway.engine.store().failing().await.expect("readable"), [(failing, START)]);
    // The failures are counted anew.
    gateway.fail_on(failing, 4).await;
    assert_eq!(gateway.state(failing), EndpointState::Active);
    gateway.fail_on(failing, 1).await;
    let notice = gateway.notice(NoticeKind::EndpointDisabled, failing).await;
    let detail = notice.detail.as_deref().expect("a reason");
    assert!(detail.starts_with(&format!("every attempt has failed since {START}")), "{detail}");
    gateway
        .engine
        .set_endpoint_state(ACTING, failing, EndpointAction::Enable)
        .await
        .expect("enabled");
    assert_eq!(gateway.engine.store().failing().await.expect("readable"), []);
}

#[tokio::test]
async fn an_endpoint_is_not_disabled_where_that_is_turned_off() {
    let options = Options { disable_after: None, ..Options::default() };
    let mut gateway = Gateway::start(options).await;
    let broken = Sink::answering(500).await;
    let failing = gateway.endpoint(spec(&broken, &["order.*"], daily())).await;
    gateway.send("order.created").await;
    gateway.notice(NoticeKind::RetryScheduled, failing).await;
    gateway.fail_on(failing, 10).await;
    assert_eq!(gateway.state(failing), EndpointState::Active);
}
