//! A store in a file with something of everything in it.

use std::collections::BTreeMap;
use std::path::Path;

use postrider_core::delivery::{Next, Reason, State};
use postrider_core::endpoint::{
    Destination, Endpoint, EndpointState, Ordering, Spec, StoredSecret, Tls,
};
use postrider_core::id::Sequence;
use postrider_core::outcome::Class;
use postrider_core::pattern::Pattern;
use postrider_core::policy::{self, Preset};
use postrider_core::signing::Scheme;
use postrider_core::source::{self, KeepHeaders, OnInvalid, Secrets, TypeFrom};
use postrider_core::{DeliveryId, HubId, JobId, KeyId, Source, SourceId, verification};
use postrider_store::audit::{Actor, Audit};
use postrider_store::declarations::{Applied, Declaration, DeclaredKind};
use postrider_store::journal::{Appended, Urgency};
use postrider_store::ledger::{DeliveryFilter, Position};
use postrider_store::measures::{Grain, Measure, Tallies};
use postrider_store::record::{Attempt, Response, Settle, Settled};
use postrider_store::registry::{HubRecord, JobRecord, JobState, KeyRecord, Registry as _, Role};
use postrider_store::sessions::SessionRecord;
use postrider_store::sqlite::{self, Sqlite};

use super::super::*;

pub(super) const A: EndpointId = EndpointId::from_i64(11);
pub(super) const B: EndpointId = EndpointId::from_i64(12);
/// Delivers in order.
pub(super) const L: EndpointId = EndpointId::from_i64(13);
pub(super) const ENDPOINTS: [EndpointId; 3] = [A, B, L];

pub(super) const TENANTS: [TenantId; 2] = [TenantId::DEFAULT, TenantId(2)];
pub(super) const JOBS: [JobId; 2] = [JobId::from_i64(51), JobId::from_i64(52)];
const SOURCE: SourceId = SourceId::from_i64(41);
/// What the hash of the only session is made of.
pub(super) const SESSION: u8 = 71;

/// A trace context as it is stored.
const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01 a=1,b=two words";
/// What no text may be changed by.
const ODD: &str = "a\0b\u{ffff}c\u{ffff}0 \u{1f4ee} \\N \t\n'\"";

const HOUR: Duration = Duration::from_hours(1);
const SECOND: Duration = Duration::from_secs(1);

pub(super) fn open(path: &Path) -> Sqlite {
    Sqlite::open(path, sqlite::Options::default(), keyring()).expect("it opens")
}

/// Fills a new database at `path`, which is called `name` to tell it from others.
pub(super) async fn fill(path: &Path, name: u8) {
    let store = open(path);
    store.instance([name; 16]).await.expect("named");
    let mut hand = Hand { store: &store, now: NOW, ids: Sequence::after(0) };
    hand.configure().await;
    hand.deliver_every_way().await;
    hand.form_lines().await;
    hand.send_odd_events().await;
    hand.measure().await;
    hand.sign_in().await;
    store.close().await;
}

/// What becomes of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    Succeed,
    Retry,
    /// Rate limited: not counted, and the endpoint is held.
    Defer,
    Fail,
    Exhaust,
    Expire,
    Cancel,
    Reset,
    Lease,
}

/// Every way that a delivery can have gone.
const WAYS: &[&[Turn]] = &[
    &[],
    &[Turn::Succeed],
    &[Turn::Retry],
    &[Turn::Retry, Turn::Succeed],
    &[Turn::Retry, Turn::Retry, Turn::Exhaust],
    &[Turn::Defer],
    &[Turn::Defer, Turn::Retry, Turn::Succeed],
    &[Turn::Fail],
    &[Turn::Fail, Turn::Reset],
    &[Turn::Fail, Turn::Reset, Turn::Succeed],
    &[Turn::Expire],
    &[Turn::Cancel],
    &[Turn::Retry, Turn::Cancel, Turn::Reset],
    &[Turn::Lease],
    &[Turn::Retry, Turn::Lease],
    &[Turn::Lease, Turn::Succeed],
];

/// Somebody who uses a store.
pub(super) struct Hand<'a> {
    pub(super) store: &'a dyn Store,
    pub(super) now: Timestamp,
    ids: Sequence,
}

impl<'a> Hand<'a> {
    /// Goes on after all that is there.
    pub(super) async fn on(store: &'a dyn Store, now: Timestamp) -> Self {
        let highest = store.highest_id().await.expect("known");
        Self { store, now, ids: Sequence::after(highest) }
    }

    fn audit(&self, action: &'static str) -> Audit {
        Audit {
            at: self.now,
            tenant: (action != "hub.create").then_some(TenantId::DEFAULT),
            actor: if action.starts_with("key") {
                Actor::Gateway
            } else {
                Actor::Key(KeyId::from_i64(31))
            },
            action,
            subject: ODD.to_owned(),
            detail: action.starts_with("source").then(|| ODD.to_owned()),
        }
    }

