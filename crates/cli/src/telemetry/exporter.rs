//! Takes spans out of their queue and sends them to the collector, many at a time.
//!
//! Nobody waits for it. While the collector is away a batch is tried again for a while, the queue
//! fills up, and what finds no room is lost and counted.

use std::time::Duration;

use bytes::Bytes;
use postrider_engine::spans::{Span, Spans};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::collector::{Collector, Refused, Taken};
use super::otlp::{self, Resource};

/// The most spans in one request.
const BATCH: usize = 512;
/// How long a span waits for others to go with.
const LINGER: Duration = Duration::from_secs(1);
/// How long to wait before a batch is tried again: twice as long each time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// After so many tries a batch is given up, so that newer ones have their turn.
const MAX_TRIES: u32 = 6;
/// How long a stop waits for the last of them.
const STOP_LIMIT: Duration = Duration::from_secs(5);
/// The log says no more often than this that spans are lost.
const COMPLAIN_EVERY: Duration = Duration::from_mins(1);

#[derive(Debug)]
pub(super) struct Exporter {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Exporter {
    pub(super) fn start(
        ended: mpsc::Receiver<Span>,
        spans: Spans,
        collector: Collector,
        resource: Resource,
    ) -> Self {
        let (stop, stopped) = watch::channel(false);
        let complaints = Complaints::default();
        let work = Work { ended, spans, collector, resource, stopped, complaints };
        Self { stop, task: tokio::spawn(work.run()) }
    }

    /// Sends what is there, each batch once.
    pub(super) async fn stop(mut self) {
        self.stop.send_replace(true);
        if timeout(STOP_LIMIT, &mut self.task).await.is_err() {
            self.task.abort();
            tracing::warn!("stopped before the collector had taken the last spans");
        }
    }
}

struct Work {
    ended: mpsc::Receiver<Span>,
    /// How many were lost for want of room.
    spans: Spans,
    collector: Collector,
    resource: Resource,
    stopped: watch::Receiver<bool>,
    complaints: Complaints,
}

impl Work {
    async fn run(mut self) {
        tracing::info!(collector = %self.collector, "traces are sent to a collector");
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            let more = self.gather(&mut batch).await;
            if !batch.is_empty() {
                self.send(&batch).await;
                batch.clear();
            }
            if !more {
                break;
            }
        }
    }

    /// Waits for a span and a while for others. False, if there will be no more.
    async fn gather(&mut self, batch: &mut Vec<Span>) -> bool {
        let mut deadline = None;
        while batch.len() < BATCH {
            let room = BATCH - batch.len();
            let over = async {
                match deadline {
                    Some(deadline) => sleep_until(deadline).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                taken = self.ended.recv_many(batch, room) => if taken == 0 {
                    return false;
                },
                () = over => return true,
                // Nothing more is taken in; what is there comes out of the queue without a wait.
                () = stop_asked(&mut self.stopped), if !self.ended.is_closed() => self.ended.close(),
            }
            deadline.get_or_insert_with(|| Instant::now() + LINGER);
        }
        true
    }

    async fn send(&mut self, batch: &[Span]) {
        let body = Bytes::from(otlp::request(&self.resource, batch));
        let mut pause = FIRST_PAUSE;
        for tries in 1..=MAX_TRIES {
            let error = match self.collector.send(body.clone()).await {
                Ok(Taken::All) => return self.complaints.end(),
                Ok(Taken::But(count, why)) => {
                    return self.complaints.lose(count, self.spans.lost(), &why);
                }
                Err(Refused::Never(error)) => {
                    return self.complaints.lose(batch.len() as u64, self.spans.lost(), &error);
                }
                Err(Refused::Later(error)) => error,
            };
            if tries == MAX_TRIES || *self.stopped.borrow() {
                return self.complaints.lose(batch.len() as u64, self.spans.lost(), &error);
            }
            self.complaints.lose(0, self.spans.lost(), &error);
            tokio::select! {
                () = sleep(pause) => {}
                () = stop_asked(&mut self.stopped) => {}
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

async fn stop_asked(stopped: &mut watch::Receiver<bool>) {
    // Whoever could ask is gone: nobody waits for the rest either.
    drop(stopped.wait_for(|stopped| *stopped).await);
}

/// What has been lost, and when that was last said.
#[derive(Debug, Default)]
struct Complaints {
    refused: u64,
    said: u64,
    said_at: Option<Instant>,
    trouble: bool,
}

impl Complaints {
    fn lose(&mut self, refused: u64, crowded_out: u64, error: &str) {
        self.refused += refused;
        self.trouble = true;
        if self.said_at.is_some_and(|at| at.elapsed() < COMPLAIN_EVERY) {
            return;
        }
        let all = self.refused + crowded_out;
        let lost = all.saturating_sub(self.said);
        tracing::warn!(error, lost, "the collector does not take spans; deliveries go on");
        self.said = all;
        self.said_at = Some(Instant::now());
    }

    fn end(&mut self) {
        if std::mem::take(&mut self.trouble) {
            tracing::info!("the collector takes spans again");
        }
    }
}
