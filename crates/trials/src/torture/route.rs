//! What is sent and where it goes: the types of events, the endpoints that want them, and how each
//! endpoint behaves.

use std::time::Duration;

use serde_json::{Value, json};

/// How many ordering keys events have.
pub(crate) const KEYS: u64 = 6;

/// How long an endpoint waits before it is tried again.
const RETRY_AFTER: &str = "100ms";
/// So many that nothing is ever given up.
const MAX_ATTEMPTS: u32 = 1_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Topic {
    Plain,
    /// All in one line.
    Line,
    /// One line for each ordering key.
    Keyed,
}

impl Topic {
    /// The type of its events.
    pub(crate) const fn kind(self) -> &'static str {
        match self {
            Self::Plain => "plain.tick",
            Self::Line => "line.tick",
            Self::Keyed => "keyed.tick",
        }
    }

    /// The endpoints that want it.
    pub(crate) fn targets(self) -> impl Iterator<Item = Target> {
        Target::ALL.into_iter().filter(move |target| target.wants(self))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Target {
    /// Gets everything, and takes it.
    Every,
    /// Refuses some several times before it takes them, and answers some not at all.
    Retrying,
    Fifo,
    ByKey,
}

/// What an endpoint does about an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reply {
    Taken { after: Duration },
    Refused,
    Never,
}

impl Target {
    pub(crate) const ALL: [Self; 4] = [Self::Every, Self::Retrying, Self::Fifo, Self::ByKey];

    /// In the URL, and for people.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Every => "every",
            Self::Retrying => "retrying",
            Self::Fifo => "fifo",
            Self::ByKey => "by-key",
        }
    }

    pub(crate) fn of_path(path: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|target| path.strip_prefix('/') == Some(target.name()))
    }

    pub(crate) const fn wants(self, topic: Topic) -> bool {
        match (self, topic) {
            (Self::Every, Topic::Plain | Topic::Line | Topic::Keyed)
            | (Self::Retrying, Topic::Plain)
            | (Self::Fifo, Topic::Line)
            | (Self::ByKey, Topic::Keyed) => true,
            (Self::Retrying, Topic::Line | Topic::Keyed)
            | (Self::Fifo, Topic::Plain | Topic::Keyed)
            | (Self::ByKey, Topic::Plain | Topic::Line) => false,
        }
    }

    /// The most that can have arrived there without the gateway having it on disk, and so the most
    /// that one crash can repeat.
    pub(crate) const fn max_in_flight(self) -> usize {
        match self {
            Self::Fifo => 1,
            Self::Every | Self::Retrying | Self::ByKey => 16,
        }
    }

    /// What is done about this attempt at the event of this number.
    pub(crate) fn reply(self, number: u64, attempt: u32) -> Reply {
        let refusals = match self {
            Self::Every => 0,
            Self::Retrying => [0, 2, 0, 1, 0][usize::try_from(number % 5).unwrap_or(0)],
            Self::Fifo => u32::from(number.is_multiple_of(40)),
            Self::ByKey => u32::from(number.is_multiple_of(9)),
        };
        if self == Self::Retrying && number % 307 == 11 && attempt <= 1 {
            return Reply::Never;
        }
        if attempt <= refusals {
            return Reply::Refused;
        }
        // So that something is in flight at any moment.
        let after = match self {
            Self::Every | Self::Retrying => Duration::from_millis(1 + number % 4),
            Self::Fifo | Self::ByKey => Duration::ZERO,
        };
        Reply::Taken { after }
    }

    /// The endpoint as it is made. `timeout` is how long an attempt that is not answered lasts.
    pub(crate) fn spec(self, base: &str, secret: &str, timeout: Duration) -> Value {
        let ordering = match self {
            Self::Every | Self::Retrying => "none",
            Self::Fifo => "fifo",
            Self::ByKey => "fifo_by_key",
        };
        let kinds: Vec<&str> = [Topic::Plain, Topic::Line, Topic::Keyed]
            .into_iter()
            .filter(|topic| self.wants(*topic))
            .map(Topic::kind)
            .collect();
        json!({
            "name": self.name(),
            "url": format!("{base}/{}", self.name()),
            "event_types": kinds,
            "ordering": ordering,
            "max_in_flight": self.max_in_flight(),
            "timeout": format!("{}ms", timeout.as_millis()),
            "policy": { "schedule": { "list": [RETRY_AFTER] }, "max_attempts": MAX_ATTEMPTS },
            "secret": secret,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_topic_has_an_endpoint_of_its_own_beside_the_one_that_gets_all() {
        for (topic, own) in [
            (Topic::Plain, Target::Retrying),
            (Topic::Line, Target::Fifo),
            (Topic::Keyed, Target::ByKey),
        ] {
            assert_eq!(topic.targets().collect::<Vec<_>>(), [Target::Every, own]);
        }
    }

    #[test]
    fn every_event_is_taken_in_the_end() {
        for target in Target::ALL {
            assert_eq!(Target::of_path(&format!("/{}", target.name())), Some(target));
            for number in 0..2_000 {
                assert!(matches!(target.reply(number, 3), Reply::Taken { .. }), "{target:?}");
            }
        }
        assert_eq!(Target::of_path("/"), None);
        assert_eq!(Target::Retrying.reply(11, 1), Reply::Never);
        assert_eq!(Target::Retrying.reply(1, 2), Reply::Refused);
    }
}
