//! The engine as a library: a durable queue inside your program.
//!
//! A message is stored before [`enqueue`](Queue::enqueue) says yes, and handed to every handler
//! that listens to its type until the handler is done with it, refuses it for good, or the policy
//! gives up. Attempts, waits and results are in the store: a restart goes on where the program
//! stopped.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use postrider_core::policy::Preset;
//! use postrider_engine::embedded::{Embedded, Failure, Handled, HandlerOptions, Message, NewMessage};
//! use postrider_store::sealing::{Keyring, SealingKey};
//! use postrider_store::sqlite::{self, Sqlite};
//!
//! #[derive(serde::Serialize, serde::Deserialize)]
//! struct Mail {
//!     to: String,
//! }
//!
//! async fn send(message: Message) -> Result<Handled, Failure> {
//!     // What cannot be read is final; any other error that leaves by `?` is retryable.
//!     let mail: Mail = message.json()?;
//!     if !mail.to.contains('@') {
//!         return Err(Failure::fatal("this is no address"));
//!     }
//!     // connect().await?.send(&mail).await?;
//!     Ok(Handled::done().result("sent"))
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let (path, key) = (folder.path().join("mail.db"), "5".repeat(64));
//! // One file, and the key that secrets in it are sealed with.
//! let keyring = Keyring::new(vec![SealingKey::parse(&key)?])?;
//! let store = Sqlite::open(&path, sqlite::Options::default(), keyring)?;
//!
//! let options = HandlerOptions::default().policy(Preset::Dispatch).concurrency(8);
//! let queue = Embedded::open(Arc::new(store))
//!     .handler("mail", ["mail.*"], options, send)
//!     .start()
//!     .await?;
//!
//! let mail = Mail { to: "reader@example.com".into() };
//! let id = queue.enqueue(NewMessage::json("mail.welcome", &mail)?.idempotency_key("u-17")).await?;
//!
//! let ended = queue.finished(id).await?;
//! assert_eq!(ended[0].result.as_deref(), Some("sent"));
//!
//! queue.drain(Duration::from_secs(30)).await;
//! # Ok(())
//! # }
//! ```
//!
//! # What holds
//!
//! - **At least once.** A handler that has ended is not called again with that message, unless the
//!   program died before the end was on disk. [`Message::id`] is the same every time.
//! - **Oldest first.** Retries and new messages compete by age: of those that may be tried, the one
//!   that was enqueued first goes first. With [`concurrency`](HandlerOptions::concurrency) 1 that is
//!   the order in which they are handled. A retry holds up nobody before it is due, and takes its
//!   place once it has been read from the store, a moment later. Where a message must never be
//!   overtaken, there is [`ordering`](HandlerOptions::ordering).
//! - **The handler says what a failure means.** [`Failure`] has the three classes. A panic is a
//!   retryable failure, a handler that outlasts its [`timeout`](HandlerOptions::timeout) is stopped
//!   and has failed as the policy says of timeouts.
//! - **Nothing is dropped in silence.** What a handler refused or a policy gave up on is a
//!   [dead letter](Queue::dead_letters), which can be looked at and [retried](Queue::retry). A
//!   message that no handler listens to is not enqueued. And a handler that was registered once and
//!   is missing at this start keeps its messages: they wait, new ones as well, until it is registered
//!   again, or until their policy's `max_age` has passed. To be rid of them, delete its endpoint with
//!   [`Engine::delete_endpoint`]; that cancels what waits.
//!
//! # Handlers are endpoints
//!
//! A handler is stored under its name as an endpoint of the tenant `default`. Each start brings it
//! up to date with what the program says of it, before anything is carried. All else that the
//! engine offers is there, too: [`Queue::engine`] has notices to subscribe to, pausing, replays, and
//! endpoints of every other kind beside the handlers. A handler that the engine disabled because it
//! failed for too long is enabled by the next start; by default it is never disabled.
//!
//! A handler that enqueues messages itself needs the [`Queue`], which is there only after the
//! start: give it an `Arc<OnceLock<Queue>>`, or a channel.

mod answer;
mod handlers;
mod message;
mod registration;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::{DeliveryId, EventId, State, TenantId};
use postrider_store::Store;
use postrider_store::ledger::{DeliveryFilter, DeliveryQuery, Direction, Listed, Position};
use postrider_store::record::{Attempt, DeliveryRecord};
use tokio::sync::broadcast::error::RecvError;

pub use answer::{Failure, Handled, MAX_ERROR_CHARS, MAX_RESULT_CHARS};
pub use handlers::Handlers;
pub use message::{MAX_BODY_BYTES, MAX_KEY_CHARS, MAX_METADATA_BYTES, Message, NewMessage};
pub use registration::HandlerOptions;

