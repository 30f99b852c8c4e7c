//! A queue whose handler does what the test says, on a clock that the test moves.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use postrider_core::policy::Preset;
use postrider_core::{DeliveryId, EndpointId, EventId, State, TenantId, Timestamp};
use postrider_engine::embedded::{
    Embedded, Failure, Handled, HandlerOptions, Message, NewMessage, Queue,
};
use postrider_engine::ports::{Clock as _, ManualClock};
use postrider_store::Store;
use postrider_store::record::DeliveryRecord;
use postrider_store::sealing::{Keyring, SealingKey};
use postrider_store::sqlite::{self, Sqlite};
use tempfile::TempDir;
use tokio::sync::broadcast::error::RecvError;

pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// 2027-01-15T08:00:00Z.
pub(crate) const START: Timestamp = Timestamp::from_millis(1_800_000_000_000);
const DATABASE: &str = "runs.db";
pub(crate) const HANDLER: &str = "judge";
pub(crate) const EVENT_TYPE: &str = "run.discovered";

/// One call of the handler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) run: String,
    pub(crate) attempt: u32,
    pub(crate) is_retry: bool,
    pub(crate) at: Timestamp,
}

/// Judges runs as it is told to, and remembers them.
#[derive(Clone)]
pub(crate) struct Judge {
    verdict: Arc<Mutex<Verdict>>,
    calls: Arc<Mutex<Vec<Call>>>,
}

type Verdict = Box<dyn Fn(&str, u32) -> Result<Handled, Failure> + Send>;

impl Judge {
    pub(crate) fn new(
        verdict: impl Fn(&str, u32) -> Result<Handled, Failure> + Send + 'static,
    ) -> Self {
        Self { verdict: Arc::new(Mutex::new(Box::new(verdict))), calls: Arc::default() }
    }

    /// From now on.
    pub(crate) fn says(
        &self,
        verdict: impl Fn(&str, u32) -> Result<Handled, Failure> + Send + 'static,
    ) {
        *self.verdict.lock() = Box::new(verdict);
    }

    pub(crate) fn calls(&self) -> Vec<Call> {
        self.calls.lock().clone()
    }

    /// The runs it was given, in order.
    pub(crate) fn order(&self) -> Vec<String> {
        self.calls().into_iter().map(|call| call.run).collect()
    }

    fn judge(&self, message: &Message, at: Timestamp) -> Result<Handled, Failure> {
        let run = text(message);
        let (attempt, is_retry) = (message.attempt(), message.is_retry());
        self.calls.lock().push(Call { run: run.clone(), attempt, is_retry, at });
        (self.verdict.lock())(&run, attempt)
    }
}

#[expect(clippy::unnecessary_wraps, reason = "a verdict like any other")]
pub(crate) fn passes(_: &str, _: u32) -> Result<Handled, Failure> {
    Ok(Handled::done().result("Passed"))
}

pub(crate) fn crashes(_: &str, _: u32) -> Result<Handled, Failure> {
    Err(Failure::retryable("the emulator crashed"))
}

pub(crate) fn text(message: &Message) -> String {
    String::from_utf8(message.bytes().to_vec()).expect("text")
}

pub(crate) fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) fn store(folder: &Path) -> Arc<dyn Store> {
    let keyring = Keyring::new(vec![SealingKey::from_bytes([7; 32])]).expect("one key");
    let store = Sqlite::open(&folder.join(DATABASE), sqlite::Options::default(), keyring);
    Arc::new(store.expect("a database"))
}

/// A queue with a judge, and with a bystander who shows that the queue has had its chance.
pub(crate) struct Runs {
    pub(crate) queue: Queue,
    pub(crate) clock: ManualClock,
    pub(crate) data: TempDir,
}

impl Runs {
    /// The preset `runs`, one at a time.
    pub(crate) async fn start(judge: &Judge) -> Self {
        let options = HandlerOptions::default().policy(Preset::Runs).concurrency(1);
        Self::open(TempDir::new().expect("a folder"), START, judge, options).await
    }

