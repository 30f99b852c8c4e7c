//! What happened, published on the topic `gateway:webhooks`: a bounded memory of the latest
//! notices, and a live feed. What operators asked for is told to them as events, too
//! (`operator`).

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use postrider_core::delivery::Reason;
use postrider_core::pattern::{RESERVED_PREFIX, is_reserved};
use postrider_core::{DeliveryId, EndpointId, EventId, HubId, SourceId, TenantId, Timestamp};
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast;

pub const TOPIC: &str = "gateway:webhooks";

/// How many notices can be asked for again.
const RETAINED: usize = 4_096;
/// More than any node's number.
const NODES: u64 = 256;
/// How far a live reader may fall behind before it loses notices.
const FEED: usize = 4_096;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum NoticeKind {
    Delivered,
    RetryScheduled,
    Failed,
    Dead,
    Cancelled,
    EndpointDisabled,
    BreakerOpened,
    BreakerClosed,
    SignatureFailed,
    HubConnected,
    HubDisconnected,
}

impl NoticeKind {
    pub const ALL: [Self; 11] = [
        Self::Delivered,
        Self::RetryScheduled,
        Self::Failed,
        Self::Dead,
        Self::Cancelled,
        Self::EndpointDisabled,
        Self::BreakerOpened,
        Self::BreakerClosed,
        Self::SignatureFailed,
        Self::HubConnected,
        Self::HubDisconnected,
    ];

    /// The type of the event that tells it to operators.
    pub fn event_type(self) -> String {
        format!("{RESERVED_PREFIX}{}", self.as_str())
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Delivered => "delivery.delivered",
            Self::RetryScheduled => "delivery.retry_scheduled",
            Self::Failed => "delivery.failed",
            Self::Dead => "delivery.dead",
            Self::Cancelled => "delivery.cancelled",
            Self::EndpointDisabled => "endpoint.disabled",
            Self::BreakerOpened => "endpoint.breaker_opened",
            Self::BreakerClosed => "endpoint.breaker_closed",
            Self::SignatureFailed => "source.signature_failed",
            Self::HubConnected => "hub.connected",
            Self::HubDisconnected => "hub.disconnected",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    pub id: u64,
    pub at: Timestamp,
    pub tenant: TenantId,
    pub kind: NoticeKind,
    pub endpoint: Option<EndpointId>,
    pub source: Option<SourceId>,
    pub hub: Option<HubId>,
    pub delivery: Option<DeliveryNotice>,
    pub detail: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveryNotice {
    pub delivery_id: DeliveryId,
    pub event_id: EventId,
    pub endpoint_id: EndpointId,
    /// The event's `metadata.session_id` or `metadata.correlation_id`.
    pub correlation_id: Option<String>,
    pub attempts: u32,
    pub reason: Option<Reason>,
    pub last_error: Option<String>,
    pub next_attempt_at: Option<Timestamp>,
}

/// A notice as it is shown, on the stream and as the payload of an event.
#[derive(Debug, Serialize)]
pub struct View<'a> {
    id: String,
    topic: &'static str,
    kind: &'static str,
    at: Timestamp,
    tenant: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    endpoint_id: Option<EndpointId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    endpoint_name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source_id: Option<SourceId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hub_id: Option<HubId>,
    #[serde(flatten)]
    delivery: Option<DeliveryView<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'a str>,
}

#[derive(Debug, Serialize)]
struct DeliveryView<'a> {
    delivery_id: DeliveryId,
    event_id: EventId,
    correlation_id: Option<&'a str>,
    attempts: u32,
    reason: Option<Reason>,
    last_error: Option<&'a str>,
    next_attempt_at: Option<Timestamp>,
}

impl Notice {
    /// The endpoint it is about.
    pub fn about(&self) -> Option<EndpointId> {
        self.endpoint.or_else(|| self.delivery.as_ref().map(|delivery| delivery.endpoint_id))
    }

    /// `tenant` is the name of the notice's tenant; `endpoint_name` that of its endpoint, where
    /// it is to be shown.
    pub fn view<'a>(&'a self, tenant: &'a str, endpoint_name: Option<&'a str>) -> View<'a> {
        View {
            id: self.id.to_string(),
            topic: TOPIC,
            kind: self.kind.as_str(),
            at: self.at,
            tenant,
            endpoint_id: self.about(),
            endpoint_name,
            source_id: self.source,
            hub_id: self.hub,
            delivery: self.delivery.as_ref().map(|delivery| DeliveryView {
                delivery_id: delivery.delivery_id,
                event_id: delivery.event_id,
                correlation_id: delivery.correlation_id.as_deref(),
                attempts: delivery.attempts,
                reason: delivery.reason,
                last_error: delivery.last_error.as_deref(),
                next_attempt_at: delivery.next_attempt_at,
            }),
            detail: self.detail.as_deref(),
        }
    }
}

/// The topic.
#[derive(Debug)]
pub struct Notices {
    retained: Mutex<Retained>,
    feed: broadcast::Sender<Arc<Notice>>,
}

#[derive(Debug)]
struct Retained {
    next_id: u64,
    /// Between two ids.
    step: u64,
    notices: VecDeque<Arc<Notice>>,
}

