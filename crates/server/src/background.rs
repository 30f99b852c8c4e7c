//! What goes on beside the requests, for as long as somebody holds it.

use tokio::task::AbortHandle;

/// A task that ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Background(AbortHandle);

impl Background {
    pub(crate) fn spawn(task: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(tokio::spawn(task).abort_handle())
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.0.abort();
    }
}
