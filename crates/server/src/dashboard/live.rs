//! `/live`: tells a page that is open when to look again. It says nothing else; what has changed the
//! page asks for as it did the first time, so it is shown by the same code to the same visitor.
//!
//! What happens meanwhile is put together: a page is not told more often than it can be drawn. What
//! no notice tells of, such as the progress of a job, is looked at in a steady rhythm.

use std::convert::Infallible;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::response::Response;
use axum::routing::get;
use bytes::Bytes;
use futures_util::stream;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, StatusCode};
use postrider_core::{DeliveryId, EndpointId, EventId, JobId, TenantId};
use postrider_engine::Listening;
use postrider_engine::notices::Notice;
use postrider_store::sessions::SessionRecord;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{OwnedSemaphorePermit, broadcast};

use super::Dashboard;
use super::html::{Shown, Sorry};
use super::session::{self, Visitor};
use crate::App;
use crate::stopping::Stopping;

pub(crate) const PATH: &str = "/live";

/// How many pages are live at once; further ones stand still.
pub(super) const MAX_LIVE: usize = 512;
/// The least time between two words to one page.
const GAP: Duration = Duration::from_millis(500);
/// How many things one page can be about.
const MAX_TOPICS: usize = 16;

const GREETING: Bytes = Bytes::from_static(b"retry: 2000\n: following\n\n");
const LOOK_AGAIN: Bytes = Bytes::from_static(b"event: live\ndata: look again\n\n");

pub(crate) fn routes() -> Router<Dashboard> {
    Router::new().route(PATH, get(follow))
}

/// What a page is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Topic {
    /// Everything of the tenant, with rates that change when nothing happens.
    Overview,
    /// Everything of the tenant.
    All,
    Event(EventId),
    Delivery(DeliveryId),
    Endpoint(EndpointId),
    Job(JobId),
}

impl Topic {
    fn read(name: &str, value: &str) -> Option<Self> {
        fn id<T: FromStr>(value: &str) -> Option<T> {
            value.parse().ok()
        }

        match name {
            "overview" => Some(Self::Overview),
            "all" => Some(Self::All),
            "event" => id(value).map(Self::Event),
            "delivery" => id(value).map(Self::Delivery),
            "endpoint" => id(value).map(Self::Endpoint),
            "job" => id(value).map(Self::Job),
            _ => None,
        }
    }

    /// How long such a page may stand still when there is no notice about it.
    const fn rhythm(self) -> Duration {
        match self {
            Self::Job(_) => Duration::from_secs(1),
            // What a delivery waits for can change with others that nobody tells of.
            Self::Overview | Self::Delivery(_) => Duration::from_secs(2),
            Self::All | Self::Event(_) | Self::Endpoint(_) => Duration::from_secs(5),
        }
    }

    fn concerns(self, notice: &Notice) -> bool {
        let delivery = notice.delivery.as_ref();
        match self {
            Self::Overview | Self::All => true,
            Self::Event(id) => delivery.is_some_and(|delivery| delivery.event_id == id),
            Self::Delivery(id) => delivery.is_some_and(|delivery| delivery.delivery_id == id),
            Self::Endpoint(id) => notice.about() == Some(id),
            Self::Job(_) => false,
        }
    }
}

async fn follow(
    State(Dashboard { app, live, .. }): State<Dashboard>,
    visitor: Visitor,
    RawQuery(query): RawQuery,
    stopping: Stopping,
) -> Shown {
    let topics = url::form_urlencoded::parse(query.as_deref().unwrap_or_default().as_bytes())
        .take(MAX_TOPICS)
        .map(|(name, value)| Topic::read(&name, &value))
        .collect::<Option<Vec<_>>>()
        .filter(|topics| !topics.is_empty());
    let Some(topics) = topics else {
        let detail = "say what the page is about, such as `overview` or `delivery=dlv_…`";
        return Err(Sorry::new(StatusCode::UNPROCESSABLE_ENTITY, detail));
    };
    let place = live.try_acquire_owned().map_err(|_| {
        Sorry::new(StatusCode::SERVICE_UNAVAILABLE, "too many pages are live; try again later")
    })?;
    let follower = Follower {
        feed: app.engine.notices().subscribe(),
        tenant: visitor.caller.tenant,
        rhythm: topics.iter().map(|topic| topic.rhythm()).min().unwrap_or(GAP),
        topics,
        session: visitor.session,
        stopping,
        told: Told::Nothing,
        _held: (place, app.engine.listen()),
        app,
    };
    let words = stream::unfold(follower, async |mut follower| {
        let word = follower.next().await?;
        Some((Ok::<_, Infallible>(word), follower))
    });
    let mut response = Response::new(Body::from_stream(words));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    Nothing,
    Greeted,
    LookAgain,
}

