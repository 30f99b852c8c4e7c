//! What can go wrong between a program and its gateway, by what the program can do about it.

use std::time::Duration;

/// How much of a text from outside an error repeats.
const MAX_QUOTED_CHARS: usize = 400;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The gateway answered, and the answer is no.
    #[error("the gateway says {status}: {detail}")]
    Refused {
        status: u16,
        /// The name of the problem, such as `not-found`; empty where it has none.
        kind: String,
        /// What is wrong, in the gateway's words.
        detail: String,
        /// How long the gateway asked to wait.
        retry_after: Option<Duration>,
    },
    /// No whole answer came. What was asked for may have been done all the same.
    #[error("the gateway at {gateway} does not answer: {reason}")]
    Unreachable { gateway: String, reason: String },
    /// An answer came that a gateway does not give.
    #[error("what answers at {gateway} is not a gateway that this program understands: {reason}")]
    BadAnswer { gateway: String, reason: String },
    /// This cannot be asked.
    #[error("{0}")]
    Invalid(String),
}

impl Error {
    /// Whether asking again, without changing anything, may help.
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Refused { status, .. } => matches!(status, 408 | 429 | 500..=599),
            Self::Unreachable { .. } => true,
            Self::BadAnswer { .. } | Self::Invalid(_) => false,
        }
    }

    /// How long the gateway asked to wait before it is asked again.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused { retry_after, .. } => *retry_after,
            Self::Unreachable { .. } | Self::BadAnswer { .. } | Self::Invalid(_) => None,
        }
    }
}

/// Text from outside, fit for a line of a log: cut, and without anything a terminal would obey.
pub(crate) fn inert(text: &str) -> String {
    let plain = |char: char| if char.is_control() { ' ' } else { char };
    let mut shown: String = text.chars().take(MAX_QUOTED_CHARS).map(plain).collect();
    if text.chars().nth(MAX_QUOTED_CHARS).is_some() {
        shown.push('…');
    }
    shown
}

/// An error with all that caused it, in one line.
pub(crate) fn whole_story(error: &dyn std::error::Error) -> String {
    /// Deeper than any chain of hyper's.
    const MAX_CAUSES: usize = 16;
    let mut story = error.to_string();
    let mut cause = error.source();
    for _ in 0..MAX_CAUSES {
        let Some(error) = cause else { break };
        let said = error.to_string();
        // Some repeat what has caused them.
        if !story.ends_with(&said) {
            story.push_str(": ");
            story.push_str(&said);
        }
        cause = error.source();
    }
    inert(&story)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(status: u16) -> Error {
        Error::Refused { status, kind: String::new(), detail: "no".into(), retry_after: None }
    }

    #[test]
    fn only_what_may_pass_is_temporary() {
        for status in [408, 429, 500, 502, 503, 504] {
            assert!(refused(status).is_temporary(), "{status}");
        }
        for status in [301, 400, 401, 403, 404, 409, 413, 422] {
            assert!(!refused(status).is_temporary(), "{status}");
        }
        let (gateway, reason) = ("http://a".to_owned(), "gone".to_owned());
        assert!(Error::Unreachable { gateway, reason }.is_temporary());
        assert!(!Error::Invalid("no".into()).is_temporary());
    }

    #[test]
    fn text_from_outside_is_cut_and_obeyed_by_no_terminal() {
        assert_eq!(inert("a\u{1b}[31mb\r\nc\0"), "a [31mb  c ");
        let long = inert(&"é".repeat(MAX_QUOTED_CHARS + 1));
        assert_eq!(long.chars().count(), MAX_QUOTED_CHARS + 1);
        assert!(long.ends_with('…'));
        assert_eq!(inert(&"é".repeat(MAX_QUOTED_CHARS)).chars().count(), MAX_QUOTED_CHARS);
    }
}
