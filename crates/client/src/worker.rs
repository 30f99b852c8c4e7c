//! A worker: takes deliveries of a pull endpoint, gives each to a handler, and tells the gateway
//! what came of it.
//!
//! ```no_run
//! use postrider_client::Gateway;
//! use postrider_client::worker::{Verdict, Work, Worker, WorkerOptions};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let gateway = Gateway::new("http://127.0.0.1:7070", "pr_…")?;
//! let options = WorkerOptions::new("ep_0000000000001".parse()?);
//! let stop = async { drop(tokio::signal::ctrl_c().await) };
//! let summary = Worker::new(gateway, options)?
//!     .run(
//!         |work: Work| async move {
//!             match work.json::<serde_json::Value>() {
//!                 Ok(order) => {
//!                     println!("{}: {order}", work.event.kind);
//!                     Verdict::done()
//!                 }
//!                 Err(error) => Verdict::fatal(error.to_string()),
//!             }
//!         },
//!         stop,
//!     )
//!     .await?;
//! println!("{} done, {} failed", summary.done, summary.failed);
//! # Ok(())
//! # }
//! ```
//!
//! What it promises:
//!
//! - It leases only what it has free hands for, so that nothing waits in it for its turn.
//! - A lease is extended while its handler runs, first when a third of it has passed. A lease that
//!   has lapsed, because the gateway says so or because it could not be reached in time, ends its
//!   handler: the future is dropped, since from then on another worker may be at the same delivery,
//!   or at the next one of its line.
//! - A handler that panics has failed in a way that may pass. What is ready to be told goes out at
//!   once, and together where several are ready. Where the gateway cannot be reached it is told
//!   again and again until the lease would have lapsed.
//! - A stop takes no more, and waits for what is in hand up to [`WorkerOptions::drain`]. What is
//!   left then is dropped and given back at once, which is no attempt: a delivery does not die of
//!   deployments.
//! - A worker that is killed says nothing: its leases lapse, and each has cost an attempt.

mod errand;
mod shift;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::pattern::Pattern;
use postrider_core::{Class, DeliveryId, EndpointId, EventId, Trace, span};
use serde::Deserialize;

use crate::error::Error;
use crate::gateway::Gateway;
use crate::pull::{self, Event};

/// The most handlers that run at once in one worker.
pub const MAX_CONCURRENCY: usize = 1_000;

/// How a worker works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerOptions {
    pub endpoint: EndpointId,
    /// Only events of these types; all of the endpoint's where it is empty.
    pub event_types: Vec<Pattern>,
    /// Handlers that run at once: 1 to [`MAX_CONCURRENCY`], 8 unless said otherwise.
    pub concurrency: usize,
    /// How long the gateway waits for a sign of life of a delivery's worker: 1 s to 12 h, 30 s
    /// unless said otherwise. It does not limit how long a handler may take.
    pub lease: Duration,
    /// How long one request waits for work to come: up to 30 s, which is also the default.
    pub wait: Duration,
    /// How long a handler may take before it is dropped and has failed in a way that may pass. None,
    /// which is the default, lets it take as long as it takes.
    pub timeout: Option<Duration>,
    /// How long a stop waits for what is in hand: 20 s unless said otherwise.
    pub drain: Duration,
}

impl WorkerOptions {
    pub fn new(endpoint: EndpointId) -> Self {
        Self {
            endpoint,
            event_types: Vec::new(),
            concurrency: 8,
            lease: Duration::from_secs(30),
            wait: pull::MAX_WAIT,
            timeout: None,
            drain: Duration::from_secs(20),
        }
    }