    async fn configure(&self) {
        let made = self.store.make_tenant(ODD.into(), self.now, self.audit("tenant.create")).await;
        assert_eq!(made.expect("made").id, TENANTS[1]);
        for (id, role) in [(31, Role::Admin), (32, Role::Tenant(TENANTS[1]))] {
            let key = KeyRecord {
                id: KeyId::from_i64(id),
                name: format!("{ODD}{id}"),
                sha256: [u8::try_from(id).expect("small"); 32],
                role,
                created_at: self.now,
                expires_at: (id == 32).then(|| self.now.plus(HOUR)),
                revoked_at: (id == 32).then_some(self.now),
                last_used_at: None,
            };
            self.store.put_key(key, Some(self.audit("key.create"))).await.expect("stored");
        }
        self.store.touch_keys(vec![(KeyId::from_i64(31), self.now)]).await.expect("noted");
        let states = [EndpointState::Active, EndpointState::Paused, EndpointState::Active];
        for (id, state) in ENDPOINTS.into_iter().zip(states) {
            let endpoint = self.endpoint(id, state);
            let audit = Some(self.audit("endpoint.create"));
            self.store.put_endpoint(endpoint, audit).await.expect("stored");
        }
        self.store.note_failing(vec![(B, Some(self.now))]).await.expect("noted");
        self.store.note_breakers(vec![(A, Some("open".into()))]).await.expect("noted");
        let hub = HubRecord {
            id: HubId::from_i64(61),
            tenant: TENANTS[1],
            name: ODD.to_owned(),
            sha256: [9; 32],
            created_at: self.now,
        };
        self.store.put_hub(hub, self.audit("hub.create")).await.expect("stored");
        self.store.put_source(self.source(), self.audit("source.create")).await.expect("stored");
        for (kind, object) in [(DeclaredKind::Hub, 61), (DeclaredKind::Source, 41)] {
            let (tenant, name, applied) = (TENANTS[1], ODD.to_owned(), Applied([5; 32]));
            let declaration = Declaration { tenant, kind, name, object, applied };
            self.store.put_declaration(declaration).await.expect("stored");
        }
        for (id, state) in JOBS.into_iter().zip([JobState::Running, JobState::Finished]) {
            let running = state == JobState::Running;
            let job = JobRecord {
                id,
                tenant: TENANTS[1],
                filter: DeliveryFilter { endpoint: Some(A), ..DeliveryFilter::default() },
                rate_per_second: running.then_some(0.3),
                state,
                matched: 5,
                replayed: 2,
                skipped: 1,
                position: running.then_some(Position {
                    event: EventId::from_i64(7),
                    delivery: DeliveryId::from_i64(8),
                }),
                created_at: self.now,
                updated_at: self.now.plus(HOUR),
            };
            assert!(self.store.put_job(job, None, None).await.expect("stored"));
        }
    }

    fn endpoint(&self, id: EndpointId, state: EndpointState) -> Endpoint {
        Endpoint {
            id,
            tenant: if id == B { TENANTS[1] } else { TENANTS[0] },
            state,
            spec: Spec {
                name: Some(ODD.to_owned()),
                destination: Destination::Url("https://example.com/hook".to_owned()),
                event_types: vec![Pattern::Any],
                sources: Vec::new(),
                filter: None,
                policy: policy::Spec::from(Preset::Standard),
                ordering: if id == L { Ordering::FifoByKey } else { Ordering::None },
                rate_limit: None,
                max_in_flight: None,
                timeout: None,
                headers: BTreeMap::new(),
                signing: Scheme::None,
                format: None,
                metadata: serde_json::Map::new(),
            },
            secrets: vec![StoredSecret { text: format!("whsec_{id}"), expires_at: None }],
            tls: (id == A).then(|| Tls { client_key: Some(ODD.into()), ..Tls::default() }),
            created_at: self.now,
            updated_at: self.now,
        }
    }

    fn source(&self) -> Source {
        Source {
            id: SOURCE,
            tenant: TENANTS[0],
            spec: source::Spec {
                name: ODD.to_owned(),
                verify: verification::Scheme::None,
                on_invalid: OnInvalid::Mark,
                type_from: TypeFrom::JsonPointer("/type".to_owned()),
                dedup_from: None,
                keep_headers: KeepHeaders::Named(vec!["x-id".to_owned()]),
            },
            secrets: Secrets { token: "a token".to_owned(), signing: vec![ODD.to_owned()] },
            created_at: self.now,
            updated_at: self.now,
        }
    }

