//! One process at a time: a lock that a connection of its own holds for as long as it lives.
//!
//! When that connection is lost, nothing is written until another one has the lock again.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::OpenError;
use super::address::Address;
use super::complaints::Complaints;
use super::config::{FIRST_PAUSE, LOCK_CHECK, LONGEST_PAUSE, Options};
use super::fault::Fault;
use super::session::{Pace, Session};
use crate::error::Error;

/// Held by the process that has the database.
const LOCK: i64 = i64::from_be_bytes(*b"PostOwns");

/// Whether this process has the database.
#[derive(Debug, Clone)]
enum Hold {
    Held,
    /// Why not.
    Lost(String),
}

/// The lock, and the task that sees to it.
pub(crate) struct Owner {
    hold: watch::Receiver<Hold>,
    stop: watch::Sender<bool>,
    task: std::sync::Mutex<Option<JoinHandle<()>>>,
}

impl Owner {
    /// Takes the lock, waiting for another process to let go of it for as long as the options say.
    pub(crate) async fn take(
        address: &Address,
        options: &Options,
        complaints: &Arc<Complaints>,
    ) -> Result<Self, OpenError> {
        let session = Session::open(address, options, Pace::Prompt).await?;
        let start = Instant::now();
        while !try_lock(&session).await? {
            if start.elapsed() >= options.lock_patience {
                return Err(OpenError::InUse(holder(&session).await));
            }
            sleep(FIRST_PAUSE).await;
        }
        let (told, hold) = watch::channel(Hold::Held);
        let (stop, stopped) = watch::channel(false);
        let keeper = Keeper {
            address: address.clone(),
            options: *options,
            complaints: Arc::clone(complaints),
            told,
            stopped,
        };
        let task = tokio::spawn(keeper.keep(session));
        Ok(Self { hold, stop, task: std::sync::Mutex::new(Some(task)) })
    }

    /// Fails while another process may have the database.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match &*self.hold.borrow() {
            Hold::Held => Ok(()),
            Hold::Lost(why) => Err(Error::Unavailable(why.clone())),
        }
    }

    /// Lets go of the lock, and returns when the server knows.
    pub(crate) async fn release(&self) {
        self.stop.send_replace(true);
        let task = self.task.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        if let Some(task) = task {
            // A task that panicked holds nothing any more.
            let _ = task.await;
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}

struct Keeper {
    address: Address,
    options: Options,
    complaints: Arc<Complaints>,
    told: watch::Sender<Hold>,
    stopped: watch::Receiver<bool>,
}

impl Keeper {
    async fn keep(mut self, mut session: Session) {
        loop {
            if !self.watch(&mut session).await {
                // Sooner than the end of the connection would.
                let _ = session.script(&format!("SELECT pg_advisory_unlock({LOCK})")).await;
                session.close().await;
                return;
            }
            drop(session);
            self.lost("the connection that holds the lock of the database is lost".to_owned());
            match self.regain().await {
                Some(regained) => session = regained,
                None => return,
            }
            self.told.send_replace(Hold::Held);
        }
    }

    /// Returns true when the connection is lost, false when the store closes.
    async fn watch(&mut self, session: &mut Session) -> bool {
        loop {
            tokio::select! {
                () = stop(&mut self.stopped) => return false,
                () = session.ended() => return true,
                () = sleep(LOCK_CHECK) => {}
            }
            let alive = timeout(LOCK_CHECK, session.script("SELECT 1"));
            if !matches!(alive.await, Ok(Ok(()))) {
                return true;
            }
        }
    }

    /// Connects and locks until that succeeds; none when the store closes.
    async fn regain(&mut self) -> Option<Session> {
        let mut pause = FIRST_PAUSE;
        loop {
            match self.lock_anew().await {
                Ok(session) => return Some(session),
                Err(why) => self.lost(why),
            }
            tokio::select! {
                () = stop(&mut self.stopped) => return None,
                () = sleep(pause) => pause = (pause * 2).min(LONGEST_PAUSE),
            }
        }
    }

    async fn lock_anew(&self) -> Result<Session, String> {
        let say = |fault: Fault| Error::from(fault).to_string();
        let session =
            Session::open(&self.address, &self.options, Pace::Prompt).await.map_err(say)?;
        super::schema::check_unchanged(&session).await.map_err(|error| error.to_string())?;
        if try_lock(&session).await.map_err(say)? {
            Ok(session)
        } else {
            Err(OpenError::InUse(holder(&session).await).to_string())
        }
    }

    fn lost(&self, why: String) {
        self.complaints.raise(&why);
        self.told.send_replace(Hold::Lost(why));
    }
}

async fn stop(stopped: &mut watch::Receiver<bool>) {
    // Whoever could say so being gone is as good as being told.
    let _ = stopped.wait_for(|stopped| *stopped).await;
}

async fn try_lock(session: &Session) -> Result<bool, Fault> {
    let row = session.row("SELECT pg_try_advisory_lock($1)", &[&LOCK]).await?;
    Ok(row.and_then(|row| row.try_get(0).ok()).unwrap_or(false))
}

/// Where the process that has the lock is connected from, as far as the server tells.
async fn holder(session: &Session) -> String {
    const SQL: &str = "SELECT coalesce(host(a.client_addr), 'the same machine') FROM pg_locks l \
         JOIN pg_stat_activity a USING (pid) WHERE l.locktype = 'advisory' AND l.granted \
         AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) \
         AND (l.classid::bigint << 32 | l.objid::bigint) = $1 AND l.objsubid = 1 LIMIT 1";
    let row = session.row(SQL, &[&LOCK]).await.ok().flatten();
    row.and_then(|row| row.try_get(0).ok()).unwrap_or_else(|| "an unknown place".to_owned())
}
