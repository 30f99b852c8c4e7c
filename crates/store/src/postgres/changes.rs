//! Changes that are neither appended nor settled by the engine: configuration, retention, what an
//! operator asks for. One at a time, each in a transaction of its own, on a connection of its own.

use std::sync::Arc;

use tokio::sync::{Mutex, OwnedMutexGuard};

use super::link::{Base, Link};
use super::partitions;
use super::presence::Presence;
use super::session::{Pace, Session};
use crate::error::Error;

/// Where what retention removes is counted, by whichever node does that. It is also where one of the
/// nodes counts its changes, which does no harm.
pub(crate) const SLOT: i16 = 0;

/// The connection, and those who wait for it.
pub(crate) struct Changes {
    base: Arc<Base>,
    presence: Arc<Presence>,
    /// None when closed.
    link: Arc<Mutex<Option<Link>>>,
}

impl Changes {
    pub(crate) fn new(base: Arc<Base>, presence: Arc<Presence>) -> Self {
        Self { base, presence, link: Arc::new(Mutex::new(Some(Link::default()))) }
    }

    /// Begins a transaction when those before it have ended.
    pub(crate) async fn begin(&self) -> Result<Change, Error> {
        let mut link = Arc::clone(&self.link).lock_owned().await;
        self.presence.check()?;
        let session = link.as_mut().ok_or(Error::Closed)?.session(&self.base).await?;
        session.script("BEGIN").await?;
        Ok(Change { link, open: true })
    }

    /// A connection for something that may have to wait, on which nobody else's changes do.
    pub(crate) async fn connect_apart(&self) -> Result<Session, Error> {
        self.presence.check()?;
        if self.link.lock().await.is_none() {
            return Err(Error::Closed);
        }
        Ok(Session::open(&self.base.address, &self.base.options, Pace::Patient).await?)
    }

    /// Makes the parts of the coming days, apart from every other change: it holds up readers.
    pub(crate) async fn make_days(&self) -> Result<(), Error> {
        let mut link = Arc::clone(&self.link).lock_owned().await;
        self.presence.check()?;
        let session = link.as_mut().ok_or(Error::Closed)?.session(&self.base).await?;
        partitions::make_days(session).await
    }

    /// Waits for those that were asked for before, and ends.
    pub(crate) async fn close(&self) {
        if let Some(session) = self.link.lock().await.take().and_then(|mut link| link.take()) {
            session.close().await;
        }
    }
}

/// A transaction. Dropped without a commit, it is undone.
pub(crate) struct Change {
    link: OwnedMutexGuard<Option<Link>>,
    open: bool,
}

impl Change {
    pub(crate) fn session(&self) -> Result<&Session, Error> {
        let session = self.link.as_ref().and_then(Link::current);
        session.ok_or_else(|| Error::Unavailable("the connection was lost".to_owned()))
    }

    pub(crate) async fn commit(self) -> Result<(), Error> {
        self.end("COMMIT").await
    }

    pub(crate) async fn undo(self) -> Result<(), Error> {
        self.end("ROLLBACK").await
    }

    async fn end(mut self, how: &str) -> Result<(), Error> {
        self.session()?.script(how).await?;
        self.open = false;
        Ok(())
    }
}

impl Drop for Change {
    fn drop(&mut self) {
        if self.open
            && let Some(session) = self.link.as_ref().and_then(Link::current)
        {
            // The server undoes what a connection that ends had not committed. That is as good as
            // saying so, and needs nobody to wait for it.
            session.give_up();
        }
    }
}
