//! How much memory the process holds, as the kernel counts it.

use std::fs;

use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::panics;

pub(crate) const MIB: u64 = 1 << 20;

/// What the process may grow by while a row runs: 1 MiB for each of a hundred attempts. Rows that
/// visit several receivers get no more, and rows that run beside each other have each other's growth
/// booked to them as well.
const GROWTH: u64 = 100 * MIB;

/// Rows that run by themselves: one measures closely, the other keeps every core busy.
const ALONE: &[&str] = &["R6", "R17"];

static COMPANY: RwLock<()> = RwLock::const_new(());

/// Held while a row runs, so that some rows have the process to themselves.
pub(crate) enum Company {
    #[expect(dead_code, reason = "held, not read")]
    Shared(RwLockReadGuard<'static, ()>),
    #[expect(dead_code, reason = "held, not read")]
    Alone(RwLockWriteGuard<'static, ()>),
}

pub(crate) async fn company(row: &str) -> Company {
    if ALONE.contains(&row) {
        Company::Alone(COMPANY.write().await)
    } else {
        Company::Shared(COMPANY.read().await)
    }
}

/// A moment to measure growth from.
pub(crate) struct Mark {
    resident: Option<u64>,
}

impl Mark {
    pub(crate) fn here() -> Self {
        Self { resident: status("VmRSS:") }
    }

    /// Begins a new peak as well. Only for whoever has the process alone.
    pub(crate) fn with_peak() -> Self {
        // Where this is not to be had, there is no peak to be read either.
        let _unsupported = fs::write("/proc/self/clear_refs", "5");
        Self::here()
    }

    pub(crate) fn assert_bounded(&self) {
        // The backtrace of a test that failed takes more than all rows together.
        if panics::seen_in_tests() {
            return;
        }
        let growth = self.growth();
        assert!(growth < GROWTH, "grew by {} KiB", growth / 1_024);
    }

    pub(crate) fn growth(&self) -> u64 {
        self.above("VmRSS:")
    }

    pub(crate) fn peak_growth(&self) -> u64 {
        self.above("VmHWM:")
    }

    /// Zero on systems that do not tell.
    fn above(&self, field: &str) -> u64 {
        status(field).zip(self.resident).map_or(0, |(bytes, before)| bytes.saturating_sub(before))
    }
}

fn status(field: &str) -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1_024)
}