impl Notices {
    /// Ids continue from `first_id`, so that a reader which resumes after a restart is not shown
    /// the past as the future.
    pub(crate) fn starting_at(first_id: u64) -> Self {
        let notices = VecDeque::with_capacity(RETAINED);
        let retained = Retained { next_id: first_id, step: 1, notices };
        Self { retained: Mutex::new(retained), feed: broadcast::channel(FEED).0 }
    }

    /// The same for one of several nodes: with another number there are other ids, in the order of
    /// time all the same.
    pub(crate) fn of_node(number: u8, first_id: u64) -> Self {
        let notices = Self::starting_at(first_id);
        notices.retained.lock().step = NODES;
        notices.retained.lock().next_id = first_id * NODES;
        notices.renumber(number);
        notices
    }

    pub(crate) fn renumber(&self, number: u8) {
        let mut retained = self.retained.lock();
        retained.next_id = (retained.next_id / NODES + 1) * NODES + u64::from(number);
    }

    /// Tells here what happened on another node. Who missed it asks there again.
    pub(crate) fn pass_on(&self, notices: Vec<Notice>) {
        for notice in notices {
            // Nobody listening is no failure.
            drop(self.feed.send(Arc::new(notice)));
        }
    }

    /// Everything published from here on. A reader that falls behind by more than the feed holds
    /// is told how many it lost.
    pub fn subscribe(&self) -> broadcast::Receiver<Arc<Notice>> {
        self.feed.subscribe()
    }

    /// Retained notices with an id above `id`, oldest first.
    pub fn since(&self, id: u64) -> Vec<Arc<Notice>> {
        let retained = self.retained.lock();
        retained.notices.iter().filter(|notice| notice.id > id).cloned().collect()
    }

    /// Gives each notice its number and tells it; `each` sees it before the next one is told.
    pub(crate) fn publish(
        &self,
        drafts: impl IntoIterator<Item = Draft>,
        mut each: impl FnMut(&Arc<Notice>, Audience),
    ) {
        let mut retained = self.retained.lock();
        for draft in drafts {
            let Draft { at, tenant, kind, endpoint, source, hub, delivery, detail, audience } =
                draft;
            let id = retained.next_id;
            retained.next_id += retained.step;
            let notice =
                Arc::new(Notice { id, at, tenant, kind, endpoint, source, hub, delivery, detail });
            if retained.notices.len() == RETAINED {
                retained.notices.pop_front();
            }
            retained.notices.push_back(Arc::clone(&notice));
            each(&notice, audience);
            // Nobody listening is no failure. Sent under the lock, so that ids arrive in order.
            drop(self.feed.send(notice));
        }
    }
}

/// Who is told of something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Audience {
    Everyone,
    /// It came of an event that told an operator something. To tell of it the same way would make
    /// another such event, and so on for ever.
    StreamOnly,
}

impl Audience {
    /// Who is told of what happens because of an event of this type.
    pub(crate) fn of(event_type: &str) -> Self {
        if is_reserved(event_type) { Self::StreamOnly } else { Self::Everyone }
    }
}

/// A notice that has no number yet.
#[derive(Debug, Clone)]
pub(crate) struct Draft {
    pub(crate) at: Timestamp,
    pub(crate) tenant: TenantId,
    pub(crate) kind: NoticeKind,
    pub(crate) endpoint: Option<EndpointId>,
    pub(crate) source: Option<SourceId>,
    pub(crate) hub: Option<HubId>,
    pub(crate) delivery: Option<DeliveryNotice>,
    pub(crate) detail: Option<String>,
    pub(crate) audience: Audience,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draft(kind: NoticeKind) -> Draft {
        Draft {
            at: Timestamp::MIN,
            tenant: TenantId::DEFAULT,
            kind,
            endpoint: None,
            source: None,
            hub: None,
            delivery: None,
            detail: None,
            audience: Audience::Everyone,
        }
    }

    fn publish(notices: &Notices, drafts: impl IntoIterator<Item = Draft>) {
        notices.publish(drafts, |_, _| {});
    }

    #[test]
    fn every_kind_is_told_under_a_type_of_its_own() {
        let types: std::collections::BTreeSet<String> =
            NoticeKind::ALL.into_iter().map(NoticeKind::event_type).collect();
        assert_eq!(types.len(), NoticeKind::ALL.len());
        for event_type in types {
            assert_eq!(Audience::of(&event_type), Audience::StreamOnly, "{event_type}");
            assert_eq!(postrider_core::pattern::check_type(&event_type), Ok(()));
        }
        assert_eq!(Audience::of("order.created"), Audience::Everyone);
    }

    #[test]
    fn a_reader_resumes_where_it_stopped() {
        let notices = Notices::starting_at(10);
        publish(&notices, [draft(NoticeKind::Delivered), draft(NoticeKind::Dead)]);
        let ids: Vec<u64> = notices.since(10).iter().map(|notice| notice.id).collect();
        assert_eq!(ids, [11]);
    }

    #[test]
    fn the_memory_is_bounded() {
        let notices = Notices::starting_at(0);
        publish(&notices, (0..RETAINED + 5).map(|_| draft(NoticeKind::Delivered)));
        assert_eq!(notices.since(0).len(), RETAINED);
        assert_eq!(notices.since(0)[0].id, 5);
    }
}