    fn check(&self) -> Result<(), Error> {
        let refuse = |message: String| Err(Error::Invalid(message));
        if !(1..=MAX_CONCURRENCY).contains(&self.concurrency) {
            return refuse(format!("the concurrency must be from 1 to {MAX_CONCURRENCY}"));
        }
        if !(pull::MIN_LEASE..=pull::MAX_LEASE).contains(&self.lease) {
            let (min, max) = (span::format(pull::MIN_LEASE), span::format(pull::MAX_LEASE));
            return refuse(format!("the lease must be from {min} to {max}"));
        }
        if self.wait > pull::MAX_WAIT {
            return refuse(format!("the wait must be at most {}", span::format(pull::MAX_WAIT)));
        }
        if self.timeout.is_some_and(|timeout| timeout.is_zero()) {
            return refuse("the timeout must be more than 0s".to_owned());
        }
        Ok(())
    }
}

/// One try of a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Work {
    pub delivery: DeliveryId,
    pub endpoint: EndpointId,
    /// The number of this try, from 1.
    pub attempt: u32,
    pub event: Event,
    /// The trace that this work is part of.
    pub trace: Option<Trace>,
}

impl Work {
    /// The event's body, read as JSON.
    pub fn json<'a, T: Deserialize<'a>>(&'a self) -> Result<T, serde_json::Error> {
        serde_json::from_slice(&self.event.body)
    }
}

/// What a handler made of its work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Done {
        /// A label that the delivery keeps, such as `Passed`: up to 200 characters, longer ones are
        /// cut, and blanks stand for control characters.
        result: Option<String>,
    },
    Failed {
        class: Class,
        /// What went wrong: up to 2,000 characters, of longer ones the end is kept.
        error: String,
        retry_after: Option<Duration>,
    },
}

impl Verdict {
    pub const fn done() -> Self {
        Self::Done { result: None }
    }

    pub fn done_with(result: impl Into<String>) -> Self {
        Self::Done { result: Some(result.into()) }
    }

    /// Trying again may help.
    pub fn retryable(error: impl Into<String>) -> Self {
        Self::Failed { class: Class::Retryable, error: error.into(), retry_after: None }
    }

    /// Trying again cannot help.
    pub fn fatal(error: impl Into<String>) -> Self {
        Self::Failed { class: Class::Final, error: error.into(), retry_after: None }
    }

    /// Something on the way asked for a slower pace. With a hint it costs no attempt, and the whole
    /// endpoint waits for that long.
    pub fn rate_limited(error: impl Into<String>, retry_after: Option<Duration>) -> Self {
        Self::Failed { class: Class::RateLimited, error: error.into(), retry_after }
    }
}

/// What a worker did, from its start to its stop.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    /// Deliveries that it was given.
    pub taken: u64,
    /// Acknowledged, and the gateway has it in writing.
    pub done: u64,
    /// Reported as failed, and the gateway has it in writing.
    pub failed: u64,
    /// Given back at the stop, unfinished.
    pub given_back: u64,
    /// Whose lease had ended before the gateway knew what came of them. Where only the gateway's
    /// answer was lost, it may know all the same.
    pub lapsed: u64,
}

/// What there is to tell about a worker while it runs.
#[derive(Debug)]
pub enum Happening<'a> {
    /// No work can be had for the moment; it is asked for again after `retry_in`.
    Trouble { error: &'a Error, retry_in: Duration },
    /// Work can be had again.
    Recovered,
    /// No more work is taken; so many deliveries are still in hand.
    Stopping { in_hand: usize },
    /// A delivery has left this worker.
    Ended { job: &'a Job, ending: &'a Ending<'a>, took: Duration },
}

/// Which try of which delivery is spoken of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    pub delivery: DeliveryId,
    pub event: EventId,
    /// The event's type.
    pub kind: String,
    pub attempt: u32,
}

