//! Virtual time: one true time for the world, and a clock of each node's own that may be set wrong.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use futures_util::future::{BoxFuture, select};
use postrider_core::Timestamp;
use postrider_engine::ports::Clock;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use crate::gate::Gate;

/// When every world begins.
pub(crate) const BEGINNING: Timestamp = Timestamp::from_millis(1_800_000_000_000);

/// The time that nobody's clock can be wrong about.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TrueTime {
    beginning: Instant,
}

impl TrueTime {
    pub(crate) fn begin() -> Self {
        Self { beginning: Instant::now() }
    }

    pub(crate) fn passed(self) -> Duration {
        self.beginning.elapsed()
    }

    pub(crate) fn now(self) -> Timestamp {
        BEGINNING.plus(self.passed())
    }
}

/// A node's clock.
#[derive(Debug, Clone)]
pub(crate) struct NodeClock {
    time: TrueTime,
    gate: Arc<Gate>,
    setting: Arc<Setting>,
}

#[derive(Debug, Default)]
pub(crate) struct Setting {
    /// How far it is ahead of the true time, in milliseconds.
    ahead: AtomicI64,
    changed: Notify,
}

impl Setting {
    /// Sets the clock forwards or back.
    pub(crate) fn jump(&self, by_ms: i64) {
        self.ahead.fetch_add(by_ms, Ordering::Relaxed);
        self.changed.notify_waiters();
    }

    pub(crate) fn correct(&self) {
        self.ahead.store(0, Ordering::Relaxed);
        self.changed.notify_waiters();
    }
}

impl NodeClock {
    pub(crate) fn new(time: TrueTime, gate: Arc<Gate>, setting: Arc<Setting>) -> Self {
        Self { time, gate, setting }
    }
}

impl Clock for NodeClock {
    fn now(&self) -> Timestamp {
        let ahead = self.setting.ahead.load(Ordering::Relaxed);
        Timestamp::from_millis(self.time.now().as_millis().saturating_add(ahead))
    }

    fn monotonic(&self) -> Duration {
        self.time.passed()
    }

    /// Ends when the clock is set, as that of a machine does soon after.
    fn sleep_until(&self, time: Timestamp) -> BoxFuture<'static, ()> {
        let clock = self.clone();
        Box::pin(async move {
            let set = clock.setting.changed.notified();
            let left = time.since(clock.now());
            if !left.is_zero() {
                select(pin!(set), pin!(sleep(left))).await;
            }
            clock.gate.pass().await;
        })
    }
}
