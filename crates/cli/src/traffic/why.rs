//! Why a delivery is where it is, in words: from what the API says of it.

use postrider_core::Timestamp;
use serde_json::Value;

use crate::output::{cell, clock, inert_to, relative};

/// The longest error that is quoted in a sentence.
const MAX_ERROR_CHARS: usize = 300;

/// A sentence or two about a delivery.
pub(crate) fn why(delivery: &Value, now: Timestamp) -> String {
    let waiting = &delivery["waiting_on"];
    if let Some(reason) = waiting["reason"].as_str() {
        return waits(delivery, reason, now);
    }
    let tries = times(delivery);
    match delivery["state"].as_str().unwrap_or_default() {
        "in_flight" => "In flight: an attempt is being made.".to_owned(),
        // Nothing is in its way.
        "pending" | "retrying" => "About to go.".to_owned(),
        "delivered" => match time(&delivery["delivered_at"], now) {
            Some(at) => format!("Delivered at {at}."),
            None => "Delivered.".to_owned(),
        },
        "failed" | "dead" => {
            let ended = match delivery["reason"].as_str() {
                Some("rejected") => {
                    "Failed: its last answer means that trying again will not help.".to_owned()
                }
                Some("exhausted") => {
                    format!(
                        "Dead: tried {tries}, which is as often as its endpoint's policy allows."
                    )
                }
                Some("expired") => {
                    format!("Dead: tried {tries}, and older than its endpoint's policy allows.")
                }
                Some(_) | None => "It has ended without success.".to_owned(),
            };
            format!("{ended} It waits for somebody to retry or purge it.")
        }
        "cancelled" => match time(&delivery["ended_at"], now) {
            Some(at) => format!("Cancelled at {at}. A retry brings it back."),
            None => "Cancelled. A retry brings it back.".to_owned(),
        },
        other => format!("Its state is {}.", inert_to(other, MAX_ERROR_CHARS)),
    }
}

fn waits(delivery: &Value, reason: &str, now: Timestamp) -> String {
    let waiting = &delivery["waiting_on"];
    let until = time(&waiting["until"], now);
    let at = |with: &str, without: &str| match &until {
        Some(until) => format!("{with} {until}."),
        None => without.to_owned(),
    };
    match reason {
        "backoff" => {
            let tried = format!("Waiting: tried {}; the next attempt is at", times(delivery));
            at(&tried, "Waiting for its next attempt.")
        }
        "deliver_at" => at(
            "Waiting: whoever sent the event asked for it to go at",
            "Waiting for the time that the event asks for.",
        ),
        "behind" => {
            let place = match waiting["position"].as_u64() {
                Some(place) => format!("number {place} in line behind"),
                None => "in line behind".to_owned(),
            };
            let head = waiting["delivery_id"].as_str().unwrap_or("others");
            let head = inert_to(head, MAX_ERROR_CHARS);
            match until {
                Some(until) => format!("Waiting: {place} {head}, which goes at {until}."),
                None => format!("Waiting: {place} {head}, which has to end first."),
            }
        }
        "paused" => "Waiting: its endpoint is paused. It goes when the endpoint is resumed.".into(),
        "disabled" => {
            "Waiting: its endpoint is disabled. It goes when the endpoint is enabled again.".into()
        }
        "rate_limit" => at(
            "Waiting: its endpoint's rate limit lets the next one go at",
            "Waiting for its endpoint's rate limit.",
        ),
        "breaker" => at(
            "Waiting: its endpoint keeps failing, so sending has stopped; it is tried again at",
            "Waiting: its endpoint kept failing, and is tried gently before others go.",
        ),
        "retry_after" => at(
            "Waiting: the endpoint asked to be left alone until",
            "Waiting: the endpoint asked to be left alone for a while.",
        ),
        "hub_offline" => {
            "Waiting: its hub is not connected. It goes when the hub comes back.".to_owned()
        }
        "leased" => at(
            "In flight: a worker has it, and has to answer or ask for more time before",
            "In flight: a worker has it.",
        ),
        "capacity" => {
            "Waiting: it is due, and goes as soon as one of those in flight is answered.".to_owned()
        }
        other => {
            let word = inert_to(other, MAX_ERROR_CHARS);
            at(&format!("Waiting ({word}) until"), &format!("Waiting ({word})."))
        }
    }
}

/// What the last attempt came to, as a sentence.
pub(crate) fn last_attempt(delivery: &Value, now: Timestamp) -> Option<String> {
    let attempt = delivery["attempt_log"].as_array()?.last()?;
    let number = attempt["number"].as_u64()?;
    let at = time(&attempt["started_at"], now).unwrap_or_default();
    let took = attempt["duration_ms"].as_u64().unwrap_or(0);
    let status = attempt["status_code"].as_u64();
    let came = match (attempt["outcome"].as_str(), status, attempt["error"].as_str()) {
        (Some("delivered"), Some(status), _) => format!("delivered, with {status}"),
        (Some("delivered"), None, _) => "delivered".to_owned(),
        (_, Some(status), Some(error)) => {
            format!("failed with {status}: {}", inert_to(error, MAX_ERROR_CHARS))
        }
        (_, Some(status), None) => format!("failed with {status}"),
        (_, None, Some(error)) => format!("failed: {}", inert_to(error, MAX_ERROR_CHARS)),
        (_, None, None) => "failed".to_owned(),
    };
    Some(format!("Attempt {number} at {at} took {took} ms and {came}."))
}

