//! Time and chance, as the client sees them. Everything else in it takes both from here.

use tokio::time::Instant;

/// Spans are measured by this machine's own clock: nothing depends on its agreeing with the
/// gateway's.
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// A sample from 0 to 1, for jitter. Need not be unpredictable.
pub(crate) fn sample() -> f64 {
    fastrand::f64()
}
