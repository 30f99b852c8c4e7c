//! That a process uses the database: its one connection that hears and tells, and the lock that this
//! connection holds.
//!
//! Nodes hold the lock together. Whoever wants the database to itself, to copy it or to bring its
//! schema to a version that running nodes do not know, takes it alone, and gets it only while no node
//! is there. A node whose connection is lost goes on without it, and makes another: only if it finds
//! that somebody has taken the database meanwhile does it write nothing more.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::config::{FIRST_PAUSE, LONGEST_PAUSE, PRESENCE_CHECK};
use super::fault::Fault;
use super::fleet::{Tuned, Wire};
use super::link::Base;
use super::session::Session;
use super::{OpenError, schema};
use crate::error::Error;

/// Held by every process that uses the database.
const LOCK: i64 = i64::from_be_bytes(*b"PostOwns");

/// How a process wants the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claim {
    /// With others: a node.
    Shared,
    /// Without anybody else.
    Alone,
}

/// Whether this process may write.
#[derive(Debug, Clone)]
enum Hold {
    Held,
    /// Why not.
    Lost(String),
}

/// The connection, and the task that sees to it.
pub(crate) struct Presence {
    hold: watch::Receiver<Hold>,
    stop: watch::Sender<bool>,
    task: std::sync::Mutex<Option<JoinHandle<()>>>,
}

impl Presence {
    /// Connects and takes the lock. Waits for others to let go of it for as long as the options say.
    pub(crate) async fn take(
        base: &Base,
        claim: Claim,
        wire: &Arc<Wire>,
    ) -> Result<Self, OpenError> {
        let base = base.brisk();
        let session = Session::open_hearing(&base.address, &base.options, wire.ear()).await?;
        lock(&session, claim, base.options.lock_patience).await?;
        let tuned = wire.tune_in(&session).await?;
        let (told, hold) = watch::channel(Hold::Held);
        let (stop, stopped) = watch::channel(false);
        let keeper = Keeper { base, claim, wire: Arc::clone(wire), told, stopped };
        let task = tokio::spawn(keeper.keep(session, tuned));
        Ok(Self { hold, stop, task: std::sync::Mutex::new(Some(task)) })
    }

    /// Fails when somebody else may have the database to itself.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match &*self.hold.borrow() {
            Hold::Held => Ok(()),
            Hold::Lost(why) => Err(Error::Unavailable(why.clone())),
        }
    }

    /// Tells what is still to be told, lets go of the lock, and returns when the server knows.
    pub(crate) async fn release(&self) {
        self.stop.send_replace(true);
        let task = self.task.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        if let Some(task) = task {
            // A task that panicked holds nothing any more.
            let _ = task.await;
        }
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}

/// Takes the lock for `session`, waiting for others for as long as `patience`.
pub(crate) async fn lock(
    session: &Session,
    claim: Claim,
    patience: Duration,
) -> Result<(), OpenError> {
    let start = Instant::now();
    while !try_lock(session, claim).await? {
        if start.elapsed() >= patience {
            return Err(OpenError::InUse(holder(session).await));
        }
        sleep(FIRST_PAUSE).await;
    }
    Ok(())
}

/// Lets go of it, sooner than the end of the connection would.
pub(crate) async fn unlock(session: &Session, claim: Claim) -> Result<(), Fault> {
    let unlock = match claim {
        Claim::Shared => "pg_advisory_unlock_shared",
        Claim::Alone => "pg_advisory_unlock",
    };
    session.script(&format!("SELECT {unlock}({LOCK})")).await
}

async fn try_lock(session: &Session, claim: Claim) -> Result<bool, Fault> {
    let sql = match claim {
        Claim::Shared => "SELECT pg_try_advisory_lock_shared($1)",
        Claim::Alone => "SELECT pg_try_advisory_lock($1)",
    };
    let row = session.row(sql, &[&LOCK]).await?;
    Ok(row.and_then(|row| row.try_get(0).ok()).unwrap_or(false))
}

