//! What was tried of a delivery, and what lies ahead.

use std::collections::BTreeMap;

use postrider_core::Timestamp;
use serde::Deserialize;

use crate::dashboard::words::{self, Inert};

/// How many attempts are shown with what was answered: the latest.
const MAX_IN_FULL: usize = 10;
/// What is shown of a header.
const MAX_HEADER_BYTES: usize = 2 << 10;

#[derive(Debug, Deserialize)]
pub(super) struct Planned {
    pub(super) number: u32,
    pub(super) at: Timestamp,
}

#[derive(Debug, Deserialize)]
pub(super) struct Tried {
    pub(super) number: u32,
    counted: bool,
    started_at: Timestamp,
    duration_ms: u64,
    status_code: Option<u16>,
    outcome: String,
    error: Option<String>,
    response_body: Option<String>,
    response_headers: Option<BTreeMap<String, String>>,
    response_truncated: bool,
}

/// The past, oldest first, and the future.
#[derive(Debug)]
pub(super) struct Timeline {
    /// Without what was answered.
    pub(super) earlier: Vec<Attempt>,
    pub(super) attempts: Vec<Attempt>,
    pub(super) plan: Vec<Planned>,
}

/// An attempt as it is shown.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) number: u32,
    pub(super) counted: bool,
    pub(super) at: Timestamp,
    pub(super) took: String,
    pub(super) status: Option<u16>,
    /// What it came to, in words.
    pub(super) outcome: &'static str,
    pub(super) delivered: bool,
    pub(super) error: Option<Inert>,
    pub(super) answer: Option<Answer>,
}

#[derive(Debug)]
pub(super) struct Answer {
    pub(super) headers: Vec<(String, Inert)>,
    pub(super) body: Inert,
    /// The endpoint said more than was kept.
    pub(super) truncated: bool,
}

impl Timeline {
    pub(super) fn new(log: Vec<Tried>, plan: Vec<Planned>) -> Self {
        let earlier = log.len().saturating_sub(MAX_IN_FULL);
        let mut attempts: Vec<Attempt> = log.into_iter().map(Attempt::of).collect();
        let latest = attempts.split_off(earlier);
        for attempt in &mut attempts {
            attempt.answer = None;
        }
        Self { earlier: attempts, attempts: latest, plan }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.attempts.is_empty() && self.plan.is_empty()
    }
}

impl Attempt {
    fn of(tried: Tried) -> Self {
        let delivered = tried.outcome == "delivered";
        let answer = tried.response_body.map(|body| Answer {
            headers: tried
                .response_headers
                .unwrap_or_default()
                .into_iter()
                .map(|(name, value)| {
                    (words::line(name, 100), words::inert_to(value, MAX_HEADER_BYTES))
                })
                .collect(),
            body: words::inert(body),
            truncated: tried.response_truncated,
        });
        Self {
            number: tried.number,
            counted: tried.counted,
            at: tried.started_at,
            took: words::millis(tried.duration_ms),
            status: tried.status_code,
            outcome: match tried.outcome.as_str() {
                "delivered" => "delivered",
                "final" => "refused for good",
                "rate_limited" => "told to wait",
                _ => "failed, to be tried again",
            },
            delivered,
            error: tried.error.map(words::inert),
            answer,
        }
    }

    /// Seconds, as the header says them.
    pub(super) fn timestamp(&self) -> i64 {
        self.at.as_seconds()
    }
}
