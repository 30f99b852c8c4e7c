//! Time and chance, as the engine sees them, and the network where it is not the machine's. Everything
//! else in the engine takes them from here.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use postrider_core::{Jitter, Timestamp};
use tokio::sync::oneshot;

use crate::http_client::{Answer, Failure, Post};

/// The longest a system sleep lasts before it looks at the clock again: a clock that was set
/// forward must not leave anything overdue for longer.
const MAX_SLEEP: Duration = Duration::from_millis(500);

pub trait Clock: Send + Sync + fmt::Debug + 'static {
    fn now(&self) -> Timestamp;

    /// Time since some moment, which never goes back, whatever is done to the clock.
    fn monotonic(&self) -> Duration;

    /// Ends when `now()` is `time` or later. It may end earlier, and does soon after the clock was
    /// set: look at the clock again.
    fn sleep_until(&self, time: Timestamp) -> BoxFuture<'static, ()>;
}

/// Ends when `span` has passed, whatever is done to the clock meanwhile: one that is set back by a day
/// must not make a pause of a second last a day.
pub(crate) async fn pause(clock: &dyn Clock, span: Duration) {
    let end = clock.monotonic().saturating_add(span);
    loop {
        let left = end.saturating_sub(clock.monotonic());
        if left.is_zero() {
            return;
        }
        clock.sleep_until(clock.now().plus(left)).await;
    }
}

pub trait Entropy: Send + Sync + fmt::Debug + 'static {
    /// A sample for jitter. Need not be unpredictable.
    fn jitter(&self) -> Jitter;

    /// Any number. Need not be unpredictable.
    fn number(&self) -> u64;

    /// Bytes nobody can guess.
    fn secret_bytes(&self) -> [u8; 32];
}

/// What carries requests to endpoints instead of sockets: a simulation's own network.
pub trait Network: Send + Sync + fmt::Debug + 'static {
    /// Ends by the deadline that the request names.
    fn post(&self, post: Post) -> BoxFuture<'static, Result<Answer, Failure>>;
}

/// The machine's own clock.
#[derive(Debug, Default, Clone, Copy)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }

    fn monotonic(&self) -> Duration {
        static BEGINNING: LazyLock<Instant> = LazyLock::new(Instant::now);
        BEGINNING.elapsed()
    }

    fn sleep_until(&self, time: Timestamp) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(time.since(self.now()).min(MAX_SLEEP)))
    }
}

/// The machine's own randomness.
#[derive(Debug, Default, Clone, Copy)]
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn jitter(&self) -> Jitter {
        Jitter::new(fastrand::f64())
    }

    fn number(&self) -> u64 {
        fastrand::u64(..)
    }

    fn secret_bytes(&self) -> [u8; 32] {
        let mut bytes = [0; 32];
        // Without randomness there is no safe key to hand out, and nothing sensible to do instead.
        getrandom::fill(&mut bytes).expect("the operating system gives random bytes");
        bytes
    }
}

/// A clock that moves only when told to: virtual time for tests and simulation.
#[derive(Debug, Clone)]
pub struct ManualClock {
    inner: Arc<Mutex<Manual>>,
}

#[derive(Debug)]
struct Manual {
    now: Timestamp,
    /// All steps forwards, together.
    passed: Duration,
    sleepers: BTreeMap<(Timestamp, u64), oneshot::Sender<()>>,
    next_sleeper: u64,
}

impl ManualClock {
    pub fn at(now: Timestamp) -> Self {
        let manual =
            Manual { now, passed: Duration::ZERO, sleepers: BTreeMap::new(), next_sleeper: 0 };
        Self { inner: Arc::new(Mutex::new(manual)) }
    }

    pub fn advance(&self, span: Duration) {
        let to = self.now().plus(span);
        self.set(to);
    }

    /// Sets the clock, forwards or back, and wakes whoever slept until then; all of them if it is set
    /// back, because then nobody knows how long that is.
    pub fn set(&self, to: Timestamp) {
        let mut manual = self.inner.lock();
        let is_back = to < manual.now;
        let step = to.since(manual.now);
        manual.passed += step;
        manual.now = to;
        while let Some(entry) = manual.sleepers.first_entry() {
            if entry.key().0 > to && !is_back {
                break;
            }
            // Fails for a sleeper that stopped waiting, which needs no waking.
            let _gone = entry.remove().send(());
        }
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        self.inner.lock().now
    }

    fn monotonic(&self) -> Duration {
        self.inner.lock().passed
    }

    fn sleep_until(&self, time: Timestamp) -> BoxFuture<'static, ()> {
        let mut manual = self.inner.lock();
        if manual.now >= time {
            return Box::pin(std::future::ready(()));
        }
        manual.sleepers.retain(|_, sleeper| !sleeper.is_closed());
        let (wake, woken) = oneshot::channel();
        let key = (time, manual.next_sleeper);
        manual.next_sleeper += 1;
        manual.sleepers.insert(key, wake);
        Box::pin(async move {
            // An error means that the clock is gone: nothing to wait for either.
            drop(woken.await);
        })
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    const START: Timestamp = Timestamp::from_millis(1_800_000_000_000);
    const SECOND: Duration = Duration::from_secs(1);
    const DAY: Duration = Duration::from_hours(24);

    #[test]
    fn a_pause_lasts_as_long_as_it_is_to_whatever_is_done_to_the_clock() {
        for (done, set_to) in [
            ("nothing", START),
            ("set back by a day", START.minus(DAY)),
            ("set back a little", START.minus(SECOND / 10)),
        ] {
            let clock = ManualClock::at(START);
            let mut pause = Box::pin(pause(&clock, SECOND));
            assert!(pause.as_mut().now_or_never().is_none(), "{done}");
            clock.set(set_to);
            assert!(pause.as_mut().now_or_never().is_none(), "{done}");
            clock.advance(SECOND / 2);
            assert!(pause.as_mut().now_or_never().is_none(), "{done}");
            clock.advance(SECOND / 2);
            assert!(pause.as_mut().now_or_never().is_some(), "{done}");
        }
    }
}
