//! Builds of the gateway end to end, by many short turns with each other and with the pass-through: on a
//! machine whose speed changes from one minute to the next, only that tells two builds apart.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;

use super::Setting;
use super::end_to_end::{Carried, MAX_EVENTS, carry};
use super::gateway::Gateway;
use super::peer::Peer;
use super::report::{Figure, Row, Wanted};
use super::sink::{Manner, Sink};

const TURNS: usize = 12;
const WARM_UP: Duration = Duration::from_millis(500);
const TURN: Duration = Duration::from_secs(2);

/// A build, and what its turns came to.
struct Build {
    name: String,
    gateway: Gateway,
    sink: Sink,
    turns: Turns,
}

#[derive(Default)]
struct Turns(Vec<Carried>);

pub(crate) async fn measure(setting: &Setting, others: &[PathBuf]) -> Result<Vec<Row>> {
    let setting = Setting { warm_up: WARM_UP, ..setting.clone() };
    let sink = Sink::start(Manner::Answer, MAX_EVENTS).await?;
    let pass = Peer::pass(sink.address)?;
    let mut limit = Turns::default();
    let mut builds = Vec::new();
    for binary in std::iter::once(&setting.binary).chain(others) {
        let data = setting.folder.join(format!("build-{}", builds.len()));
        builds.push(Build::start(binary, &data).await?);
    }
    for turn in 0..TURNS {
        let passed = carry(&pass.target()?, &pass.process, &sink.arrivals, TURN, &setting).await;
        limit.0.push(passed.context("the pass-through")?);
        // Each is the first after the pass-through as often as the others.
        let count = builds.len();
        for index in (0..count).map(|place| (turn + place) % count) {
            builds[index].carry(&setting).await?;
        }
        let ratio = |build: &Build| format!("{:.2}", build.turns.rate() / limit.rate());
        let ratios: Vec<String> = builds.iter().map(ratio).collect();
        eprintln!("  {} of {TURNS} turns: {}", turn + 1, ratios.join(", "));
    }
    let mut rows = Vec::new();
    for Build { name, gateway, turns, .. } in builds {
        gateway.stop().await?;
        rows.push(Row::new(
            format!("{name}, ± {:.1} %", turns.error_percent()),
            Figure::per_second(turns.rate()),
            Some(Figure::per_second(limit.rate())),
            Wanted::Nothing,
        ));
        rows.push(Row::new(
            format!("{name}, processor time an event"),
            Figure::microseconds(turns.processor()),
            Some(Figure::microseconds(limit.processor())),
            Wanted::Nothing,
        ));
    }
    Ok(rows)
}

impl Build {
    async fn start(binary: &Path, data: &Path) -> Result<Self> {
        let sink = Sink::start(Manner::Answer, MAX_EVENTS).await?;
        let gateway = Gateway::start(binary, data).await?;
        gateway.create_endpoint(&json!({"url": sink.url(), "event_types": ["*"]})).await?;
        Ok(Self { name: binary.display().to_string(), gateway, sink, turns: Turns::default() })
    }

    async fn carry(&mut self, setting: &Setting) -> Result<()> {
        let Self { gateway, sink, turns, .. } = self;
        let turn = carry(&gateway.events()?, &gateway.process, &sink.arrivals, TURN, setting).await;
        turns.0.push(turn.with_context(|| gateway.last_words())?);
        Ok(())
    }
}

impl Turns {
    /// Events a second, in the mean.
    fn rate(&self) -> f64 {
        self.mean(|turn| turn.per_second)
    }

    fn processor(&self) -> Duration {
        let seconds = self.mean(|turn| turn.processor.unwrap_or_default().as_secs_f64());
        Duration::from_secs_f64(seconds)
    }

    /// The standard error of the rate, in per cent of it.
    fn error_percent(&self) -> f64 {
        let rate = self.rate();
        let variance = self.mean(|turn| (turn.per_second - rate).powi(2));
        (variance / (self.count() - 1.0).max(1.0)).sqrt() / rate * 100.0
    }

    fn mean(&self, of: impl Fn(&Carried) -> f64) -> f64 {
        self.0.iter().map(of).sum::<f64>() / self.count()
    }

    fn count(&self) -> f64 {
        f64::from(u32::try_from(self.0.len()).unwrap_or(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_is_that_of_the_mean() {
        let turn = |per_second: f64| Carried {
            runs: 1,
            per_second,
            added_percent: 0.0,
            processor: None,
            usage: None,
        };
        let turns = Turns([90.0, 110.0, 90.0, 110.0, 100.0].map(turn).into());
        // The standard deviation is 10, and there are five.
        assert!((turns.rate() - 100.0).abs() < 1e-9);
        assert!((turns.error_percent() - 10.0 / 5_f64.sqrt()).abs() < 1e-9);
    }
}
