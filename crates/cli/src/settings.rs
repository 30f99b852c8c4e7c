//! The settings that have no flag: the variables of the `inbox` preset.

use std::time::Duration;

use anyhow::{Context as _, anyhow};
use postrider_core::policy::{InboxOverrides, Presets};
use postrider_core::span;

/// The presets, with `inbox` changed by `RETRY_BASE_DELAY`, `RETRY_MAX_DELAY` and `MAX_ATTEMPTS`.
pub(crate) fn presets() -> anyhow::Result<Presets> {
    presets_from(|name| std::env::var(name).ok())
}

fn presets_from(variable: impl Fn(&str) -> Option<String>) -> anyhow::Result<Presets> {
    let mut inbox = InboxOverrides::default();
    if let Some(text) = variable("RETRY_BASE_DELAY") {
        inbox.base_delay = delay(&text).context("RETRY_BASE_DELAY")?;
    }
    if let Some(text) = variable("RETRY_MAX_DELAY") {
        inbox.max_delay = delay(&text).context("RETRY_MAX_DELAY")?;
    }
    if let Some(text) = variable("MAX_ATTEMPTS") {
        inbox.max_attempts = text
            .parse()
            .map_err(|_| anyhow!("expected a whole number from 1, not `{text}`"))
            .context("MAX_ATTEMPTS")?;
    }
    Presets::new(inbox)
        .map_err(|invalid| anyhow!("RETRY_BASE_DELAY, RETRY_MAX_DELAY, MAX_ATTEMPTS: {invalid}"))
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

    fn inbox_delays(variables: &[(&str, &str)]) -> anyhow::Result<Vec<u64>> {
        let find = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        let policy = presets_from(find)?.policy(Preset::Inbox);
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
            assert_eq!(inbox_delays(variables).expect("valid"), expected, "{variables:?}");
        }
    }

    #[test]
    fn a_bad_variable_is_named() {
        for name in ["RETRY_BASE_DELAY", "RETRY_MAX_DELAY", "MAX_ATTEMPTS"] {
            for value in ["", "-1", "soon", "0"] {
                let error = inbox_delays(&[(name, value)]).expect_err("refused");
                assert!(format!("{error:#}").contains(name), "{name}={value}: {error:#}");
            }
        }
    }
}
