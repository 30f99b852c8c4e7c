//! What the other ways to hand a delivery over are held against: push, by the same binary in the
//! same run.

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::Setting;
use super::end_to_end::{Carried, MAX_EVENTS, carry};
use super::gateway::Gateway;
use super::latency::{PER_SECOND, passage};
use super::report::{Figure, Row, Wanted};
use super::sample::Sample;
use super::sink::{Manner, Sink};

/// A gateway of its own that pushes to a sink. While another way is measured it has nothing to do.
#[derive(Debug)]
pub(crate) struct Push {
    gateway: Gateway,
    sink: Sink,
    endpoint: String,
}

/// What was measured of one way to hand deliveries over.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) carried: Carried,
    pub(crate) latency: Sample,
}

/// What stands in the rows for it: by whom the rate was kept up, and by whom the latency was taken.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Way<'a> {
    pub(crate) carried: &'a str,
    pub(crate) latency: &'a str,
}

impl Push {
    /// `name` is that of its folder.
    pub(crate) async fn start(setting: &Setting, name: &str) -> Result<Self> {
        let sink = Sink::start(Manner::Answer, MAX_EVENTS).await?;
        let gateway = Gateway::start(&setting.binary, &setting.folder.join(name)).await?;
        let endpoint = json!({"url": sink.url(), "event_types": ["*"]});
        let endpoint = gateway.create_endpoint(&endpoint).await?;
        Ok(Self { gateway, sink, endpoint })
    }

    pub(crate) async fn latency(&self, setting: &Setting) -> Result<Sample> {
        let passage = passage(&self.gateway.events()?, &self.sink.arrivals, setting).await;
        passage.with_context(|| self.gateway.last_words()).context("push")
    }

    /// For half the time: it runs before and after the other, because a shared machine is not as
    /// fast in one minute as in the next.
    pub(crate) async fn carried(&self, setting: &Setting) -> Result<Carried> {
        let (events, half) = (self.gateway.events()?, setting.sustained / 2);
        let carried =
            carry(&events, &self.gateway.process, &self.sink.arrivals, half, setting).await;
        let carried = carried.with_context(|| self.gateway.last_words()).context("push")?;
        self.gateway.until_settled(&self.endpoint).await?;
        Ok(carried)
    }

    pub(crate) async fn stop(self) -> Result<()> {
        let repeated = self.sink.arrivals.repeated();
        ensure!(repeated == 0, "{repeated} pushed events came twice");
        self.gateway.stop().await
    }
}

/// The rows of one way beside push. None is judged: what push reaches is no limit of the others,
/// only a measure for them.
pub(crate) fn rows_beside(way: Way<'_>, this: &Measured, push: &Measured) -> Result<Vec<Row>> {
    let Way { carried: by, latency: latency_by } = way;
    let mut rows = vec![
        Row::new(
            format!("{by}, beside push"),
            Figure::per_second(this.carried.per_second),
            Some(Figure::per_second(push.carried.per_second)),
            Wanted::Nothing,
        ),
        Row::new(
            format!("{by}: added to the backlog, of what was accepted"),
            Figure::percent(this.carried.added_percent),
            None,
            Wanted::Nothing,
        ),
    ];
    if let Some(processor) = this.carried.processor {
        rows.push(Row::new(
            format!("{by}: processor time an event"),
            Figure::microseconds(processor),
            push.carried.processor.map(Figure::microseconds),
            Wanted::Nothing,
        ));
    }
    for percent in [50, 99] {
        let figure = this.latency.percentile(percent).context("no event was measured")?;
        let pushed = push.latency.percentile(percent).context("no push was measured")?;
        rows.push(Row::new(
            format!("{latency_by}: latency at {PER_SECOND}/s, p{percent}"),
            Figure::milliseconds(figure),
            Some(Figure::milliseconds(pushed)),
            Wanted::Nothing,
        ));
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::report::Verdict;
    use super::*;

    const PULL: Way<'_> = Way { carried: "pull by two", latency: "pull by one" };

    fn measured(per_second: f64, processor: Option<u64>, millis: u64) -> Measured {
        let processor = processor.map(Duration::from_micros);
        Measured {
            carried: Carried { runs: 1, per_second, added_percent: 1.0, processor, usage: None },
            latency: Sample::new((1..=100).map(|n| Duration::from_millis(n * millis)).collect()),
        }
    }

    #[test]
    fn a_way_is_shown_beside_push_and_not_judged() {
        let push = measured(10_000.0, Some(60), 1);
        let rows = rows_beside(PULL, &measured(5_000.0, Some(90), 2), &push).expect("rows");
        let shown: Vec<_> = rows.iter().map(|row| (row.measure.as_str(), row.ratio)).collect();
        assert_eq!(
            shown,
            [
                ("pull by two, beside push", Some(0.5)),
                ("pull by two: added to the backlog, of what was accepted", None),
                ("pull by two: processor time an event", Some(1.5)),
                ("pull by one: latency at 200/s, p50", Some(2.0)),
                ("pull by one: latency at 200/s, p99", Some(2.0)),
            ]
        );
        assert!(rows.iter().all(|row| row.verdict == Verdict::Unjudged));
    }

    #[test]
    fn what_was_not_measured_is_missing_or_an_error() {
        let push = measured(10_000.0, None, 1);
        let rows = rows_beside(PULL, &measured(5_000.0, None, 2), &push).expect("rows");
        assert!(rows.iter().all(|row| !row.measure.contains("processor")));
        let nothing = Measured { latency: Sample::default(), ..measured(1.0, None, 1) };
        assert!(rows_beside(PULL, &nothing, &push).is_err());
        assert!(rows_beside(PULL, &push, &nothing).is_err());
    }
}
