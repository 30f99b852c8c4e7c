//! Workers that lease what waits at a pull endpoint and acknowledge it, each on its own connection.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::connection::{Answer, Connection, Target};
use super::event;
use super::gateway::Desk;
use super::sink::Arrivals;

/// How many deliveries a worker asks for at once: as many as it may.
const LEASED_AT_ONCE: usize = 100;
/// How long the gateway may keep a worker waiting when there is nothing.
const WAIT: &str = "10s";
/// Longer than any measure takes to acknowledge, so that none lapses.
const LEASE: &str = "5m";
/// The longest a worker waits for one answer, which is more than it asks to be kept waiting.
const PATIENCE: Duration = Duration::from_mins(1);

/// When a delivery counts as arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Noted {
    /// When the worker has it.
    Leased,
    /// When the gateway has said that it is settled.
    Acknowledged,
}

/// At work until dropped.
#[derive(Debug)]
pub(crate) struct Workers {
    tasks: JoinSet<Result<()>>,
}

impl Workers {
    /// Starts once every connection is open.
    pub(crate) async fn start(
        desk: &Desk,
        count: usize,
        arrivals: &Arc<Arrivals>,
        noted: Noted,
    ) -> Result<Self> {
        let wish = json!({"max": LEASED_AT_ONCE, "wait": WAIT, "lease": LEASE});
        let wish = Bytes::from(serde_json::to_vec(&wish)?);
        let mut workers = Vec::with_capacity(count);
        for _ in 0..count {
            let connection = Connection::open(desk.lease.address).await;
            let connection = connection.context("a worker's connection")?;
            let (desk, wish, arrivals) = (desk.clone(), wish.clone(), Arc::clone(arrivals));
            workers.push(Worker { connection, desk, wish, arrivals, noted });
        }
        let mut tasks = JoinSet::new();
        for mut worker in workers {
            tasks.spawn(async move {
                loop {
                    worker.lease_and_acknowledge().await?;
                }
            });
        }
        Ok(Self { tasks })
    }

    /// What `measured` comes to, or why a worker could not go on meanwhile.
    pub(crate) async fn during<T>(
        &mut self,
        measured: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        tokio::select! {
            measured = measured => measured,
            Some(ended) = self.tasks.join_next() => {
                ended.context("a worker")?.context("a worker")?;
                anyhow::bail!("a worker has stopped");
            }
        }
    }
}

#[derive(Debug)]
struct Worker {
    connection: Connection,
    desk: Desk,
    /// The body of every request for leases.
    wish: Bytes,
    arrivals: Arc<Arrivals>,
    noted: Noted,
}

#[derive(Deserialize)]
struct Leases<'a> {
    #[serde(borrow)]
    leases: Vec<Lease<'a>>,
}

#[derive(Deserialize)]
struct Lease<'a> {
    lease: &'a str,
    #[serde(borrow)]
    event: Event<'a>,
}

/// What else is said of it is passed over, and its payload is not taken apart.
#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow)]
    payload: &'a RawValue,
}

#[derive(Serialize)]
struct Acknowledgement<'a> {
    leases: Vec<&'a str>,
}

#[derive(Deserialize)]
struct Results {
    results: Vec<Settled>,
}

#[derive(Deserialize)]
struct Settled {
    ok: bool,
}

impl Worker {
    /// One turn. That there was nothing to lease in the time it was willing to wait is no error.
    async fn lease_and_acknowledge(&mut self) -> Result<()> {
        let leased = send(&mut self.connection, &self.desk.lease, self.wish.clone()).await?;
        let Leases { leases } = leased.json(StatusCode::OK).context("a lease")?;
        if leases.is_empty() {
            return Ok(());
        }
        let numbers = leases.iter().map(|lease| {
            let payload = lease.event.payload.get();
            event::number(payload.as_bytes()).context("a leased event is none of the bench's")
        });
        let numbers: Vec<u64> = numbers.collect::<Result<_>>()?;
        self.note(Noted::Leased, &numbers);

        let done = Acknowledgement { leases: leases.iter().map(|lease| lease.lease).collect() };
        let done = Bytes::from(serde_json::to_vec(&done)?);
        let answer = send(&mut self.connection, &self.desk.ack, done).await?;
        let Results { results } = answer.json(StatusCode::OK).context("an acknowledgement")?;
        let settled = results.iter().filter(|settled| settled.ok).count();
        ensure!(settled == numbers.len(), "{settled} of {} leases were settled", numbers.len());
        self.note(Noted::Acknowledged, &numbers);
        Ok(())
    }

    fn note(&self, reached: Noted, numbers: &[u64]) {
        if self.noted == reached {
            for number in numbers {
                self.arrivals.note(*number);
            }
        }
    }
}

async fn send(connection: &mut Connection, target: &Target, body: Bytes) -> Result<Answer> {
    let sent = timeout(PATIENCE, connection.send(target.request(body)));
    sent.await.context("no answer to a worker")?
}

