//! A place for one connection, which is made anew when it is lost, but not too eagerly.

use std::sync::Arc;

use tokio::time::{Duration, Instant};

use super::address::Address;
use super::complaints::Complaints;
use super::config::{BRISK_PATIENCE, FIRST_PAUSE, LONGEST_PAUSE, Options};
use super::session::{Pace, Session};
use crate::error::Error;
use crate::vitals::Vitals;

/// What every connection is made from.
pub(crate) struct Base {
    pub(crate) address: Address,
    pub(crate) options: Options,
    pub(crate) complaints: Arc<Complaints>,
    pub(crate) vitals: Arc<Vitals>,
}

impl Base {
    /// The same for connections whose answers others wait for.
    pub(crate) fn brisk(&self) -> Self {
        let patience = self.options.patience.min(BRISK_PATIENCE);
        Self {
            address: self.address.clone(),
            options: Options { patience, ..self.options },
            complaints: Arc::clone(&self.complaints),
            vitals: Arc::clone(&self.vitals),
        }
    }
}

/// At most one connection.
#[derive(Default)]
pub(crate) struct Link {
    session: Option<Session>,
    failed: Option<Failed>,
}

struct Failed {
    error: Error,
    pause: Duration,
    again_at: Instant,
}

impl Link {
    /// The connection, made if there is none. While it cannot be made, most callers are refused at
    /// once: only now and then one of them waits for the next try.
    pub(crate) async fn session(&mut self, base: &Base) -> Result<&Session, Error> {
        self.session.take_if(|session| !session.is_alive());
        let session = match self.session.take() {
            Some(session) => session,
            None => self.open(base).await?,
        };
        Ok(self.session.insert(session))
    }

    async fn open(&mut self, base: &Base) -> Result<Session, Error> {
        if let Some(failed) = self.failed.as_ref().filter(|failed| Instant::now() < failed.again_at)
        {
            return Err(failed.error.clone());
        }
        match Session::open(&base.address, &base.options, Pace::Prompt).await {
            Ok(session) => {
                self.failed = None;
                Ok(session)
            }
            Err(fault) => {
                let error = Error::from(fault);
                base.complaints.raise(&error);
                let last = self.failed.as_ref().map(|failed| failed.pause * 2);
                let pause = last.unwrap_or(FIRST_PAUSE).min(LONGEST_PAUSE);
                let again_at = Instant::now() + pause;
                self.failed = Some(Failed { error: error.clone(), pause, again_at });
                Err(error)
            }
        }
    }

    /// The connection as it is.
    pub(crate) fn current(&self) -> Option<&Session> {
        self.session.as_ref()
    }

    /// Takes the connection out, if there is one that can be used.
    pub(crate) fn take(&mut self) -> Option<Session> {
        self.session.take().filter(Session::is_alive)
    }
}
