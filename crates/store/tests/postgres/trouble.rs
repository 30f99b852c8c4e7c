//! Killed connections and a server that goes down: nothing is acknowledged that is not stored, and
//! the store goes on by itself.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use postrider_core::DeliveryId;
use postrider_core::delivery::{Next, State};
use postrider_store::Error;
use postrider_store::journal::{Appended, Journal as _};
use postrider_store::ledger::{EventQuery, Ledger as _};
use postrider_store::record::{Attempt, Settle};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::*;
use crate::cluster::Disk;

pub(super) fn success(id: DeliveryId) -> Settle {
    Settle {
        id,
        endpoint: ENDPOINT,
        fence: 0,
        in_line: false,
        from: State::Pending,
        next: Next {
            state: State::Delivered,
            attempts: 1,
            deferrals: 0,
            born: NOW,
            due: None,
            reason: None,
            class: None,
            counted: true,
            hold_endpoint_until: None,
            disable_endpoint: false,
        },
        at: NOW,
        attempt: Some(Attempt {
            number: 1,
            counted: true,
            started_at: NOW,
            duration: Duration::ZERO,
            status: Some(200),
            class: None,
            error: None,
            response: None,
        }),
        lease: None,
        result: None,
        tenure: None,
    }
}

/// Appends until told to stop; returns the events that were acknowledged. Refusals are counted.
struct Producers {
    store: Arc<Postgres>,
    stop: Arc<AtomicBool>,
    numbers: Arc<AtomicI64>,
    tasks: JoinSet<(Vec<EventId>, usize)>,
}