/// One page that is open.
struct Follower {
    app: Arc<App>,
    feed: broadcast::Receiver<Arc<Notice>>,
    tenant: TenantId,
    topics: Vec<Topic>,
    rhythm: Duration,
    session: SessionRecord,
    stopping: Stopping,
    told: Told,
    /// Its place among the pages, and what brings the notices of other nodes here.
    _held: (OwnedSemaphorePermit, Listening),
}

impl Follower {
    /// The next word to the page, or none when there is nobody to tell any more. One comes at least
    /// once in the page's rhythm, so that a browser that went away is noticed.
    async fn next(&mut self) -> Option<Bytes> {
        match self.told {
            Told::Nothing => {
                self.told = Told::Greeted;
                return Some(GREETING);
            }
            Told::Greeted => self.told = Told::LookAgain,
            Told::LookAgain => tokio::select! {
                () = self.stopping.wait() => return None,
                () = tokio::time::sleep(GAP) => {}
            },
        }
        self.wait().await?;
        // Whatever happened up to here is in what the page reads next.
        self.feed = self.feed.resubscribe();
        self.is_there().await.then_some(LOOK_AGAIN)
    }

    /// Ends when the page should look again; none where there is no more to come.
    async fn wait(&mut self) -> Option<()> {
        let still = tokio::time::sleep(self.rhythm);
        tokio::pin!(still);
        loop {
            let received = tokio::select! {
                biased;
                () = self.stopping.wait() => return None,
                received = self.feed.recv() => received,
                () = &mut still => return Some(()),
            };
            match received {
                Ok(notice) if !self.concerns(&notice) => {}
                Ok(_) | Err(RecvError::Lagged(_)) => return Some(()),
                Err(RecvError::Closed) => return None,
            }
        }
    }

    fn concerns(&self, notice: &Notice) -> bool {
        notice.tenant == self.tenant && self.topics.iter().any(|topic| topic.concerns(notice))
    }

    /// Whether the session goes on, as it was when the page was opened.
    async fn is_there(&self) -> bool {
        let now = self.app.engine.clock().now();
        let found = session::find(&self.app, self.session.sha256, now).await;
        let same = |session: SessionRecord| session.tenant == self.session.tenant;
        found.is_ok_and(|found| found.is_some_and(same))
            && self.app.keys.check(self.session.key, now).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use postrider_core::Timestamp;
    use postrider_engine::notices::{DeliveryNotice, NoticeKind};

    use super::*;

    #[test]
    fn a_page_is_told_of_what_it_is_about() {
        let notice = Notice {
            id: 1,
            at: Timestamp::MIN,
            tenant: TenantId::DEFAULT,
            kind: NoticeKind::Dead,
            endpoint: None,
            source: None,
            hub: None,
            delivery: Some(DeliveryNotice {
                delivery_id: DeliveryId::from_i64(1),
                event_id: EventId::from_i64(2),
                endpoint_id: EndpointId::from_i64(3),
                correlation_id: None,
                attempts: 1,
                reason: None,
                last_error: None,
                next_attempt_at: None,
            }),
            detail: None,
        };
        for (topic, concerned) in [
            (Topic::Overview, true),
            (Topic::All, true),
            (Topic::Delivery(DeliveryId::from_i64(1)), true),
            (Topic::Delivery(DeliveryId::from_i64(2)), false),
            (Topic::Event(EventId::from_i64(2)), true),
            (Topic::Event(EventId::from_i64(1)), false),
            (Topic::Endpoint(EndpointId::from_i64(3)), true),
            (Topic::Endpoint(EndpointId::from_i64(1)), false),
            (Topic::Job(JobId::from_i64(1)), false),
        ] {
            assert_eq!(topic.concerns(&notice), concerned, "{topic:?}");
        }
    }

    #[test]
    fn topics_are_known_by_name_and_id() {
        let delivery = DeliveryId::from_i64(7);
        assert_eq!(Topic::read("overview", ""), Some(Topic::Overview));
        assert_eq!(Topic::read("delivery", &delivery.to_string()), Some(Topic::Delivery(delivery)));
        for (name, value) in [("", ""), ("delivery", ""), ("delivery", "ep_1"), ("tenant", "x")] {
            assert_eq!(Topic::read(name, value), None, "{name}={value}");
        }
    }
}
