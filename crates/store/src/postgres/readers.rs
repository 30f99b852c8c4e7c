//! Connections that answer questions. They see what is committed, and never hold up the writers.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Semaphore, SemaphorePermit};

use super::config::READ_QUEUE;
use super::link::{Base, Link};
use super::session::Session;
use crate::error::Error;

/// A few connections, and those who wait for one.
pub(crate) struct Readers {
    base: Arc<Base>,
    permits: Semaphore,
    idle: Mutex<Vec<Link>>,
    waiting: AtomicUsize,
}

impl Readers {
    /// Connections are made when they are first needed.
    pub(crate) fn new(base: Arc<Base>, count: usize) -> Self {
        let idle = Mutex::new((0..count).map(|_| Link::default()).collect());
        Self { base, permits: Semaphore::new(count), idle, waiting: AtomicUsize::new(0) }
    }

    /// A connection for one question.
    pub(crate) async fn session(&self) -> Result<Reader<'_>, Error> {
        self.base.vitals.watch(self.find().await)
    }

    async fn find(&self) -> Result<Reader<'_>, Error> {
        let waiting = self.wait()?;
        let permit = self.permits.acquire().await.map_err(|_| Error::Closed)?;
        drop(waiting);
        let link = self.idle().pop().unwrap_or_default();
        let mut reader = Reader { readers: self, link, _permit: permit };
        reader.link.session(&self.base).await?;
        Ok(reader)
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Link>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self) -> Result<Waiting<'_>, Error> {
        let waiting = Waiting(&self.waiting);
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= READ_QUEUE {
            return Err(Error::Overloaded);
        }
        Ok(waiting)
    }

    pub(crate) fn close(&self) {
        self.permits.close();
        self.idle().clear();
    }
}

struct Waiting<'r>(&'r AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection in use. It goes back when this is dropped.
pub(crate) struct Reader<'r> {
    readers: &'r Readers,
    link: Link,
    _permit: SemaphorePermit<'r>,
}

impl Reader<'_> {
    pub(crate) fn session(&self) -> Result<&Session, Error> {
        self.link.current().ok_or_else(|| Error::Unavailable("the connection was lost".to_owned()))
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        if !self.readers.permits.is_closed() {
            let link = std::mem::take(&mut self.link);
            self.readers.idle().push(link);
        }
    }
}