/// How a delivery left a worker.
#[derive(Debug)]
pub enum Ending<'a> {
    /// The gateway knows of this verdict.
    Told(&'a Verdict),
    /// Its lease ended first; it goes to a worker again.
    Lapsed,
    /// The worker stopped first; it goes to a worker again, and this was no attempt.
    GivenBack,
    /// The gateway would not hear of it; its lease is left to lapse.
    Refused(&'a Error),
}

type Watch = Arc<dyn Fn(&Happening<'_>) + Send + Sync>;

pub struct Worker {
    gateway: Gateway,
    options: WorkerOptions,
    watch: Watch,
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { gateway, options, watch: _ } = self;
        let mut shown = f.debug_struct("Worker");
        shown.field("gateway", gateway).field("options", options).finish_non_exhaustive()
    }
}

impl Worker {
    pub fn new(gateway: Gateway, options: WorkerOptions) -> Result<Self, Error> {
        options.check()?;
        Ok(Self { gateway, options, watch: Arc::new(log) })
    }

    /// Tells `watch` what happens, instead of the log. It is called between two requests and must
    /// not take long.
    #[must_use]
    pub fn watched(mut self, watch: impl Fn(&Happening<'_>) + Send + Sync + 'static) -> Self {
        self.watch = Arc::new(watch);
        self
    }

    /// Works until `stop`, then finishes what is in hand. Ends earlier only with an error that will
    /// not pass by itself: a key that is not taken, an endpoint that is gone.
    pub async fn run<F, R>(
        &self,
        handler: F,
        stop: impl Future<Output = ()>,
    ) -> Result<Summary, Error>
    where
        F: Fn(Work) -> R + Send + Sync + 'static,
        R: Future<Output = Verdict> + Send + 'static,
    {
        self.run_until(handler, stop, std::future::pending()).await
    }

    /// The same, with a second signal that cuts the stop short: `hurry` gives back at once what
    /// `stop` would have waited for.
    pub async fn run_until<F, R>(
        &self,
        handler: F,
        stop: impl Future<Output = ()>,
        hurry: impl Future<Output = ()>,
    ) -> Result<Summary, Error>
    where
        F: Fn(Work) -> R + Send + Sync + 'static,
        R: Future<Output = Verdict> + Send + 'static,
    {
        let handler = Arc::new(handler);
        shift::Shift::new(&self.gateway, &self.options, &self.watch, handler).run(stop, hurry).await
    }
}

/// What is told where nobody else wants to be.
fn log(happening: &Happening<'_>) {
    match happening {
        Happening::Trouble { error, retry_in } => {
            tracing::warn!(%error, ?retry_in, "no work can be had for the moment");
        }
        Happening::Recovered => tracing::info!("work can be had again"),
        Happening::Stopping { in_hand } => tracing::info!(in_hand, "the worker is stopping"),
        Happening::Ended { job, ending, took } => {
            let Job { delivery, kind, attempt, .. } = job;
            match ending {
                Ending::Told(Verdict::Done { result }) => {
                    tracing::debug!(%delivery, kind, attempt, ?took, ?result, "done");
                }
                Ending::Told(Verdict::Failed { class, error, .. }) => {
                    let class = class.as_str();
                    tracing::info!(%delivery, kind, attempt, ?took, class, error, "failed");
                }
                Ending::Lapsed => {
                    tracing::warn!(%delivery, kind, attempt, ?took, "the lease lapsed");
                }
                Ending::GivenBack => tracing::info!(%delivery, kind, attempt, "given back"),
                Ending::Refused(error) => {
                    tracing::warn!(%delivery, kind, attempt, %error, "the verdict was refused");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_no_gateway_would_take_are_refused() {
        let good = || WorkerOptions::new(EndpointId::from_i64(1));
        assert!(good().check().is_ok());
        let second = Duration::from_secs(1);
        for (options, word) in [
            (WorkerOptions { concurrency: 0, ..good() }, "concurrency"),
            (WorkerOptions { concurrency: MAX_CONCURRENCY + 1, ..good() }, "concurrency"),
            (WorkerOptions { lease: Duration::from_millis(999), ..good() }, "lease"),
            (WorkerOptions { lease: pull::MAX_LEASE + second, ..good() }, "lease"),
            (WorkerOptions { wait: pull::MAX_WAIT + second, ..good() }, "wait"),
            (WorkerOptions { timeout: Some(Duration::ZERO), ..good() }, "timeout"),
        ] {
            let error = options.check().expect_err(word).to_string();
            assert!(error.contains(word), "{error}");
        }
    }
}
