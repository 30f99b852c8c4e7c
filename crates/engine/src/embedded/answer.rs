//! What a handler says of a message: that it is done, or that it failed and what that means.

use std::fmt;
use std::time::Duration;

use postrider_core::Class;

/// The longest label kept of a result.
pub const MAX_RESULT_CHARS: usize = 200;
/// The longest error kept of an attempt.
pub const MAX_ERROR_CHARS: usize = 2_000;

/// The message is done with, and is not handled again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Handled {
    result: Option<String>,
}

impl Handled {
    /// Done, and nothing more to say.
    #[must_use]
    pub fn done() -> Self {
        Self::default()
    }

    /// Done, with a label for what came of it, such as `Passed` or `NeedsReview`. It is stored as
    /// the delivery's `result`. One of more than [`MAX_RESULT_CHARS`] is cut.
    #[must_use]
    pub fn result(mut self, label: impl Into<String>) -> Self {
        let label = plain(&label.into(), MAX_RESULT_CHARS);
        self.result = (!label.is_empty()).then_some(label);
        self
    }

    pub(crate) fn into_result(self) -> Option<String> {
        self.result
    }
}

/// The message could not be handled.
///
/// Its class decides what follows: [`retryable`](Self::retryable) tries again when the handler's
/// policy says so, [`fatal`](Self::fatal) never does, [`rate_limited`](Self::rate_limited) waits as
/// long as it was asked to. Every other error becomes a retryable failure by `?`:
///
/// ```
/// use postrider_core::Class;
/// use postrider_engine::embedded::Failure;
///
/// fn read(text: &str) -> Result<u8, Failure> {
///     let number = text.parse::<u8>()?;
///     if number == 0 {
///         return Err(Failure::fatal("nothing to do"));
///     }
///     Ok(number)
/// }
///
/// assert_eq!(read("x").unwrap_err().class(), Class::Retryable);
/// assert_eq!(read("0").unwrap_err().class(), Class::Final);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    class: Class,
    error: String,
    retry_after: Option<Duration>,
}

impl Failure {
    /// Trying again may help: the service was away, the disk was full. The policy says when there
    /// is another attempt, and whether.
    pub fn retryable(error: impl fmt::Display) -> Self {
        Self::new(Class::Retryable, &error)
    }

    /// Trying again cannot help: the delivery is `failed` at once, class `final`.
    pub fn fatal(error: impl fmt::Display) -> Self {
        Self::new(Class::Final, &error)
    }

    /// Somebody asked for a slower pace. With a wait, that is honoured, for all of the handler's
    /// messages, and the attempt does not count; without one it is a failure like a retryable one.
    pub fn rate_limited(error: impl fmt::Display, retry_after: Option<Duration>) -> Self {
        Self { retry_after, ..Self::new(Class::RateLimited, &error) }
    }

    /// What it means for trying again.
    pub fn class(&self) -> Class {
        self.class
    }

    /// The sentence for the operator: the delivery's `last_error`.
    pub fn error(&self) -> &str {
        &self.error
    }

    /// How long was asked for.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    pub(crate) fn into_error(self) -> String {
        self.error
    }

    fn new(class: Class, error: &dyn fmt::Display) -> Self {
        // The alternate form is where errors that carry a context show their causes.
        let error = plain(&format!("{error:#}"), MAX_ERROR_CHARS);
        Self { class, error, retry_after: None }
    }
}

/// With its causes, each after a colon.
impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        let mut text = error.to_string();
        let mut cause = error.source();
        // A chain of errors is short; one that has no end is cut with its text.
        while let Some(next) = cause.filter(|_| text.len() <= MAX_ERROR_CHARS) {
            text = format!("{text}: {next}");
            cause = next.source();
        }
        Self::retryable(text)
    }
}

/// One line of at most `max` characters. What comes from outside may stand in it, and is shown to
/// people.
fn plain(text: &str, max: usize) -> String {
    let clean = |char: char| if char.is_control() { ' ' } else { char };
    text.trim().chars().map(clean).take(max).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("the judge is away")]
    struct Away(#[source] fmt::Error);

    /// Its own cause, without end.
    #[derive(Debug)]
    struct Loop;

    impl fmt::Display for Loop {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("round and round")
        }
    }

    impl std::error::Error for Loop {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            Some(&Self)
        }
    }

    #[test]
    fn an_error_is_told_with_its_causes() {
        let failure = Failure::from(Away(fmt::Error));
        assert_eq!(failure.class(), Class::Retryable);
        let cause = fmt::Error.to_string();
        assert_eq!(failure.error(), format!("the judge is away: {cause}"));
    }

    #[test]
    fn what_is_said_is_one_line_of_bounded_length() {
        let failure = Failure::fatal(" one\ntwo\x1b[31m ");
        assert_eq!(failure.error(), "one two [31m");
        let long = "é".repeat(MAX_ERROR_CHARS + 1);
        assert_eq!(Failure::retryable(&long).error().chars().count(), MAX_ERROR_CHARS);
        assert_eq!(Failure::from(Loop).error().chars().count(), MAX_ERROR_CHARS);
        let label = Handled::done().result(&long).into_result().expect("a label");
        assert_eq!(label.chars().count(), MAX_RESULT_CHARS);
        assert_eq!(Handled::done().result(" \n").into_result(), None);
    }

    #[test]
    fn only_a_rate_limit_has_a_hint() {
        let hint = Some(Duration::from_secs(7));
        for (failure, class, expected) in [
            (Failure::retryable("x"), Class::Retryable, None),
            (Failure::fatal("x"), Class::Final, None),
            (Failure::rate_limited("x", None), Class::RateLimited, None),
            (Failure::rate_limited("x", hint), Class::RateLimited, hint),
        ] {
            assert_eq!((failure.class(), failure.retry_after()), (class, expected));
        }
    }
}
