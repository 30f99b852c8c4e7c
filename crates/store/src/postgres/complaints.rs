//! Keeps a lasting trouble from filling the log.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use super::config::COMPLAINT_INTERVAL;

/// All that is said about one database.
#[derive(Debug, Default)]
pub(crate) struct Complaints {
    last: Mutex<Option<Instant>>,
}

impl Complaints {
    pub(crate) fn raise(&self, why: &dyn std::fmt::Display) {
        if self.is_due(Instant::now()) {
            tracing::warn!(error = %why, "the store cannot be used");
        }
    }

    fn is_due(&self, now: Instant) -> bool {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let due = last.is_none_or(|last| now.duration_since(last) >= COMPLAINT_INTERVAL);
        if due {
            *last = Some(now);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_lasting_trouble_is_logged_once_a_second() {
        let start = Instant::now();
        let complaints = Complaints::default();
        let logged: Vec<u64> = (0..3_000)
            .filter(|millis| complaints.is_due(start + Duration::from_millis(*millis)))
            .collect();
        assert_eq!(logged, [0, 1_000, 2_000]);
    }
}
