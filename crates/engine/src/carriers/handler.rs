//! Hands a delivery to a function of the program that the engine is part of.
//!
//! A handler runs as a task of its own: one that panics has failed, one that takes too long is
//! stopped, and neither takes anything else along.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use postrider_core::outcome::{Class, Sighting};
use postrider_core::span;
use tokio::task::{JoinError, JoinHandle};
use tracing::Instrument as _;

use crate::carrier::{Parcel, Report};
use crate::embedded::{Failure, Handled, Handlers, Message};

#[derive(Debug, Default)]
pub(crate) struct HandlerCarrier {
    handlers: Handlers,
}

impl HandlerCarrier {
    /// All that will ever be registered: what waits in the store is carried as soon as the engine
    /// starts, and must not find them missing.
    pub(crate) fn new(handlers: Handlers) -> Self {
        Self { handlers }
    }

    pub(crate) fn carry(&self, parcel: Parcel, name: Arc<str>) -> BoxFuture<'static, Report> {
        let Some(handler) = self.handlers.get(&name) else {
            let error = format!("no handler named {name} is registered in this program");
            return Box::pin(ready(failed(Sighting::Told(Class::Retryable), error)));
        };
        let limit = parcel.route.timeout;
        let stopped = self.handlers.stopped();
        Box::pin(async move {
            let (delivery, attempt) = (parcel.delivery, parcel.number);
            let span = tracing::info_span!("handler", name = &*name, %delivery, attempt);
            let message = Message::new(parcel);
            // Called inside the task, so that what the function does before it returns its future
            // is part of the attempt as well.
            let work = async move { handler(message).await };
            let mut task = Task(tokio::spawn(work.instrument(span)));
            tokio::select! {
                biased;
                ended = &mut task.0 => report(ended),
                () = tokio::time::sleep(limit) => failed(Sighting::Timeout, took_too_long(limit)),
                () = stopped => failed(Sighting::Network, "the program was stopped".to_owned()),
            }
        })
    }
}

/// A running handler, stopped when this is dropped.
struct Task(JoinHandle<Result<Handled, Failure>>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn report(ended: Result<Result<Handled, Failure>, JoinError>) -> Report {
    match ended {
        Ok(Ok(handled)) => Report {
            sighting: Sighting::Done,
            retry_after: None,
            error: None,
            response: None,
            result: handled.into_result(),
        },
        Ok(Err(failure)) => Report {
            retry_after: failure.retry_after(),
            ..failed(Sighting::Told(failure.class()), failure.into_error())
        },
        Err(error) => match error.try_into_panic() {
            Ok(panic) => {
                let said = panic
                    .downcast_ref::<&str>()
                    .copied()
                    .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
                    .unwrap_or("it did not say why");
                let failure = Failure::retryable(format_args!("the handler panicked: {said}"));
                failed(Sighting::Told(Class::Retryable), failure.into_error())
            }
            // Only a runtime that shuts down ends a task that is waited for.
            Err(_) => failed(Sighting::Network, "the program was stopped".to_owned()),
        },
    }
}

fn took_too_long(limit: Duration) -> String {
    format!("did not end within {} and was stopped", span::format(limit))
}

fn failed(sighting: Sighting, error: String) -> Report {
    Report { sighting, retry_after: None, error: Some(error), response: None, result: None }
}