    /// Over some days, to two endpoints of two tenants.
    async fn deliver_every_way(&mut self) {
        for (index, way) in WAYS.iter().enumerate() {
            self.now = self.now.plus(7 * HOUR);
            for (endpoint, tenant) in [(A, TENANTS[0]), (B, TENANTS[1])] {
                let id = self.send(&[(endpoint, None)], |event| event.tenant = tenant).await[0];
                for turn in *way {
                    self.turn(id, *turn).await;
                }
                if index % 3 == 0 {
                    let event = self.record(id).await.event;
                    self.replay(event, endpoint, None).await;
                }
            }
        }
    }

    async fn form_lines(&mut self) {
        for line in ["", "a", ODD] {
            let mut ids = Vec::new();
            for _ in 0..5 {
                self.now = self.now.plus(SECOND);
                let to = [(L, Some(line)), (A, None)];
                let ordered = |event: &mut Event| event.ordering_key = Some(line.to_owned());
                ids.push(self.send(&to, ordered).await[0]);
            }
            let first = self.record(ids[0]).await.event;
            self.replay(first, L, Some(line)).await;
            self.turn(ids[0], Turn::Succeed).await;
            self.turn(ids[1], Turn::Retry).await;
            self.turn(ids[3], Turn::Cancel).await;
        }
    }

    async fn send_odd_events(&mut self) {
        let (now, later) = (self.now, self.now.plus(48 * HOUR));
        self.send(&[], |event| event.body = Bytes::new()).await;
        self.send(&[(A, None)], |event| event.deliver_at = Some(later)).await;
        self.send(&[(A, None)], |event| {
            ODD.clone_into(&mut event.kind);
            ODD.clone_into(&mut event.content_type);
            event.metadata = Some(ODD.to_owned());
            event.filter_errors = Some(ODD.to_owned());
            event.trace = TRACE.parse().ok();
            event.idempotency_key = Some(ODD.to_owned());
            event.ordering_key = Some(String::new());
            event.body = (0..=255).cycle().take(70_000).collect();
            event.headers = vec![
                ("x-a".to_owned(), Bytes::from_static(b"\xff\x00 bytes")),
                ("x-a".to_owned(), Bytes::new()),
            ];
        })
        .await;
        // The same key as another's, of a source and of another tenant.
        for (source, tenant) in [(Some(SOURCE), TENANTS[0]), (None, TENANTS[1])] {
            self.send(&[], |event| {
                event.idempotency_key = Some(ODD.to_owned());
                event.source = source;
                event.tenant = tenant;
                event.verified = source.map(|_| false);
                event.received_at = now;
            })
            .await;
        }
    }

    /// Of every grain, for every tenant and endpoint.
    pub(super) async fn measure(&self) {
        let mut measures = Vec::new();
        for (grain, factor) in Grain::ALL.into_iter().zip(1..) {
            for (tenant, endpoint) in [
                (TENANTS[0], None),
                (TENANTS[0], Some(A)),
                (TENANTS[0], Some(L)),
                (TENANTS[1], None),
            ] {
                for (start, factor) in [(NOW, factor), (self.now, 0)] {
                    let mut tallies = Tallies {
                        received: 5 * factor,
                        failures: 3 * factor,
                        dead: 2 * factor,
                        ..Tallies::default()
                    };
                    for millis in 0..factor {
                        tallies.delivered += 1;
                        tallies.note_latency(millis << 12);
                    }
                    let start = grain.start_of(start);
                    measures.push(Measure { grain, start, tenant, endpoint, tallies });
                }
            }
        }
        self.store.add_measures(measures).await.expect("added");
    }

    async fn sign_in(&self) {
        let session = SessionRecord {
            sha256: [SESSION; 32],
            key: KeyId::from_i64(31),
            tenant: TENANTS[0],
            begun_at: self.now,
            seen_at: self.now,
        };
        self.store.put_session(session).await.expect("stored");
    }

    /// Stores an event; returns the ids of its deliveries.
    pub(super) async fn send(
        &mut self,
        to: &[(EndpointId, Option<&str>)],
        change: impl FnOnce(&mut Event),
    ) -> Vec<DeliveryId> {
        let new = self.event(to, change);
        let ids = (0..to.len()).map(|index| new.delivery_id(index)).collect();
        let appended = self.store.append(vec![new]).await.expect("stored");
        assert!(matches!(appended[..], [Appended::New { .. }]), "{appended:?}");
        ids
    }

    pub(super) fn event(
        &mut self,
        to: &[(EndpointId, Option<&str>)],
        change: impl FnOnce(&mut Event),
    ) -> NewEvent {
        let count = u32::try_from(1 + to.len()).expect("few");
        let mut event = Event {
            id: EventId::from_i64(self.ids.take(self.now, count)),
            received_at: self.now,
            ..Event::clone(&event(0, &Bytes::from_static(b"{\"a\": 1}")).event)
        };
        change(&mut event);
        let deliveries = to.iter().map(|(endpoint, line)| NewDelivery {
            endpoint: *endpoint,
            line: line.map(str::to_owned),
        });
        NewEvent { deliveries: deliveries.collect(), event: Arc::new(event) }
    }

