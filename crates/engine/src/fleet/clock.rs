//! The store's time, kept by the machine between two looks at it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use postrider_core::Timestamp;

use crate::ports::Clock;

/// Never later than the store's own clock, and earlier by no more than its last answer took to
/// arrive: due times mean the same on every node. What is done to the machine's clock does not matter.
#[derive(Debug)]
pub(super) struct StoreClock {
    machine: Arc<dyn Clock>,
    /// Milliseconds from the machine's monotonic time to the store's.
    offset: AtomicI64,
}

impl StoreClock {
    pub(super) fn over(machine: Arc<dyn Clock>) -> Self {
        let offset = machine.now().as_millis() - millis(machine.monotonic());
        Self { machine, offset: AtomicI64::new(offset) }
    }

    /// The machine's own clock.
    pub(super) fn machine(&self) -> &dyn Clock {
        &*self.machine
    }

    /// The store said, not later than now, that it was `now`.
    pub(super) fn set(&self, now: Timestamp) {
        // Rounded up, so that it does not run ahead.
        let passed = millis(self.machine.monotonic()) + 1;
        self.offset.store(now.as_millis() - passed, Ordering::Release);
    }
}

impl Clock for StoreClock {
    fn now(&self) -> Timestamp {
        let offset = self.offset.load(Ordering::Acquire);
        Timestamp::from_millis(millis(self.machine.monotonic()).saturating_add(offset))
    }

    fn monotonic(&self) -> Duration {
        self.machine.monotonic()
    }

    fn sleep_until(&self, time: Timestamp) -> BoxFuture<'static, ()> {
        self.machine.sleep_until(self.machine.now().plus(time.since(self.now())))
    }
}

fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::ManualClock;

    const START: Timestamp = Timestamp::from_millis(1_800_000_000_000);
    const DAY: Duration = Duration::from_hours(24);

    #[test]
    fn it_tells_the_stores_time_whatever_is_done_to_the_machines() {
        let machine = ManualClock::at(START);
        let clock = StoreClock::over(Arc::new(machine.clone()));
        assert_eq!(clock.now(), START);
        let store = START.plus(DAY);
        clock.set(store);
        let behind = store.since(clock.now());
        assert!(clock.now() <= store && behind <= Duration::from_millis(1));
        machine.advance(Duration::from_secs(5));
        assert_eq!(clock.now(), store.minus(behind).plus(Duration::from_secs(5)));
        machine.set(START.minus(DAY));
        assert_eq!(clock.now(), store.minus(behind).plus(Duration::from_secs(5)), "set back");
    }
}