use crate::accept::Accepted;
use crate::acting::Acting;
use crate::engine::{self, Drained, Engine, Options};
use crate::error::Error;
use crate::ports::{Clock, Entropy, SystemClock, SystemEntropy};
use registration::Registration;

/// The most messages in one commit.
pub const MAX_BATCH: usize = 1_000;
/// Dead letters in one page.
const DEAD_LETTERS: usize = 250;

const TENANT: TenantId = TenantId::DEFAULT;

/// A queue that has not started: a store, and the handlers.
#[must_use = "nothing is handled until it is started"]
pub struct Embedded {
    store: Arc<dyn Store>,
    options: Options,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    handlers: Handlers,
    registrations: Vec<Registration>,
}

/// Why a queue could not start. Nothing has been handled.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A handler cannot be as it was described.
    #[error("the handler {name:?}: {source}")]
    Handler {
        /// As it was registered.
        name: String,
        /// What is wrong with it.
        source: Error,
    },
    /// The handlers could not be registered in the store.
    #[error(transparent)]
    Store(#[from] postrider_store::Error),
    /// The engine could not start.
    #[error(transparent)]
    Engine(#[from] engine::StartError),
}

impl Embedded {
    /// A queue in this store.
    pub fn open(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            // What fails is part of the program, which somebody looks after; there is nobody who
            // would have to enable it.
            options: Options { disable_after: None, ..Options::default() },
            clock: Arc::new(SystemClock),
            entropy: Arc::new(SystemEntropy),
            handlers: Handlers::default(),
            registrations: Vec::new(),
        }
    }

    /// Registers a handler for messages of these types: exact ones, `run.*`, or `*` for all.
    ///
    /// The name is how the store knows it: with another name it is another handler, and what waits
    /// for the old one waits until that is there again.
    pub fn handler<F, Work>(
        mut self,
        name: impl Into<String>,
        event_types: impl IntoIterator<Item = impl Into<String>>,
        options: HandlerOptions,
        handler: F,
    ) -> Self
    where
        F: Fn(Message) -> Work + Send + Sync + 'static,
        Work: Future<Output = Result<Handled, Failure>> + Send + 'static,
    {
        let name = name.into();
        self.handlers = self.handlers.with(name.as_str(), handler);
        let event_types = event_types.into_iter().map(Into::into).collect();
        self.registrations.push(Registration { name, event_types, options });
        self
    }

    /// How the engine is set up. Its `handlers` are those that are registered here.
    pub fn options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// Another clock than the machine's: [`ManualClock`](crate::ports::ManualClock) makes days pass
    /// in a test.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Other randomness than the machine's.
    pub fn entropy(mut self, entropy: Arc<dyn Entropy>) -> Self {
        self.entropy = entropy;
        self
    }

    /// Registers the handlers in the store and begins to handle what waits there.
    pub async fn start(self) -> Result<Queue, StartError> {
        let Self { store, mut options, clock, entropy, handlers, registrations } = self;
        let mut specs = Vec::with_capacity(registrations.len());
        for (index, registration) in registrations.iter().enumerate() {
            let name = &registration.name;
            let refuse = |source| StartError::Handler { name: name.clone(), source };
            if registrations[..index].iter().any(|earlier| earlier.name == *name) {
                return Err(refuse(Error::Conflict("it is registered twice".into())));
            }
            specs.push(registration.spec(&options.presets).map_err(refuse)?);
        }
        registration::reconcile(&*store, &*entropy, specs, clock.now()).await?;
        options.handlers = handlers.clone();
        let engine = Engine::start(options, store, clock, entropy).await?;
        Ok(Queue { engine, handlers })
    }
}

impl fmt::Debug for Embedded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Embedded").field("handlers", &self.handlers).finish_non_exhaustive()
    }
}

/// A running queue. Clones are the same queue.
///
/// It runs until it is [drained](Self::drain), or its runtime ends.
#[derive(Debug, Clone)]
pub struct Queue {
    engine: Engine,
    handlers: Handlers,
}

impl Queue {
    /// Stores a message; when this returns, it is on disk. The same message again under the same
    /// idempotency key is there once, and has the id that it had. Another message under that key is
    /// an [`Error::Conflict`].
    pub async fn enqueue(&self, message: NewMessage) -> Result<EventId, Error> {
        let accepted = self.enqueue_all(vec![message]).await?.into_iter().next();
        match accepted {
            Some(Accepted::New { id, .. } | Accepted::Duplicate { id, .. }) => Ok(id),
            Some(Accepted::Conflict { id }) => Err(Error::Conflict(format!(
                "another message has this idempotency key already: {id}"
            ))),
            None => unreachable!("one answer for each message"),
        }
    }