    async fn replay(&mut self, event: EventId, endpoint: EndpointId, line: Option<&str>) {
        let first = DeliveryId::from_i64(self.ids.take(self.now, 1));
        let again = vec![NewDelivery { endpoint, line: line.map(str::to_owned) }];
        let audit = Some(self.audit("event.replay"));
        self.store.append_deliveries(event, first, again, self.now, audit).await.expect("stored");
    }

    pub(super) async fn record(&self, id: DeliveryId) -> postrider_store::record::DeliveryRecord {
        for tenant in TENANTS {
            if let Some(record) = self.store.delivery(tenant, id).await.expect("readable") {
                return record;
            }
        }
        panic!("{id} is gone");
    }

    /// Lets something happen to a delivery; returns the one that became ready thereby.
    pub(super) async fn turn(&self, id: DeliveryId, turn: Turn) -> Option<DeliveryId> {
        let settle = self.settle_of(id, turn).await;
        let mut settled = self.store.settle(vec![settle], Urgency::Now).await.expect("settled");
        match settled.pop() {
            Some(Settled::Applied { promoted }) => promoted.map(|waiting| waiting.id),
            Some(Settled::Stale) | None => panic!("{id} did not take {turn:?}"),
        }
    }

    pub(super) async fn settle_of(&self, id: DeliveryId, turn: Turn) -> Settle {
        let record = self.record(id).await;
        let stays = Next {
            state: record.state,
            attempts: record.attempts,
            deferrals: record.deferrals,
            born: record.born,
            due: None,
            reason: None,
            class: None,
            counted: false,
            hold_endpoint_until: None,
            disable_endpoint: false,
        };
        let tried = Next { attempts: record.attempts + 1, counted: true, ..stays };
        let later = self.now.plus(HOUR);
        let (retryable, exhausted) = (Some(Class::Retryable), Some(Reason::Exhausted));
        let next = match turn {
            Turn::Succeed => Next { state: State::Delivered, ..tried },
            Turn::Retry => {
                Next { state: State::Retrying, due: Some(later), class: retryable, ..tried }
            }
            Turn::Defer => Next {
                state: State::Retrying,
                deferrals: record.deferrals + 1,
                due: Some(later),
                class: Some(Class::RateLimited),
                hold_endpoint_until: Some(later),
                ..stays
            },
            Turn::Fail => Next {
                state: State::Failed,
                reason: Some(Reason::Rejected),
                class: Some(Class::Final),
                ..tried
            },
            Turn::Exhaust => {
                Next { state: State::Dead, reason: exhausted, class: retryable, ..tried }
            }
            Turn::Expire => Next { state: State::Dead, reason: Some(Reason::Expired), ..stays },
            Turn::Cancel => Next { state: State::Cancelled, ..stays },
            Turn::Reset => Next {
                state: State::Pending,
                attempts: 0,
                deferrals: 0,
                born: self.now,
                due: Some(self.now),
                ..stays
            },
            Turn::Lease => Next { state: State::InFlight, due: Some(later), ..stays },
        };
        let attempt = match turn {
            Turn::Succeed => Some(self.attempt(record.tries + 1, None)),
            Turn::Retry | Turn::Exhaust => {
                Some(self.attempt(record.tries + 1, Some(Class::Retryable)))
            }
            Turn::Defer => Some(Attempt {
                counted: false,
                ..self.attempt(record.tries + 1, Some(Class::RateLimited))
            }),
            Turn::Fail => Some(self.attempt(record.tries + 1, Some(Class::Final))),
            Turn::Expire | Turn::Cancel | Turn::Reset | Turn::Lease => None,
        };
        let result = (turn == Turn::Succeed && record.tries > 0).then(|| ODD.to_owned());
        Settle {
            id,
            endpoint: record.endpoint,
            fence: record.fence,
            in_line: record.line.is_some(),
            from: record.state,
            next,
            at: self.now,
            attempt,
            lease: None,
            result,
            tenure: None,
        }
    }

    fn attempt(&self, number: u32, class: Option<Class>) -> Attempt {
        Attempt {
            number,
            counted: true,
            started_at: self.now.minus(SECOND),
            duration: Duration::from_millis(35),
            status: class.is_none().then_some(204),
            class,
            error: class.map(|class| format!("{} {ODD}", class.as_str())),
            response: Some(Response {
                headers: vec![("x-try".to_owned(), ODD.to_owned())],
                body: Bytes::from(vec![0xff, 0, b'a']),
                truncated: class.is_some(),
            }),
        }
    }
}