/// What is planned, should every attempt fail, as a sentence.
pub(crate) fn ahead(delivery: &Value, now: Timestamp) -> Option<String> {
    /// Attempts that are named one by one.
    const NAMED: usize = 3;
    let plan = delivery["plan"].as_array().filter(|plan| !plan.is_empty())?;
    let named = plan.iter().take(NAMED).filter_map(|attempt| {
        Some(format!("{} at {}", attempt["number"].as_u64()?, time(&attempt["at"], now)?))
    });
    let named = named.collect::<Vec<_>>().join(", ");
    let more = match plan.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Some(format!("Planned, should each fail: attempt {named}{more}; then it is dead."))
}

/// `2026-11-16 14:02:10 UTC (in 3 min)`.
fn time(value: &Value, now: Timestamp) -> Option<String> {
    let at: Timestamp = cell(value).parse().ok()?;
    Some(format!("{} UTC ({})", clock(at), relative(at, now)))
}

fn times(delivery: &Value) -> String {
    match delivery["attempts"].as_u64().unwrap_or(0) {
        0 => "without an attempt that counts".to_owned(),
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        count => format!("{count} times"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn now() -> Timestamp {
        "2027-01-15T08:00:00Z".parse().expect("a time")
    }

    #[test]
    fn everything_that_a_delivery_can_wait_for_is_a_sentence() {
        let at = "2027-01-15T08:03:00.123Z";
        for (reason, word) in [
            (
                "backoff",
                "tried 3 times; the next attempt is at 2027-01-15 08:03:00 UTC (in 3 min).",
            ),
            ("deliver_at", "asked for it to go at"),
            ("behind", "number 3 in line behind dlv_0000000000007"),
            ("paused", "paused"),
            ("disabled", "disabled"),
            ("rate_limit", "rate limit"),
            ("breaker", "keeps failing"),
            ("retry_after", "left alone until"),
            ("hub_offline", "hub"),
            ("leased", "worker"),
            ("capacity", "in flight"),
            ("something\x1bnew", "something\\u{1b}new"),
        ] {
            for until in [json!(null), json!(at)] {
                let said = why(
                    &json!({
                        "state": "retrying", "attempts": 3,
                        "waiting_on": {
                            "reason": reason, "until": until,
                            "delivery_id": "dlv_0000000000007", "position": 3,
                        },
                    }),
                    now(),
                );
                assert!(said.ends_with('.') && !said.contains(" ."), "{said}");
                assert!(until.is_null() || said.contains(word), "{said}");
            }
        }
    }

    #[test]
    fn what_has_ended_says_how() {
        for (delivery, word) in [
            (json!({"state": "delivered", "delivered_at": "2027-01-15T07:59:00Z"}), "1 min ago"),
            (json!({"state": "dead", "attempts": 5, "reason": "exhausted"}), "tried 5 times"),
            (json!({"state": "dead", "attempts": 1, "reason": "expired"}), "tried once"),
            (json!({"state": "failed", "reason": "rejected"}), "will not help"),
            (json!({"state": "cancelled"}), "A retry brings it back"),
            (json!({"state": "in_flight"}), "an attempt is being made"),
            (json!({}), "Its state is"),
        ] {
            let said = why(&delivery, now());
            assert!(said.contains(word) && said.ends_with('.'), "{said}");
        }
    }

    #[test]
    fn attempts_and_plans_are_told_without_what_a_terminal_would_obey() {
        let delivery = json!({
            "attempt_log": [
                {"number": 1, "started_at": "2027-01-15T07:00:00Z", "duration_ms": 5,
                 "status_code": 503, "outcome": "retryable", "error": "busy\x1b[2J"},
            ],
            "plan": [
                {"number": 2, "at": "2027-01-15T08:01:00Z"}, {"number": 3, "at": "2027-01-15T08:02:00Z"},
                {"number": 4, "at": "2027-01-15T08:04:00Z"}, {"number": 5, "at": "2027-01-15T08:08:00Z"},
            ],
        });
        let last = last_attempt(&delivery, now()).expect("there is one");
        assert!(last.contains("failed with 503: busy\\u{1b}[2J."), "{last}");
        let ahead = ahead(&delivery, now()).expect("there is a plan");
        assert!(ahead.contains("attempt 2 at 2027-01-15 08:01:00 UTC (in 1 min), 3 at"), "{ahead}");
        assert!(ahead.ends_with(" and 1 more; then it is dead."), "{ahead}");
        assert!(last_attempt(&json!({}), now()).is_none());
        assert!(super::ahead(&json!({"plan": []}), now()).is_none());
    }
}
