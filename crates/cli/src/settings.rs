//! The settings that have no flag: what the `inbox` preset is, by variables or by `[inbox]` of a file.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use postrider_core::policy::{InboxOverrides, Presets};
use postrider_core::span;

/// One thing about the preset that can be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Knob {
    BaseDelay,
    MaxDelay,
    MaxAttempts,
}

impl Knob {
    pub(crate) const ALL: [Self; 3] = [Self::BaseDelay, Self::MaxDelay, Self::MaxAttempts];

    pub(crate) const fn variable(self) -> &'static str {
        match self {
            Self::BaseDelay => "RETRY_BASE_DELAY",
            Self::MaxDelay => "RETRY_MAX_DELAY",
            Self::MaxAttempts => "MAX_ATTEMPTS",
        }
    }

    /// In `[inbox]`.
    pub(crate) const fn key(self) -> &'static str {
        match self {
            Self::BaseDelay => "base_delay",
            Self::MaxDelay => "max_delay",
            Self::MaxAttempts => "max_attempts",
        }
    }

    pub(crate) const fn about(self) -> &'static str {
        match self {
            Self::BaseDelay => "The base of its delays",
            Self::MaxDelay => "Its longest delay",
            Self::MaxAttempts => "After how many attempts it gives up",
        }
    }

    /// What holds if nobody says anything.
    pub(crate) fn usual(self) -> String {
        let usual = InboxOverrides::default();
        match self {
            Self::BaseDelay => span::format(usual.base_delay),
            Self::MaxDelay => span::format(usual.max_delay),
            Self::MaxAttempts => usual.max_attempts.to_string(),
        }
    }

    fn turn(self, text: &str, inbox: &mut InboxOverrides) -> anyhow::Result<()> {
        match self {
            Self::BaseDelay => inbox.base_delay = delay(text)?,
            Self::MaxDelay => inbox.max_delay = delay(text)?,
            Self::MaxAttempts => {
                let whole = text.parse();
                inbox.max_attempts =
                    whole.map_err(|_| anyhow!("expected a whole number from 1, not `{text}`"))?;
            }
        }
        Ok(())
    }
}

/// What a file says of the preset.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Inbox {
    /// The file.
    pub(crate) path: PathBuf,
    pub(crate) given: Vec<Given>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Given {
    pub(crate) knob: Knob,
    pub(crate) text: String,
    pub(crate) line: usize,
}

impl Given {
    /// Whether it can be that at all, whatever the rest is.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        self.knob.turn(&self.text, &mut InboxOverrides::default())
    }
}

impl Inbox {
    pub(crate) fn get(&self, knob: Knob) -> Option<&Given> {
        self.given.iter().find(|given| given.knob == knob)
    }
}

/// The presets, with `inbox` as the environment has it, then the file.
pub(crate) fn presets(inbox: &Inbox) -> anyhow::Result<Presets> {
    presets_from(|name| std::env::var(name).ok(), inbox)
}

/// The same with another environment.
pub(crate) fn presets_from(
    variable: impl Fn(&str) -> Option<String>,
    inbox: &Inbox,
) -> anyhow::Result<Presets> {
    let mut overrides = InboxOverrides::default();
    let mut places = Vec::new();
    for knob in Knob::ALL {
        let (text, place) = match (variable(knob.variable()), inbox.get(knob)) {
            (Some(text), _) => (text, knob.variable().to_owned()),
            (None, Some(Given { text, line, .. })) => {
                (text.clone(), format!("{}:{line}: inbox.{}", inbox.path.display(), knob.key()))
            }
            (None, None) => continue,
        };
        knob.turn(&text, &mut overrides).context(place.clone())?;
        places.push(place);
    }
    Presets::new(overrides).map_err(|invalid| anyhow!("{}: {invalid}", places.join(", ")))
}

/// A duration with a unit, or a whole number of seconds.
fn delay(text: &str) -> anyhow::Result<Duration> {
    match text.parse::<u32>() {
        Ok(seconds) => Ok(Duration::from_secs(seconds.into())),
        Err(_) => Ok(span::parse(text)?),
    }
}

#[cfg(test)]
mod tests {
    use postrider_core::policy::{Jitter, Preset};

    use super::*;

    fn inbox_delays(variables: &[(&str, &str)], file: &[(Knob, &str)]) -> anyhow::Result<Vec<u64>> {
        let find = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        let given =
            |(knob, text): &(Knob, &str)| Given { knob: *knob, text: (*text).to_owned(), line: 7 };
        let inbox =
            Inbox { path: "postrider.toml".into(), given: file.iter().map(given).collect() };
        let policy = presets_from(find, &inbox)?.policy(Preset::Inbox);
        let failures = 1..policy.max_attempts().expect("inbox counts attempts");
        Ok(failures.map(|n| policy.delay(n, Jitter::MIDDLE).as_secs()).collect())
    }

    #[test]
    fn the_environment_changes_the_inbox_preset() {
        type Case = (&'static [(&'static str, &'static str)], &'static [u64]);
        let cases: [Case; 4] = [
            (&[], &[10, 20, 40, 80]),
            (&[("RETRY_BASE_DELAY", "1s"), ("MAX_ATTEMPTS", "4")], &[2, 4, 8]),
            (&[("RETRY_BASE_DELAY", "100"), ("RETRY_MAX_DELAY", "5m")], &[200, 300, 300, 300]),
            (&[("MAX_ATTEMPTS", "1")], &[]),
        ];
        for (variables, expected) in cases {
            assert_eq!(inbox_delays(variables, &[]).expect("valid"), expected, "{variables:?}");
        }
    }

    #[test]
    fn a_file_changes_it_where_the_environment_says_nothing() {
        let file = [(Knob::BaseDelay, "1s"), (Knob::MaxAttempts, "3")];
        assert_eq!(inbox_delays(&[], &file).expect("valid"), [2, 4]);
        let variables = [("RETRY_BASE_DELAY", "2s")];
        assert_eq!(inbox_delays(&variables, &file).expect("valid"), [4, 8]);
    }

    #[test]
    fn a_bad_variable_is_named() {
        for name in ["RETRY_BASE_DELAY", "RETRY_MAX_DELAY", "MAX_ATTEMPTS"] {
            for value in ["", "-1", "soon", "0"] {
                let error = inbox_delays(&[(name, value)], &[]).expect_err("refused");
                assert!(format!("{error:#}").contains(name), "{name}={value}: {error:#}");
            }
        }
    }

    #[test]
    fn a_bad_line_of_a_file_is_named() {
        for knob in Knob::ALL {
            for value in ["", "-1", "soon", "0"] {
                let error = inbox_delays(&[], &[(knob, value)]).expect_err("refused");
                let place = format!("postrider.toml:7: inbox.{}: ", knob.key());
                assert!(format!("{error:#}").starts_with(&place), "{value}: {error:#}");
            }
        }
    }
}
