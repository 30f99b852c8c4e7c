//! `/v1/stream`: notices as they happen, as server-sent events.
//!
//! A reader costs one place in the engine's feed, which is bounded: one that falls behind by more
//! than the feed holds is told so by a last event, `dropped`, and can come back with
//! `Last-Event-ID`.

use std::collections::{HashSet, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue};
use postrider_core::TenantId;
use postrider_engine::Listening;
use postrider_engine::notices::{Notice, TOPIC};
use postrider_store::audit::Actor;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{OwnedSemaphorePermit, broadcast};

use crate::App;
use crate::answer::Answer;
use crate::auth::Caller;
use crate::extract::Query;
use crate::problem::Problem;
use crate::stopping::Stopping;

pub(crate) const PATH: &str = "/v1/stream";

const LAST_EVENT_ID: &str = "last-event-id";
/// Something is sent at least this often, so that a reader that went away is noticed.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

pub(crate) async fn follow(
    State(app): State<Arc<App>>,
    caller: Caller,
    mut query: Query,
    headers: HeaderMap,
    stopping: Stopping,
) -> Answer {
    if query.text("topic").is_some_and(|topic| topic != TOPIC) {
        return Err(Problem::invalid("topic", format!("there is only {TOPIC}")));
    }
    query.finish()?;
    let resume_after = headers.get(LAST_EVENT_ID).map(read_id).transpose()?;
    let place = Arc::clone(&app.streams)
        .try_acquire_owned()
        .map_err(|_| Problem::unavailable("too many readers of the stream; try again later"))?;

    let listening = app.engine.listen();
    // The feed first: what happens in between is then in both, and shown once.
    let feed = app.engine.notices().subscribe();
    let missed = match resume_after {
        Some(id) => app.engine.notices_since(id).await,
        None => Vec::new(),
    };
    let reader = Reader {
        shown: missed.iter().map(|notice| notice.id).collect(),
        missed: missed.into(),
        feed,
        let_in: let_in(&app, caller.actor),
        tenant: caller.tenant,
        tenant_name: app.keys.tenant_name(caller.tenant).unwrap_or_default(),
        stopping,
        greeted: false,
        ended: false,
        _held: (place, Some(listening)),
    };
    let frames = stream::unfold(reader, |mut reader| async {
        let frame = reader.next().await?;
        Some((Ok::<_, Infallible>(frame), reader))
    });
    let mut response = Response::new(Body::from_stream(frames));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    Ok(response)
}

fn let_in(app: &Arc<App>, actor: Actor) -> Box<dyn Fn() -> bool + Send> {
    let app = Arc::clone(app);
    Box::new(move || match actor {
        Actor::Key(key) => app.keys.check(key, app.engine.clock().now()).is_ok(),
        Actor::Gateway | Actor::File => true,
    })
}

fn read_id(value: &HeaderValue) -> Result<u64, Problem> {
    value
        .to_str()
        .ok()
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| Problem::invalid(LAST_EVENT_ID, "is not the id of a notice"))
}

/// One reader's view of the feed.
struct Reader {
    /// Whether it is still let in: its key can be revoked, or expire, meanwhile.
    let_in: Box<dyn Fn() -> bool + Send>,
    /// What it missed since it was last here, oldest first.
    missed: VecDeque<Arc<Notice>>,
    /// The ids of those: the feed has some of them again.
    shown: HashSet<u64>,
    feed: broadcast::Receiver<Arc<Notice>>,
    tenant: TenantId,
    tenant_name: String,
    stopping: Stopping,
    greeted: bool,
    ended: bool,
    /// Its place among the readers, and what brings the notices of other nodes here.
    _held: (OwnedSemaphorePermit, Option<Listening>),
}

impl Reader {
    /// The next piece of the stream, or none at its end. Something comes at least every
    /// [`KEEP_ALIVE`], and nothing once the key has lost its power.
    async fn next(&mut self) -> Option<Bytes> {
        let piece = self.wait().await?;
        (self.let_in)().then_some(piece)
    }

