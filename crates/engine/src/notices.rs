//! What happened, published on the topic `gateway:webhooks`: a bounded memory of the latest
//! notices, and a live feed.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use postrider_core::delivery::Reason;
use postrider_core::{DeliveryId, EndpointId, EventId, TenantId, Timestamp};
use tokio::sync::broadcast;

pub const TOPIC: &str = "gateway:webhooks";

/// How many notices can be asked for again.
const RETAINED: usize = 4_096;
/// How far a live reader may fall behind before it loses notices.
const FEED: usize = 4_096;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NoticeKind {
    Delivered,
    RetryScheduled,
    Failed,
    Dead,
    Cancelled,
    EndpointDisabled,
    BreakerOpened,
    BreakerClosed,
}

impl NoticeKind {
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
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    pub id: u64,
    pub at: Timestamp,
    pub tenant: TenantId,
    pub kind: NoticeKind,
    pub endpoint: Option<EndpointId>,
    pub delivery: Option<DeliveryNotice>,
    pub detail: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
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

/// The topic.
#[derive(Debug)]
pub struct Notices {
    retained: Mutex<Retained>,
    feed: broadcast::Sender<Arc<Notice>>,
}

#[derive(Debug)]
struct Retained {
    next_id: u64,
    notices: VecDeque<Arc<Notice>>,
}

impl Notices {
    /// Ids continue from `first_id`, so that a reader which resumes after a restart is not shown
    /// the past as the future.
    pub(crate) fn starting_at(first_id: u64) -> Self {
        let retained = Retained { next_id: first_id, notices: VecDeque::with_capacity(RETAINED) };
        Self { retained: Mutex::new(retained), feed: broadcast::channel(FEED).0 }
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

    pub(crate) fn publish(&self, notices: impl IntoIterator<Item = Draft>) {
        let mut retained = self.retained.lock();
        for draft in notices {
            let Draft { at, tenant, kind, endpoint, delivery, detail } = draft;
            let id = retained.next_id;
            retained.next_id += 1;
            let notice = Arc::new(Notice { id, at, tenant, kind, endpoint, delivery, detail });
            if retained.notices.len() == RETAINED {
                retained.notices.pop_front();
            }
            retained.notices.push_back(Arc::clone(&notice));
            // Nobody listening is no failure. Sent under the lock, so that ids arrive in order.
            drop(self.feed.send(notice));
        }
    }
}

/// A notice that has no number yet.
#[derive(Debug, Clone)]
pub(crate) struct Draft {
    pub(crate) at: Timestamp,
    pub(crate) tenant: TenantId,
    pub(crate) kind: NoticeKind,
    pub(crate) endpoint: Option<EndpointId>,
    pub(crate) delivery: Option<DeliveryNotice>,
    pub(crate) detail: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draft(kind: NoticeKind) -> Draft {
        let (at, tenant) = (Timestamp::MIN, TenantId::DEFAULT);
        Draft { at, tenant, kind, endpoint: None, delivery: None, detail: None }
    }

    #[test]
    fn a_reader_resumes_where_it_stopped() {
        let notices = Notices::starting_at(10);
        notices.publish([draft(NoticeKind::Delivered), draft(NoticeKind::Dead)]);
        let ids: Vec<u64> = notices.since(10).iter().map(|notice| notice.id).collect();
        assert_eq!(ids, [11]);
    }

    #[test]
    fn the_memory_is_bounded() {
        let notices = Notices::starting_at(0);
        notices.publish((0..RETAINED + 5).map(|_| draft(NoticeKind::Delivered)));
        assert_eq!(notices.since(0).len(), RETAINED);
        assert_eq!(notices.since(0)[0].id, 5);
    }
}