    pub(crate) async fn open(
        data: TempDir,
        now: Timestamp,
        judge: &Judge,
        options: HandlerOptions,
    ) -> Self {
        let clock = ManualClock::at(now);
        let (time, judge) = (clock.clone(), judge.clone());
        let queue = Self::embedded(&data, &clock)
            .handler(HANDLER, [EVENT_TYPE], options, move |message| {
                let answer = judge.judge(&message, time.now());
                async { answer }
            })
            .start()
            .await
            .expect("the queue starts");
        Self { queue, clock, data }
    }

    /// A queue with nothing but the bystander.
    pub(crate) fn embedded(data: &TempDir, clock: &ManualClock) -> Embedded {
        let bystander = |_: Message| async { Ok(Handled::done()) };
        Embedded::open(store(data.path())).clock(Arc::new(clock.clone())).handler(
            "bystander",
            ["tick"],
            HandlerOptions::default(),
            bystander,
        )
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Enqueues a run and returns its delivery.
    pub(crate) async fn discover(&self, run: &str) -> DeliveryId {
        let id = self.queue.enqueue(message(run)).await.expect("enqueued");
        self.only(id).await
    }

    pub(crate) async fn only(&self, id: EventId) -> DeliveryId {
        let deliveries = self.queue.deliveries(id).await.expect("readable");
        assert_eq!(deliveries.len(), 1, "one handler listens");
        deliveries[0].id
    }

    /// Waits until a delivery is as wanted.
    pub(crate) async fn until(
        &self,
        id: DeliveryId,
        wanted: impl Fn(&DeliveryRecord) -> bool,
    ) -> DeliveryRecord {
        let mut notices = self.queue.engine().notices().subscribe();
        let comes = async {
            loop {
                let record = self.queue.delivery(id).await.expect("readable");
                if wanted(&record) {
                    return record;
                }
                match notices.recv().await {
                    Ok(_) | Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => panic!("the engine is gone"),
                }
            }
        };
        if let Ok(record) = tokio::time::timeout(PATIENCE, comes).await {
            return record;
        }
        panic!("{id} stays as {:?}", self.queue.delivery(id).await)
    }

    pub(crate) async fn until_retrying(&self, id: DeliveryId, attempts: u32) -> DeliveryRecord {
        self.until(id, |record| record.state == State::Retrying && record.attempts == attempts)
            .await
    }

    pub(crate) async fn until_state(&self, id: DeliveryId, state: State) -> DeliveryRecord {
        self.until(id, |record| record.state == state).await
    }

    /// Lets the queue do all that it would do at this moment.
    pub(crate) async fn let_it_act(&self) {
        let id = self.queue.enqueue(NewMessage::new("tick", "")).await.expect("enqueued");
        let ticked = tokio::time::timeout(PATIENCE, self.queue.finished(id)).await;
        let ticked = ticked.expect("it ends").expect("readable");
        assert_eq!(ticked[0].state, State::Delivered);
    }

    /// Moves the clock to just before `due`, and lets the queue act.
    pub(crate) async fn just_before(&self, due: Timestamp) {
        self.clock.set(due.minus(Duration::from_millis(1)));
        self.let_it_act().await;
    }

    pub(crate) fn endpoint(&self) -> EndpointId {
        let endpoints = self.queue.engine().endpoints(TenantId::DEFAULT);
        let named = |name: Option<&str>| name == Some(HANDLER);
        endpoints.iter().find(|endpoint| named(endpoint.spec.name.as_deref())).expect("there").id
    }

    /// Stops in good order and returns what is left.
    pub(crate) async fn stop(self) -> TempDir {
        let drained = self.queue.drain(PATIENCE).await;
        assert_eq!(drained.abandoned, 0);
        self.data
    }

    /// What is on disk at this moment, as if the machine had stopped dead.
    pub(crate) fn image(&self) -> TempDir {
        let image = TempDir::new().expect("a folder");
        for entry in fs::read_dir(self.data.path()).expect("readable") {
            let entry = entry.expect("an entry");
            fs::copy(entry.path(), image.path().join(entry.file_name())).expect("copied");
        }
        image
    }
}

pub(crate) fn message(run: &str) -> NewMessage {
    NewMessage::new(EVENT_TYPE, run.to_owned()).idempotency_key(run)
}