    /// Stores up to [`MAX_BATCH`] messages in one commit, and says of each what became of it. They
    /// are as old as their place in the list: the first is handled first.
    pub async fn enqueue_all(&self, messages: Vec<NewMessage>) -> Result<Vec<Accepted>, Error> {
        if messages.len() > MAX_BATCH {
            return Err(Error::invalid("messages", format!("must be at most {MAX_BATCH}")));
        }
        let now = self.engine.clock().now();
        let submissions = messages
            .into_iter()
            .map(|message| {
                self.check_listened_to(message.event_type())?;
                message.submit(now)
            })
            .collect::<Result<Vec<_>, _>>()?;
        if submissions.is_empty() {
            return Ok(Vec::new());
        }
        self.engine.accept(TENANT, submissions).await
    }

    /// A type that is misspelt would be stored, and never be handled.
    fn check_listened_to(&self, event_type: &str) -> Result<(), Error> {
        let routes = self.engine.shared.routes.load();
        if routes.matching(TENANT, event_type).is_empty() {
            let message = format!("no handler listens to {event_type:?}");
            return Err(Error::invalid("type", message));
        }
        Ok(())
    }

    /// One message on its way to one handler: its state, attempts, last error, result.
    pub async fn delivery(&self, id: DeliveryId) -> Result<DeliveryRecord, Error> {
        let record = self.engine.store().delivery(TENANT, id).await?;
        Ok(self.as_it_stands(record.ok_or(Error::NotFound)?).await)
    }

    /// All deliveries of a message, one for each handler that listened when it was enqueued.
    pub async fn deliveries(&self, message: EventId) -> Result<Vec<DeliveryRecord>, Error> {
        let records = self.engine.store().event_deliveries(TENANT, message).await?;
        let mut standing = Vec::with_capacity(records.len());
        for record in records {
            standing.push(self.as_it_stands(record).await);
        }
        Ok(standing)
    }

    /// The attempts of a delivery, oldest first.
    pub async fn attempts(&self, id: DeliveryId) -> Result<Vec<Attempt>, Error> {
        self.delivery(id).await?;
        Ok(self.engine.store().attempts(id).await?)
    }

    /// Waits until every delivery of a message has ended, well or not, and says how.
    pub async fn finished(&self, message: EventId) -> Result<Vec<DeliveryRecord>, Error> {
        let mut notices = self.engine.notices().subscribe();
        loop {
            let records = self.deliveries(message).await?;
            if records.iter().all(|record| record.state.is_terminal()) {
                return Ok(records);
            }
            loop {
                match notices.recv().await {
                    Ok(notice) => {
                        let about = notice.delivery.as_ref();
                        if about.is_some_and(|delivery| delivery.event_id == message) {
                            break;
                        }
                    }
                    // One of those that were missed may have been it.
                    Err(RecvError::Lagged(_)) => break,
                    Err(RecvError::Closed) => return Err(postrider_store::Error::Closed.into()),
                }
            }
        }
    }

    /// Deliveries that ended in `failed` or `dead`, newest first: a page, and where the next one
    /// begins.
    pub async fn dead_letters(
        &self,
        after: Option<Position>,
    ) -> Result<Listed<DeliveryRecord>, Error> {
        let filter = DeliveryFilter {
            states: State::ALL.into_iter().filter(|state| state.is_dead_letter()).collect(),
            ..DeliveryFilter::default()
        };
        let (direction, limit) = (Direction::NewestFirst, DEAD_LETTERS);
        let query = DeliveryQuery { filter, after, direction, limit };
        Ok(self.engine.store().deliveries(TENANT, query).await?)
    }

    /// Gives a delivery another life: attempts from zero, due at once. Its history is kept.
    pub async fn retry(&self, id: DeliveryId) -> Result<DeliveryRecord, Error> {
        self.engine.retry(Acting::gateway(TENANT), id).await
    }

    /// Ends a delivery. A handler that has it already goes on; what it comes to changes nothing.
    pub async fn cancel(&self, id: DeliveryId) -> Result<DeliveryRecord, Error> {
        self.engine.cancel(Acting::gateway(TENANT), id).await
    }

    /// Hands out no more messages, waits up to `limit` for the handlers that are running, and
    /// closes the store. Handlers that are not done by then are stopped; their messages are handled
    /// again after the next start.
    pub async fn drain(&self, limit: Duration) -> Drained {
        let drained = self.engine.drain(limit).await;
        self.handlers.stop();
        drained
    }

    /// The engine itself: notices, pausing, replays, endpoints of other kinds.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// A handler has it in memory; the store knows nothing of that.
    async fn as_it_stands(&self, record: DeliveryRecord) -> DeliveryRecord {
        let (endpoint, id) = (record.endpoint, record.id);
        if !record.state.is_terminal() && self.engine.is_in_flight(endpoint, id).await {
            return DeliveryRecord { state: State::InFlight, due: None, ..record };
        }
        record
    }
}
