//! One connection: how it is set up, what it keeps prepared, and when it is given up.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, Connection, Notification, Row, Statement};

use super::address::Address;
use super::config::{KEEPALIVE, Options, PREPARED_STATEMENTS, SCHEMA};
use super::fault::{self, Fault};

/// A parameter of a statement.
pub(crate) type Param<'a> = &'a (dyn ToSql + Sync);

/// Is given what others notify a connection of, while the connection waits: it takes no time.
pub(crate) type Ear = Arc<dyn Fn(&Notification) + Send + Sync>;

/// The server ends a statement by itself; only one that does not answer at all is left to this.
const GRACE: Duration = Duration::from_secs(1);

/// How long the server has to hear that a connection ends.
const GOODBYE: Duration = Duration::from_secs(1);

/// A connection that is set up. Dropping it ends it at once.
pub(crate) struct Session {
    client: Client,
    driver: Driver,
    statements: Mutex<HashMap<String, Statement>>,
    patience: Duration,
}

/// How long the statements of a session may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// As long as the options say.
    Prompt,
    /// As long as it takes: a migration.
    Patient,
}

impl Session {
    pub(crate) async fn open(
        address: &Address,
        options: &Options,
        pace: Pace,
    ) -> Result<Self, Fault> {
        Self::open_with(address, options, pace, None).await
    }

    /// One that hears what it is notified of.
    pub(crate) async fn open_hearing(
        address: &Address,
        options: &Options,
        ear: Ear,
    ) -> Result<Self, Fault> {
        Self::open_with(address, options, Pace::Prompt, Some(ear)).await
    }

    async fn open_with(
        address: &Address,
        options: &Options,
        pace: Pace,
        ear: Option<Ear>,
    ) -> Result<Self, Fault> {
        let opening = async {
            let (client, connection) =
                address.config.connect(address.tls.clone()).await.map_err(|e| Fault::of(&e))?;
            let driver = Driver(tokio::spawn(drive(connection, ear)));
            let statements = Mutex::new(HashMap::new());
            let patience = match pace {
                Pace::Prompt => options.patience,
                Pace::Patient => Duration::from_hours(24),
            };
            let session = Self { client, driver, statements, patience };
            session.set_up(pace).await?;
            Ok(session)
        };
        timeout(options.connect_timeout, opening).await.unwrap_or_else(|_| Err(silent()))
    }

    /// Plans are made once and never depend on what the statistics of the moment say of a table that
    /// is empty now and millions of rows long in a minute: everything is looked up by an index, as
    /// the statements are written. A server that loses this client lets go of its locks by itself.
    async fn set_up(&self, pace: Pace) -> Result<(), Fault> {
        let limit = match pace {
            Pace::Prompt => self.patience.as_millis(),
            Pace::Patient => 0,
        };
        let keepalive = KEEPALIVE.as_secs();
        let user_timeout = (3 * KEEPALIVE).as_millis();
        self.script(&format!(
            "SET search_path = {SCHEMA}; \
             SET client_min_messages = warning; \
             SET default_transaction_isolation = 'read committed'; \
             SET statement_timeout = {limit}; \
             SET idle_in_transaction_session_timeout = {limit}; \
             SET tcp_keepalives_idle = {keepalive}; \
             SET tcp_keepalives_interval = {keepalive}; \
             SET tcp_keepalives_count = 2; \
             SET tcp_user_timeout = {user_timeout}; \
             SET jit = off; \
             SET plan_cache_mode = force_generic_plan; \
             SET enable_seqscan = off; \
             SET enable_hashjoin = off; \
             SET enable_mergejoin = off; \
             SET enable_bitmapscan = off; \
             SELECT set_config('synchronous_commit', 'on', false) \
                 WHERE current_setting('synchronous_commit') NOT IN ('on', 'remote_apply')"
        ))
        .await
    }

    /// Whether it can be used, as far as is known.
    pub(crate) fn is_alive(&self) -> bool {
        !self.client.is_closed()
    }

    /// Ends the connection without waiting for the server: what it was told last may still be done.
    pub(crate) fn give_up(&self) {
        self.driver.0.abort();
    }

    /// Waits until the connection has ended, by whatever.
    pub(crate) async fn ended(&mut self) {
        // A driver that was aborted has ended too.
        let _ = (&mut self.driver.0).await;
    }

    /// Ends the connection and waits until the server has been told.
    pub(crate) async fn close(self) {
        let Self { client, mut driver, .. } = self;
        drop(client);
        // One that does not end in time is ended by being dropped.
        let _ = timeout(GOODBYE, &mut driver.0).await;
    }

    /// Runs statements that have no parameters.
    pub(crate) async fn script(&self, sql: &str) -> Result<(), Fault> {
        self.within(self.client.batch_execute(sql)).await
    }

    /// The same, for statements that are known to take long.
    pub(crate) async fn script_within(&self, sql: &str, patience: Duration) -> Result<(), Fault> {
        self.within_time(patience, self.client.batch_execute(sql)).await
    }

    pub(crate) async fn rows(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, Fault> {
        let statement = self.prepare(sql).await?;
        self.within(self.client.query(&statement, params)).await
    }

    /// The first row, if there is one.
    pub(crate) async fn row(&self, sql: &str, params: &[Param<'_>]) -> Result<Option<Row>, Fault> {
        Ok(self.rows(sql, params).await?.into_iter().next())
    }

    /// How many rows were changed.
    pub(crate) async fn execute(&self, sql: &str, params: &[Param<'_>]) -> Result<u64, Fault> {
        let statement = self.prepare(sql).await?;
        self.within(self.client.execute(&statement, params)).await
    }

    /// The driver itself, for whoever sends several statements at a time.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// The prepared form of a statement.
    pub(crate) async fn prepare(&self, sql: &str) -> Result<Statement, Fault> {
        let known = || self.statements.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(statement) = known().get(sql) {
            return Ok(statement.clone());
        }
        let statement = self.within(self.client.prepare(sql)).await?;
        let mut statements = known();
        if statements.len() >= PREPARED_STATEMENTS {
            statements.clear();
        }
        statements.insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }

    /// Waits for an answer, but not for ever.
    pub(crate) async fn within<T>(
        &self,
        answer: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, Fault> {
        self.within_time(self.patience, answer).await
    }

    async fn within_time<T>(
        &self,
        patience: Duration,
        answer: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, Fault> {
        let Ok(answer) = timeout(patience + GRACE, answer).await else {
            self.give_up();
            return Err(silent());
        };
        answer.map_err(|error| self.judge(&error))
    }

    /// What a failure means; a connection that it leaves useless is given up.
    pub(crate) fn judge(&self, error: &tokio_postgres::Error) -> Fault {
        let fault = Fault::of(error);
        if matches!(fault, Fault::Lost(_)) {
            self.give_up();
        }
        fault
    }
}

fn silent() -> Fault {
    Fault::Lost("the server did not answer in time".to_owned())
}

/// Moves the bytes of a connection until it ends.
async fn drive<S, T>(mut connection: Connection<S, T>, ear: Option<Ear>)
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(message) = poll_fn(|context| connection.poll_message(context)).await {
        match (message, &ear) {
            (Ok(AsyncMessage::Notification(notification)), Some(ear)) => ear(&notification),
            // What the server remarks changes nothing.
            (Ok(_), _) => {}
            (Err(error), _) => {
                // Whoever has the client meets the same failure.
                tracing::debug!(error = fault::explain(&error), "a connection ended");
                return;
            }
        }
    }
}

/// The task that moves a connection's bytes; it ends when this is dropped, whatever is under way.
struct Driver(JoinHandle<()>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}