impl Producers {
    fn start(store: &Arc<Postgres>, count: usize) -> Self {
        let mut producers = Self {
            store: Arc::clone(store),
            stop: Arc::default(),
            numbers: Arc::default(),
            tasks: JoinSet::new(),
        };
        for _ in 0..count {
            let (store, stop) = (Arc::clone(&producers.store), Arc::clone(&producers.stop));
            let numbers = Arc::clone(&producers.numbers);
            producers.tasks.spawn(async move {
                let (mut kept, mut refused) = (Vec::new(), 0);
                while !stop.load(Ordering::Relaxed) {
                    let new = event(numbers.fetch_add(1, Ordering::Relaxed), &Bytes::new());
                    let id = new.event.id;
                    match store.append(vec![new]).await {
                        Ok(appended) => {
                            assert!(matches!(appended[..], [Appended::New { .. }]));
                            kept.push(id);
                        }
                        Err(Error::Unavailable(_)) => {
                            refused += 1;
                            tokio::task::yield_now().await;
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
                (kept, refused)
            });
        }
        producers
    }

    async fn finish(mut self) -> (Vec<EventId>, usize) {
        self.stop.store(true, Ordering::Relaxed);
        let (mut kept, mut refused) = (Vec::new(), 0);
        while let Some(ended) = self.tasks.join_next().await {
            let (more, also) = ended.expect("no panic");
            kept.extend(more);
            refused += also;
        }
        (kept, refused)
    }
}

async fn stored(store: &Postgres) -> HashSet<EventId> {
    let mut query = EventQuery { limit: 1_000, ..EventQuery::default() };
    let mut ids = HashSet::new();
    loop {
        let listed = store.events(TenantId::DEFAULT, query.clone()).await.expect("a list");
        ids.extend(listed.rows.iter().map(|event| event.id));
        match listed.next {
            Some(next) => query.before = Some(next.event),
            None => return ids,
        }
    }
}

/// Tries until the store takes something again.
async fn recovered(store: &Postgres, number: i64) {
    for _ in 0..1_000 {
        match store.append(vec![event(number, &Bytes::new())]).await {
            // A commit whose answer was lost had been made.
            Ok(_) | Err(Error::Exists(_)) => return,
            Err(Error::Unavailable(_)) => tokio::time::sleep(Duration::from_millis(20)).await,
            Err(error) => panic!("{error}"),
        }
    }
    panic!("the store did not recover")
}

/// Asks until the store answers again: each of its connections recovers by itself.
async fn answers(store: &Postgres) {
    for _ in 0..1_000 {
        match store.ping().await {
            Ok(()) => return,
            Err(Error::Unavailable(_)) => tokio::time::sleep(Duration::from_millis(20)).await,
            Err(error) => panic!("{error}"),
        }
    }
    panic!("the store does not answer")
}

const LATER: i64 = 1_000_000_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_connections_that_were_killed_are_made_anew_unnoticed() {
    let database = Database::new();
    let store = database.store(few()).await;
    store.append(vec![event(1, &Bytes::new())]).await.expect("stored");
    store.ping().await.expect("it answers");
    Cluster::shared().kill_connections(database.name());
    recovered(&store, 2).await;
    answers(&store).await;
    assert_eq!(store.event_count(TenantId::DEFAULT).await.expect("counted"), 2);
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_connections_lose_nothing_that_was_acknowledged() {
    let database = Database::new();
    let store = Arc::new(database.store(few()).await);
    let producers = Producers::start(&store, 8);
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let name = database.name().to_owned();
        let kill = move || Cluster::shared().kill_connections(&name);
        tokio::task::spawn_blocking(kill).await.expect("killed");
    }
    recovered(&store, LATER).await;
    let (kept, refused) = producers.finish().await;
    let stored = stored(&store).await;
    assert!(kept.len() > 10 && refused > 0, "{} kept, {refused} refused", kept.len());
    assert!(kept.iter().all(|id| stored.contains(id)), "all of {} are there", kept.len());
    let count = store.event_count(TenantId::DEFAULT).await.expect("counted");
    assert_eq!(count, stored.len() as u64, "what was not acknowledged is whole or absent");
    let deliveries = store.counts(TenantId::DEFAULT).await.expect("counted");
    assert_eq!(deliveries[0].deliveries, count);
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_crashes_under_load_loses_nothing_that_was_acknowledged() {
    let cluster = Arc::new(Cluster::start(Disk::Synced, ""));
    let url = cluster.database();
    let open = async || Postgres::connect(&url, few(), keyring()).await.expect("it opens");
    let store = Arc::new(open().await);
    let producers = Producers::start(&store, 8);
    for round in 0..3 {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let crashing = Arc::clone(&cluster);
        tokio::task::spawn_blocking(move || crashing.crash()).await.expect("restarted");
        recovered(&store, LATER + round).await;
    }
    let (kept, refused) = producers.finish().await;
    store.close().await;
    drop(store);
    let store = open().await;
    let stored = stored(&store).await;
    assert!(kept.len() > 10 && refused > 0, "{} kept, {refused} refused", kept.len());
    assert!(kept.iter().all(|id| stored.contains(id)), "all of {} are there", kept.len());
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_server_is_down_everything_is_refused_at_once() {
    let cluster = Cluster::start(Disk::Trusted, "");
    let url = cluster.database();
    let store = Postgres::connect(&url, few(), keyring()).await.expect("it opens");
    store.append(vec![event(1, &Bytes::new())]).await.expect("stored");
    cluster.stop();
    for number in 2..200 {
        let refused = store.append(vec![event(number, &Bytes::new())]).await;
        assert!(matches!(refused, Err(Error::Unavailable(_))), "{refused:?}");
        let refused = store.ping().await;
        assert!(matches!(refused, Err(Error::Unavailable(_))), "{refused:?}");
    }
    cluster.start_again();
    recovered(&store, 200).await;
    store.close().await;
}

/// A way to the shared server that can be made to swallow everything.
struct Tunnel {
    port: u16,
    open: watch::Sender<bool>,
}

impl Tunnel {
    async fn dig() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("known").port();
        let (open, state) = watch::channel(true);
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let far = UnixStream::connect(Cluster::shared().socket()).await.expect("a server");
                let ((near_in, near_out), (far_in, far_out)) =
                    (near.into_split(), far.into_split());
                tokio::spawn(carry(near_in, far_out, state.clone()));
                tokio::spawn(carry(far_in, near_out, state.clone()));
            }
        });
        Self { port, open }
    }

    fn url(&self, database: &Database) -> String {
        let (port, name) = (self.port, database.name());
        format!("postgres://{}@127.0.0.1:{port}/{name}?sslmode=disable", cluster::USER)
    }
}

async fn carry(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut open: watch::Receiver<bool>,
) {
    let mut bytes = vec![0; 16 << 10];
    loop {
        let read = from.read(&mut bytes).await.unwrap_or(0);
        // Not even an end gets through.
        let passed = open.wait_for(|open| *open).await.is_ok();
        if read == 0 || !passed || to.write_all(&bytes[..read]).await.is_err() {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_network_that_swallows_everything_is_given_up() {
    let database = Database::new();
    let tunnel = Tunnel::dig().await;
    let impatient = Options {
        patience: Duration::from_millis(200),
        connect_timeout: Duration::from_millis(500),
        ..few()
    };
    let store = Postgres::connect(&tunnel.url(&database), impatient, keyring()).await;
    let store = store.expect("it opens");
    store.append(vec![event(1, &Bytes::new())]).await.expect("stored");
    store.ping().await.expect("it answers");
    tunnel.open.send_replace(false);
    for number in 2..5 {
        let refused = store.append(vec![event(number, &Bytes::new())]).await;
        assert!(matches!(refused, Err(Error::Unavailable(_))), "{refused:?}");
        let refused = store.ping().await;
        assert!(matches!(refused, Err(Error::Unavailable(_))), "{refused:?}");
    }
    tunnel.open.send_replace(true);
    recovered(&store, LATER).await;
    answers(&store).await;
    store.close().await;
}

/// The locks of whole processes in this database, held or waited for.
const LOCKS: &str = "FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND \
     database = (SELECT oid FROM pg_database WHERE datname = current_database())";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_written_while_another_has_taken_the_database() {
    let database = Database::new();
    let store = database.store(few()).await;
    store.append(vec![event(1, &Bytes::new())]).await.expect("stored");
    // Somebody else wants it alone, and has it in the moment in which the node's connection goes.
    let lock = database.sql(&format!("SELECT classid::int8 << 32 | objid::int8 {LOCKS}"));
    let pid = database.sql(&format!("SELECT pid {LOCKS}"));
    let name = database.name().to_owned();
    let sql = format!("SELECT pg_advisory_lock({lock}); SELECT pg_sleep(60)");
    let other = tokio::task::spawn_blocking(move || {
        std::panic::catch_unwind(|| Cluster::shared().sql(&name, &sql)).is_err()
    });
    while database.sql(&format!("SELECT count(*) {LOCKS} AND NOT granted")) == "0" {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    database.sql(&format!("SELECT pg_terminate_backend({pid})"));
    let mut number = 2;
    let refused = loop {
        // A lost lock is no reason to stop. That another has it is known when it is to be regained.
        match store.append(vec![event(number, &Bytes::new())]).await {
            Ok(_) => number += 1,
            Err(error) => break error,
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    assert!(matches!(refused, Error::Unavailable(_)), "{refused}");
    assert_eq!(
        store.event_count(TenantId::DEFAULT).await.expect("readable"),
        number.cast_unsigned() - 1
    );
    database.sql(&format!("SELECT pg_terminate_backend(pid) {LOCKS} AND granted"));
    assert!(other.await.expect("ended"), "it was killed");
    recovered(&store, LATER).await;
    store.close().await;
}

#[tokio::test]
async fn a_bad_command_does_not_harm_those_it_shares_a_commit_with() {
    let database = Database::new();
    let store = database.store(Options { writers: 1, ..few() }).await;
    let append = |number| store.append(vec![event(number, &Bytes::new())]);
    append(1).await.expect("stored");
    // The first occupies the writer; the others gather into one transaction.
    let (first, second, bad, third) = tokio::join!(append(2), append(3), append(1), append(4));
    for good in [first, second, third] {
        assert!(matches!(good.as_deref(), Ok([Appended::New { .. }])), "{good:?}");
    }
    assert!(matches!(bad, Err(Error::Exists(_))), "{bad:?}");
    assert_eq!(store.event_count(TenantId::DEFAULT).await.expect("counted"), 4);
    store.close().await;
}
