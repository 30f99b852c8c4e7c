//! The handlers of a program, by name.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::sync::watch;

use super::answer::{Failure, Handled};
use super::message::Message;

type Run = dyn Fn(Message) -> BoxFuture<'static, Result<Handled, Failure>> + Send + Sync;

/// The functions that endpoints with a `handler` destination go to. [`Embedded`](super::Embedded)
/// makes one of what is registered with it; it is given to an engine with
/// [`Options`](crate::Options). Clones are the same handlers.
#[derive(Clone)]
pub struct Handlers {
    by_name: HashMap<Arc<str>, Arc<Run>>,
    stop: Arc<watch::Sender<bool>>,
}

impl Default for Handlers {
    fn default() -> Self {
        Self { by_name: HashMap::new(), stop: Arc::new(watch::Sender::new(false)) }
    }
}

impl Handlers {
    /// These, and one more. Another of the same name is replaced.
    #[must_use]
    pub fn with<F, Work>(mut self, name: impl Into<Arc<str>>, handler: F) -> Self
    where
        F: Fn(Message) -> Work + Send + Sync + 'static,
        Work: Future<Output = Result<Handled, Failure>> + Send + 'static,
    {
        self.by_name.insert(name.into(), Arc::new(move |message| Box::pin(handler(message))));
        self
    }

    pub(crate) fn get(&self, name: &str) -> Option<Arc<Run>> {
        self.by_name.get(name).cloned()
    }

    /// Stops those that are running. What they were at has not been stored and is done again.
    pub(crate) fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Ends when they have to stop.
    pub(crate) fn stopped(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut stop = self.stop.subscribe();
        async move {
            if stop.wait_for(|stop| *stop).await.is_err() {
                // Nobody is left who could stop them.
                std::future::pending::<()>().await;
            }
        }
    }
}

impl fmt::Debug for Handlers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.by_name.keys()).finish()
    }
}