    async fn wait(&mut self) -> Option<Bytes> {
        if self.ended {
            return None;
        }
        if !self.greeted {
            self.greeted = true;
            return Some(Bytes::from_static(b": following\n\n"));
        }
        while let Some(notice) = self.missed.pop_front() {
            if notice.tenant == self.tenant {
                return Some(self.frame(&notice));
            }
        }
        let keep_alive = tokio::time::sleep(KEEP_ALIVE);
        tokio::pin!(keep_alive);
        loop {
            let received = tokio::select! {
                biased;
                () = self.stopping.wait() => return None,
                received = self.feed.recv() => received,
                () = &mut keep_alive => return Some(Bytes::from_static(b": still here\n\n")),
            };
            match received {
                Ok(notice) if notice.tenant != self.tenant => {}
                Ok(notice) if self.shown.remove(&notice.id) => {}
                Ok(notice) => return Some(self.frame(&notice)),
                Err(RecvError::Lagged(lost)) => {
                    self.ended = true;
                    let text = format!(
                        "event: dropped\ndata: {{\"topic\":\"{TOPIC}\",\"kind\":\"stream.dropped\",\"lost\":{lost}}}\n\n"
                    );
                    return Some(text.into());
                }
                Err(RecvError::Closed) => return None,
            }
        }
    }

    fn frame(&self, notice: &Notice) -> Bytes {
        let view = notice.view(&self.tenant_name, None);
        // Every part of it is text or a number; there is nothing that JSON could refuse.
        let data = serde_json::to_string(&view).unwrap_or_default();
        format!("id: {}\ndata: {data}\n\n", notice.id).into()
    }
}

#[cfg(test)]
mod tests {
    use postrider_core::{EndpointId, Timestamp};
    use postrider_engine::notices::NoticeKind;
    use tokio::sync::Semaphore;

    use super::*;

    fn notice(id: u64, tenant: TenantId) -> Arc<Notice> {
        Arc::new(Notice {
            id,
            at: Timestamp::MIN,
            tenant,
            kind: NoticeKind::BreakerOpened,
            endpoint: Some(EndpointId::from_i64(1)),
            source: None,
            hub: None,
            delivery: None,
            detail: None,
        })
    }

    async fn reader(places: &Arc<Semaphore>, feed: broadcast::Receiver<Arc<Notice>>) -> Reader {
        Reader {
            let_in: Box::new(|| true),
            missed: VecDeque::from([notice(3, TenantId::DEFAULT), notice(4, TenantId(2))]),
            shown: HashSet::from([3, 4]),
            feed,
            tenant: TenantId::DEFAULT,
            tenant_name: "default".into(),
            stopping: Stopping::never(),
            greeted: true,
            ended: false,
            _held: (Arc::clone(places).acquire_owned().await.expect("a place"), None),
        }
    }

    async fn next_text(reader: &mut Reader) -> Option<String> {
        reader.next().await.map(|frame| String::from_utf8(frame.to_vec()).expect("text"))
    }

    #[tokio::test]
    async fn a_notice_is_shown_once_and_to_its_tenant_only() {
        let places = Arc::new(Semaphore::new(1));
        let (feed, receiver) = broadcast::channel(8);
        let mut reader = reader(&places, receiver).await;
        for (id, tenant) in [(4, TenantId::DEFAULT), (5, TenantId(2)), (6, TenantId::DEFAULT)] {
            feed.send(notice(id, tenant)).expect("a reader");
        }
        drop(feed);
        let mut ids = Vec::new();
        while let Some(text) = next_text(&mut reader).await {
            ids.extend(text.lines().next().map(str::to_owned));
        }
        assert_eq!(ids, ["id: 3", "id: 6"]);
    }

    #[tokio::test]
    async fn a_reader_whose_key_has_lost_its_power_sees_no_more() {
        let places = Arc::new(Semaphore::new(1));
        let (_feed, receiver) = broadcast::channel(8);
        let mut reader = reader(&places, receiver).await;
        reader.missed.push_back(notice(5, TenantId::DEFAULT));
        assert!(next_text(&mut reader).await.is_some());
        reader.let_in = Box::new(|| false);
        assert_eq!(next_text(&mut reader).await, None);
    }

    #[tokio::test]
    async fn a_reader_that_is_too_slow_is_told_so_and_dropped() {
        let places = Arc::new(Semaphore::new(1));
        let (feed, receiver) = broadcast::channel(2);
        let mut reader = reader(&places, receiver).await;
        for id in 5..10 {
            feed.send(notice(id, TenantId::DEFAULT)).expect("a reader");
        }
        assert!(next_text(&mut reader).await.is_some_and(|text| text.starts_with("id: 3\n")));
        let last = next_text(&mut reader).await.expect("a last event");
        assert!(last.starts_with("event: dropped\n"), "{last}");
        assert!(last.contains("\"lost\":3"), "{last}");
        assert_eq!(next_text(&mut reader).await, None);
        drop(reader);
        assert_eq!(places.available_permits(), 1);
    }
}