/// Where a process that has the lock is connected from, as far as the server tells.
async fn holder(session: &Session) -> String {
    const SQL: &str = "SELECT coalesce(host(a.client_addr), 'the same machine') FROM pg_locks l \
         JOIN pg_stat_activity a USING (pid) WHERE l.locktype = 'advisory' AND l.granted \
         AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) \
         AND (l.classid::bigint << 32 | l.objid::bigint) = $1 AND l.objsubid = 1 \
         AND l.pid <> pg_backend_pid() LIMIT 1";
    let row = session.row(SQL, &[&LOCK]).await.ok().flatten();
    row.and_then(|row| row.try_get(0).ok()).unwrap_or_else(|| "an unknown place".to_owned())
}

struct Keeper {
    base: Base,
    claim: Claim,
    wire: Arc<Wire>,
    told: watch::Sender<Hold>,
    stopped: watch::Receiver<bool>,
}

/// Why a connection is not attended to any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Over {
    /// It is of no use.
    Lost,
    /// The store closes.
    Closing,
}

/// Why there is no other connection yet.
enum Unregained {
    /// It cannot be made.
    Unreachable(String),
    /// The database is not to be written to.
    Kept(String),
}

impl From<Fault> for Unregained {
    fn from(fault: Fault) -> Self {
        Self::Unreachable(Error::from(fault).to_string())
    }
}

impl From<OpenError> for Unregained {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Address(_) | OpenError::Unreachable(_) => {
                Self::Unreachable(error.to_string())
            }
            OpenError::InUse(_) | OpenError::Refused(_) => Self::Kept(error.to_string()),
        }
    }
}

impl Keeper {
    async fn keep(mut self, mut session: Session, mut tuned: Tuned) {
        while self.attend(&mut session, &mut tuned).await == Over::Lost {
            drop(session);
            self.wire.cut();
            match self.regain().await {
                Some(regained) => (session, tuned) = regained,
                None => return self.wire.end(),
            }
        }
        // Nobody is left to hear of a failure.
        let _ = self.wire.serve(&session, &mut tuned).await;
        self.wire.end();
        let _ = unlock(&session, self.claim).await;
        session.close().await;
    }

    async fn attend(&mut self, session: &mut Session, tuned: &mut Tuned) -> Over {
        loop {
            let served = tokio::select! {
                () = stop(&mut self.stopped) => return Over::Closing,
                () = session.ended() => return Over::Lost,
                () = self.wire.called() => self.wire.serve(session, tuned).await.is_ok(),
                () = sleep(PRESENCE_CHECK) => {
                    matches!(timeout(PRESENCE_CHECK, session.script("SELECT 1")).await, Ok(Ok(())))
                }
            };
            if !served {
                return Over::Lost;
            }
        }
    }

    /// Connects until that succeeds; none when the store closes. Whoever had the database to itself
    /// has it no more: others may have been there since.
    async fn regain(&mut self) -> Option<(Session, Tuned)> {
        if self.claim == Claim::Alone {
            self.keep_out(
                "the connection that kept others from the database is lost: begin again".to_owned(),
            );
            stop(&mut self.stopped).await;
            return None;
        }
        let mut pause = FIRST_PAUSE;
        loop {
            match self.connect_anew().await {
                Ok(regained) => {
                    self.told.send_replace(Hold::Held);
                    return Some(regained);
                }
                Err(Unregained::Unreachable(why)) => self.base.complaints.raise(&why),
                Err(Unregained::Kept(why)) => self.keep_out(why),
            }
            tokio::select! {
                () = stop(&mut self.stopped) => return None,
                () = sleep(pause) => pause = (pause * 2).min(LONGEST_PAUSE),
            }
        }
    }

    async fn connect_anew(&self) -> Result<(Session, Tuned), Unregained> {
        let (address, options) = (&self.base.address, &self.base.options);
        let session = Session::open_hearing(address, options, self.wire.ear()).await?;
        schema::check_usable(&session).await?;
        lock(&session, self.claim, Duration::ZERO).await?;
        let tuned = self.wire.tune_in(&session).await?;
        Ok((session, tuned))
    }

    fn keep_out(&self, why: String) {
        self.base.complaints.raise(&why);
        self.told.send_replace(Hold::Lost(why));
    }
}

async fn stop(stopped: &mut watch::Receiver<bool>) {
    // Whoever could say so being gone is as good as being told.
    let _ = stopped.wait_for(|stopped| *stopped).await;
}
