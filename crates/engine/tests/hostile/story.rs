//! What became of one delivery, and what should have.

use postrider_core::{Class, Reason, State};
use postrider_store::record::{Attempt, DeliveryRecord, Response};

#[derive(Debug)]
pub(crate) struct Story {
    pub(crate) record: DeliveryRecord,
    pub(crate) attempts: Vec<Attempt>,
}

/// What the one attempt of a delivery has to come to.
#[derive(Debug)]
pub(crate) enum Expected<'a> {
    Delivered {
        status: u16,
        /// What is kept of the body.
        body: &'a [u8],
        truncated: bool,
    },
    /// An answer that is no success, and the error exactly.
    Refused { status: u16, error: &'a str },
    /// No answer that could be used, and what the error says among other things.
    NoAnswer { error: &'a str },
}

pub(crate) fn check(stories: &[Story], expected: &Expected<'_>) {
    for story in stories {
        story.check(expected);
    }
}

impl Story {
    pub(crate) fn check(&self, expected: &Expected<'_>) {
        let attempt = self.only_attempt();
        match expected {
            Expected::Delivered { status, body, truncated } => {
                self.assert_delivered();
                let response = attempt.response.clone().unwrap_or_default();
                assert_eq!(attempt.status, Some(*status), "{self:?}");
                assert!(response.body == body, "{} bytes: {self:?}", response.body.len());
                assert_eq!(response.truncated, *truncated, "{self:?}");
            }
            Expected::Refused { status, error } => {
                self.assert_dead();
                assert_eq!(attempt.status, Some(*status), "{self:?}");
                assert_eq!(self.error(), *error, "{self:?}");
            }
            Expected::NoAnswer { error } => {
                self.assert_dead();
                assert_eq!((attempt.status, &attempt.response), (None, &None), "{self:?}");
                assert!(self.error().contains(error), "wanted {error:?}: {self:?}");
            }
        }
    }

    pub(crate) fn assert_delivered(&self) {
        let record = &self.record;
        assert_eq!(record.state, State::Delivered, "{self:?}");
        assert_eq!((record.class, record.reason, record.due), (None, None, None), "{self:?}");
    }

    /// All the attempts it has failed, and each counted.
    pub(crate) fn assert_dead(&self) {
        let record = &self.record;
        assert_eq!(record.state, State::Dead, "{self:?}");
        assert_eq!(record.reason, Some(Reason::Exhausted), "{self:?}");
        assert_eq!(record.class, Some(Class::Retryable), "{self:?}");
        assert_eq!(record.attempts as usize, self.attempts.len(), "{self:?}");
        for attempt in &self.attempts {
            assert_eq!((attempt.class, attempt.counted), (Some(Class::Retryable), true));
        }
    }

    pub(crate) fn only_attempt(&self) -> &Attempt {
        let [attempt] = &self.attempts[..] else { panic!("not one attempt: {self:?}") };
        attempt
    }

    pub(crate) fn response(&self) -> &Response {
        let response = self.only_attempt().response.as_ref();
        response.unwrap_or_else(|| panic!("no response is kept: {self:?}"))
    }

    /// The delivery's and its last attempt's, which agree.
    pub(crate) fn error(&self) -> &str {
        let error = self.record.last_error.as_deref().unwrap_or_default();
        let last = self.attempts.last().and_then(|attempt| attempt.error.as_deref());
        assert_eq!(last.unwrap_or_default(), error, "{self:?}");
        error
    }
}
