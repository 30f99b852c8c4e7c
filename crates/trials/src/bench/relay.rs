//! How many events a second go through one hub to the sink while producers keep on, and how long
//! one takes: beside push.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::Setting;
use super::end_to_end::{Carried, MAX_EVENTS, carry};
use super::gateway::Gateway;
use super::hub::Hub;
use super::latency::passage;
use super::push::{Measured, Push, Way, rows_beside};
use super::report::{Figure, Row, Wanted};
use super::sink::{Manner, Sink};

/// What the hub takes at once; its endpoint may have as much in flight.
const CAPACITY: u32 = 256;
const WAY: &str = "relay by one hub";

pub(crate) async fn measure(setting: &Setting) -> Result<Vec<Row>> {
    let push = Push::start(setting, "relay-push").await?;
    let sink = Sink::start(Manner::Answer, MAX_EVENTS).await?;
    let gateway = Gateway::start(&setting.binary, &setting.folder.join("relay")).await?;
    let hub = Hub::start(setting, &gateway, &sink.url(), CAPACITY).await?;
    let endpoint = json!({"hub": hub.id, "event_types": ["*"], "max_in_flight": CAPACITY});
    let endpoint = gateway.create_endpoint(&endpoint).await?;
    let relay = Relay { gateway, hub, sink, endpoint };
    let last_words = || relay.last_words();

    // The latencies first, while both stores are empty.
    let pushed_latency = push.latency(setting).await?;
    let passage = passage(&relay.gateway.events()?, &relay.sink.arrivals, setting).await;
    let latency = passage.with_context(last_words)?;
    let before = push.carried(setting).await?;
    let (carried, hub_processor) = relay.carried(setting).await.with_context(last_words)?;
    let after = push.carried(setting).await?;
    relay.stop().await?;
    push.stop().await?;

    let relayed = Measured { carried, latency };
    let pushed = Measured { carried: before.mean(&after), latency: pushed_latency };
    let mut rows = rows_beside(Way { carried: WAY, latency: WAY }, &relayed, &pushed)?;
    if let Some(processor) = hub_processor {
        rows.push(Row::new(
            format!("{WAY}: processor time an event in the hub"),
            Figure::microseconds(processor),
            None,
            Wanted::Nothing,
        ));
    }
    Ok(rows)
}

#[derive(Debug)]
struct Relay {
    gateway: Gateway,
    hub: Hub,
    sink: Sink,
    endpoint: String,
}

impl Relay {
    /// Beside it the hub's own processor time for each event.
    async fn carried(&self, setting: &Setting) -> Result<(Carried, Option<Duration>)> {
        let arrivals = &self.sink.arrivals;
        let (events, process) = (self.gateway.events()?, &self.gateway.process);
        let (earlier, used_earlier) = (arrivals.unique(), self.hub.process.usage());
        let carried = carry(&events, process, arrivals, setting.sustained, setting).await?;
        let (relayed, used) = (arrivals.unique() - earlier, self.hub.process.usage());
        self.gateway.until_settled(&self.endpoint).await?;
        let hub_processor = used_earlier.zip(used).and_then(|(earlier, used)| {
            Some(used.processor.checked_sub(earlier.processor)? / u32::try_from(relayed).ok()?)
        });
        Ok((carried, hub_processor))
    }

    async fn stop(self) -> Result<()> {
        let repeated = self.sink.arrivals.repeated();
        ensure!(repeated == 0, "{repeated} relayed events came twice");
        self.hub.stop().await?;
        self.gateway.stop().await
    }

    fn last_words(&self) -> String {
        format!("{}{}", self.gateway.last_words(), self.hub.last_words())
    }
}
