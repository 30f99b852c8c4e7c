//! How many events a second workers can lease and acknowledge while producers keep on, and how
//! soon a worker that waits has an event: beside push.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::Setting;
use super::end_to_end::{Carried, MAX_EVENTS, carry};
use super::gateway::Gateway;
use super::latency::passage;
use super::push::{Measured, Push, Way, rows_beside};
use super::report::Row;
use super::sample::Sample;
use super::sink::Arrivals;
use super::workers::{Noted, Workers};

/// Workers at once where the rate is measured; where the latency is, there is one.
const WORKERS: usize = 8;

pub(crate) async fn measure(setting: &Setting) -> Result<Vec<Row>> {
    let push = Push::start(setting, "pull-push").await?;
    let gateway = Gateway::start(&setting.binary, &setting.folder.join("pull")).await?;
    let endpoint = json!({"pull": true, "event_types": ["*"]});
    let endpoint = gateway.create_endpoint(&endpoint).await?;
    let pull = Pull { gateway, endpoint };
    let last_words = || pull.gateway.last_words();

    // The latencies first, while both stores are empty.
    let pushed_latency = push.latency(setting).await?;
    let latency = pull.latency(setting).await.with_context(last_words)?;
    let before = push.carried(setting).await?;
    let carried = pull.carried(setting).await.with_context(last_words)?;
    let after = push.carried(setting).await?;
    pull.gateway.stop().await?;
    push.stop().await?;

    let pulled = Measured { carried, latency };
    let pushed = Measured { carried: before.mean(&after), latency: pushed_latency };
    let way = Way { carried: &format!("pull by {WORKERS} workers"), latency: "pull by one worker" };
    rows_beside(way, &pulled, &pushed)
}

#[derive(Debug)]
struct Pull {
    gateway: Gateway,
    endpoint: String,
}

impl Pull {
    /// From the post to the worker that has the event. While it acknowledges it does not wait for
    /// others: that they wait for it meanwhile is part of the time.
    async fn latency(&self, setting: &Setting) -> Result<Sample> {
        let arrivals = Arc::new(Arrivals::new(MAX_EVENTS));
        let desk = self.gateway.desk(&self.endpoint)?;
        let mut worker = Workers::start(&desk, 1, &arrivals, Noted::Leased).await?;
        let events = self.gateway.events()?;
        let latency = worker.during(passage(&events, &arrivals, setting)).await?;
        // What was noted as leased is still to be acknowledged.
        worker.during(self.gateway.until_settled(&self.endpoint)).await?;
        once(&arrivals)?;
        Ok(latency)
    }

    async fn carried(&self, setting: &Setting) -> Result<Carried> {
        let arrivals = Arc::new(Arrivals::new(MAX_EVENTS));
        let desk = self.gateway.desk(&self.endpoint)?;
        let mut workers = Workers::start(&desk, WORKERS, &arrivals, Noted::Acknowledged).await?;
        let (events, process) = (self.gateway.events()?, &self.gateway.process);
        let carrying = carry(&events, process, &arrivals, setting.sustained, setting);
        let carried = workers.during(carrying).await?;
        self.gateway.until_settled(&self.endpoint).await?;
        once(&arrivals)?;
        Ok(carried)
    }
}

fn once(arrivals: &Arrivals) -> Result<()> {
    let repeated = arrivals.repeated();
    ensure!(repeated == 0, "{repeated} events were leased twice");
    Ok(())
}