#[cfg(test)]
mod tests {
    use std::collections::{HashSet, VecDeque};
    use std::sync::{Mutex, PoisonError};

    use axum::extract::State;
    use axum::response::{IntoResponse as _, Response};
    use axum::routing::post;
    use axum::{Json, Router};
    use http::Method;
    use serde_json::Value;
    use tokio::net::TcpListener;

    use super::*;

    /// Deliveries that wait, and leases that are out: the desk without a store.
    #[derive(Debug, Default)]
    struct Queue {
        waiting: Mutex<VecDeque<u64>>,
        leased: Mutex<HashSet<String>>,
    }

    fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
        mutex.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn lease(State(queue): State<Arc<Queue>>, Json(wish): Json<Value>) -> Response {
        let max = wish["max"].as_u64().and_then(|max| usize::try_from(max).ok()).expect("a max");
        let numbers: Vec<u64> = {
            let mut waiting = locked(&queue.waiting);
            let count = waiting.len().min(max);
            waiting.drain(..count).collect()
        };
        if numbers.is_empty() {
            // As long as a worker is willing to wait is too long for a test.
            std::future::pending::<()>().await;
        }
        let leases = numbers.iter().map(|number| {
            let token = format!("lse_{number}");
            locked(&queue.leased).insert(token.clone());
            let mut payload = String::new();
            event::write_payload(&mut payload, *number);
            format!(
                r#"{{"lease":"{token}","attempt":1,"event":{{"type":"a.b","payload":{payload}}}}}"#
            )
        });
        format!(r#"{{"leases":[{}]}}"#, leases.collect::<Vec<_>>().join(",")).into_response()
    }

    async fn ack(State(queue): State<Arc<Queue>>, Json(done): Json<Value>) -> Json<Value> {
        let tokens = done["leases"].as_array().expect("a list");
        let results = tokens.iter().map(|token| {
            let ok = locked(&queue.leased).remove(token.as_str().expect("a token"));
            json!({"lease": token, "ok": ok})
        });
        Json(json!({"results": results.collect::<Vec<_>>()}))
    }

    async fn desk(router: Router) -> Desk {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let target = Target::new(listener.local_addr().expect("an address"), None);
        let target = target.expect("a target");
        tokio::spawn(axum::serve(listener, router).into_future());
        let at = |path| target.at(Method::POST, path).expect("a path");
        Desk { lease: at("/lease"), ack: at("/ack") }
    }

    #[tokio::test]
    async fn what_waits_is_leased_and_acknowledged_once() {
        const EVENTS: u64 = 1_050;
        for noted in [Noted::Leased, Noted::Acknowledged] {
            let queue = Arc::new(Queue::default());
            locked(&queue.waiting).extend(0..EVENTS);
            let router = Router::new().route("/lease", post(lease)).route("/ack", post(ack));
            let desk = desk(router.with_state(Arc::clone(&queue))).await;
            let arrivals = Arc::new(Arrivals::new(2_000));
            let workers = Workers::start(&desk, 3, &arrivals, noted).await;
            let mut workers = workers.expect("connections");
            let reached = workers.during(arrivals.reach(EVENTS, Duration::from_mins(1))).await;
            reached.expect("all arrive");
            assert_eq!((arrivals.unique(), arrivals.repeated()), (EVENTS, 0), "{noted:?}");
            if noted == Noted::Acknowledged {
                assert_eq!(locked(&queue.leased).len(), 0);
            }
        }
    }

    #[tokio::test]
    async fn a_desk_that_does_not_do_its_part_fails_the_run() {
        let mut payload = String::new();
        event::write_payload(&mut payload, 0);
        let leased = |payload: &str| {
            format!(r#"{{"leases":[{{"lease":"lse_1","event":{{"payload":{payload}}}}}]}}"#)
        };
        let settled = r#"{"results":[{"lease":"lse_1","ok":true}]}"#;
        let lapsed = r#"{"results":[{"lease":"lse_1","ok":false}]}"#;
        for (status, leased, acked, says) in [
            (StatusCode::CONFLICT, leased(&payload), settled, "409"),
            (StatusCode::OK, "{}".to_owned(), settled, "not as expected"),
            (StatusCode::OK, leased("7"), settled, "none of the bench's"),
            (StatusCode::OK, leased(&payload), "{}", "not as expected"),
            (StatusCode::OK, leased(&payload), lapsed, "0 of 1 leases"),
        ] {
            let router = Router::new()
                .route("/lease", post(move || async move { (status, leased) }))
                .route("/ack", post(move || async move { acked }));
            let arrivals = Arc::new(Arrivals::new(1));
            let desk = desk(router).await;
            let workers = Workers::start(&desk, 1, &arrivals, Noted::Acknowledged).await;
            let mut workers = workers.expect("a connection");
            let failed = workers.during(std::future::pending::<Result<()>>()).await;
            let error = format!("{:#}", failed.expect_err(says));
            assert!(error.contains(says), "{error}");
            assert_eq!(arrivals.unique(), 0, "{says}");
        }
    }
}
