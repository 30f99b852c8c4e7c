//! What a worker has to tell the gateway about its leases, and telling it.

use std::time::Duration;

use postrider_core::span;
use tokio::time::Instant;

use super::Verdict;
use crate::backoff::Backoff;
use crate::error::Error;
use crate::gateway::Gateway;
use crate::ports;
use crate::pull::{LeaseToken, MAX_ERROR_CHARS, MAX_RESULT_CHARS, Nack};

/// How long one try may take; what is left of the lease where that is less, but never so little
/// that it could not succeed.
const MAX_TRY: Duration = Duration::from_secs(10);
const MIN_TRY: Duration = Duration::from_secs(1);
const SHORTEST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// What is said about a lease. Leases about which the same is to be said share a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Word {
    Ack {
        result: Option<String>,
    },
    Nack(Nack),
    /// The worker stops, which is no fault of the delivery's.
    Release,
}

impl Word {
    /// A verdict within the bounds of the API.
    pub(super) fn of(verdict: &Verdict) -> Self {
        match verdict {
            Verdict::Done { result } => {
                let plain = |char: char| if char.is_control() { ' ' } else { char };
                let fit = |text: &String| text.chars().take(MAX_RESULT_CHARS).map(plain).collect();
                let result: Option<String> = result.as_ref().map(fit);
                Self::Ack { result: result.filter(|text| !text.is_empty()) }
            }
            Verdict::Failed { class, error, retry_after } => {
                let surplus = error.chars().count().saturating_sub(MAX_ERROR_CHARS);
                let kept: String = error.chars().skip(surplus).collect();
                let error = if kept.is_empty() { "no reason was given".to_owned() } else { kept };
                let retry_after = retry_after.map(|wait| wait.min(span::MAX));
                Self::Nack(Nack { class: *class, error, retry_after })
            }
        }
    }
}

/// Says it until it is heard, or until the last of the leases has ended. False for each lease that
/// has lapsed.
pub(super) async fn tell(
    gateway: Gateway,
    leases: Vec<LeaseToken>,
    word: Word,
    until: Instant,
) -> Result<Vec<bool>, Error> {
    let mut backoff = Backoff::new(SHORTEST_WAIT, LONGEST_WAIT);
    loop {
        let left = until.saturating_duration_since(ports::now()).clamp(MIN_TRY, MAX_TRY);
        let answer = match &word {
            Word::Ack { result } => gateway.ack_within(&leases, result.as_deref(), left).await,
            Word::Nack(nack) => gateway.nack_within(&leases, nack, left).await,
            Word::Release => gateway.release_within(&leases, left).await,
        };
        let error = match answer {
            Err(error) if error.is_temporary() => error,
            final_answer => return final_answer,
        };
        let wait = backoff.next().max(error.retry_after().unwrap_or_default());
        if ports::now() + wait >= until {
            return Err(error);
        }
        tokio::time::sleep(wait).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_are_brought_within_the_bounds_of_the_api() {
        let label = |text: &str| Word::of(&Verdict::done_with(text));
        assert_eq!(label("Passed"), Word::Ack { result: Some("Passed".into()) });
        assert_eq!(label("a\tb\n"), Word::Ack { result: Some("a b ".into()) });
        assert_eq!(label(""), Word::Ack { result: None });
        let cut = Word::Ack { result: Some("é".repeat(MAX_RESULT_CHARS)) };
        assert_eq!(label(&"é".repeat(MAX_RESULT_CHARS + 1)), cut);

        let error = |text: &str| match Word::of(&Verdict::retryable(text)) {
            Word::Nack(nack) => nack.error,
            Word::Ack { .. } | Word::Release => panic!("a failure is no failure any more"),
        };
        assert_eq!(error(""), "no reason was given");
        // The end of a long story tells more than its beginning.
        let long = format!("{}the end", "é".repeat(MAX_ERROR_CHARS));
        assert!(error(&long).ends_with("the end"));
        assert_eq!(error(&long).chars().count(), MAX_ERROR_CHARS);

        let endless = Verdict::rate_limited("slow", Some(Duration::MAX));
        let Word::Nack(nack) = Word::of(&endless) else { panic!("a failure was acknowledged") };
        assert_eq!(nack.retry_after, Some(span::MAX));
    }
}
