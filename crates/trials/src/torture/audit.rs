//! What the gateway itself says, when all is over, of everything that it has stored.

use std::collections::{BTreeMap, HashSet};
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use bytes::Bytes;
use http::{Method, StatusCode};
use serde_json::Value;
use tokio::time::timeout;

use super::random::Random;
use super::route::Target;
use crate::bench::connection::{self, Connection};
use crate::bench::peer::KEY;

const PAGE: usize = 250;
const MAX_PAGES: usize = 40_000;
/// The most deliveries of a round whose attempts are looked at one by one.
const MAX_LOGS: usize = 200;
const ANSWERED_WITHIN: Duration = Duration::from_secs(25);

#[derive(Debug, Clone, Default)]
pub(crate) struct Stored {
    /// How many there are.
    pub(crate) events: u64,
    pub(crate) deliveries: Vec<Delivery>,
}

#[derive(Debug, Clone)]
pub(crate) struct Delivery {
    pub(crate) id: String,
    pub(crate) event: String,
    pub(crate) target: Target,
    pub(crate) state: String,
    pub(crate) attempts: u64,
    /// Of some.
    pub(crate) log: Option<Vec<Tried>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tried {
    pub(crate) number: u64,
    pub(crate) outcome: String,
}

/// Reads everything. Attempts are read of deliveries that needed several, and of those that arrived
/// `again`.
pub(crate) async fn audit(
    address: SocketAddr,
    endpoints: &BTreeMap<String, Target>,
    again: &HashSet<String>,
    random: &mut Random,
) -> Result<Stored> {
    let mut reader = Reader { address, connection: Connection::open(address).await? };
    let stats = reader.get("/v1/stats").await?;
    let events = stats["events"].as_u64().with_context(|| format!("no count in {stats}"))?;
    let mut deliveries = reader.deliveries(endpoints).await?;
    let mut wanted: Vec<usize> = (0..deliveries.len())
        .filter(|index| {
            let delivery = &deliveries[*index];
            delivery.attempts > 1 || again.contains(&delivery.id)
        })
        .collect();
    for _ in 0..wanted.len().min(MAX_LOGS) {
        let delivery = &mut deliveries[wanted.swap_remove(random.index(wanted.len()))];
        delivery.log = Some(reader.log(&delivery.id).await?);
    }
    Ok(Stored { events, deliveries })
}

struct Reader {
    address: SocketAddr,
    connection: Connection,
}

impl Reader {
    async fn deliveries(&mut self, endpoints: &BTreeMap<String, Target>) -> Result<Vec<Delivery>> {
        let mut found = Vec::new();
        let mut cursor = None;
        for _ in 0..MAX_PAGES {
            let from = cursor.map(|cursor| format!("&cursor={cursor}")).unwrap_or_default();
            let page = self.get(&format!("/v1/deliveries?limit={PAGE}{from}")).await?;
            for entry in page["data"].as_array().context("a page without data")? {
                found.push(read_delivery(entry, endpoints)?);
            }
            cursor = page["next_cursor"].as_str().map(str::to_owned);
            if cursor.is_none() {
                return Ok(found);
            }
        }
        bail!("the list of deliveries has more than {MAX_PAGES} pages")
    }

    async fn log(&mut self, delivery: &str) -> Result<Vec<Tried>> {
        let shown = self.get(&format!("/v1/deliveries/{delivery}")).await?;
        let log = shown["attempt_log"].as_array().context("a delivery without its attempts")?;
        log.iter().map(read_attempt).collect()
    }

    async fn get(&mut self, path: &str) -> Result<Value> {
        let target = connection::Target::new(self.address, Some(KEY))?.at(Method::GET, path)?;
        let asking = self.connection.send(target.request(Bytes::new()));
        let answer = timeout(ANSWERED_WITHIN, asking).await.context("no answer")?;
        answer?.json(StatusCode::OK).with_context(|| format!("asking {path}"))
    }
}

fn read_delivery(entry: &Value, endpoints: &BTreeMap<String, Target>) -> Result<Delivery> {
    let text = |field: &str| {
        let found = entry[field].as_str().map(str::to_owned);
        found.with_context(|| format!("no {field} in {entry}"))
    };
    let endpoint = text("endpoint_id")?;
    let target = endpoints.get(&endpoint).copied();
    Ok(Delivery {
        id: text("id")?,
        event: text("event_id")?,
        target: target.with_context(|| format!("{endpoint} is no endpoint of ours"))?,
        state: text("state")?,
        attempts: entry["attempts"].as_u64().with_context(|| format!("no attempts in {entry}"))?,
        log: None,
    })
}

fn read_attempt(entry: &Value) -> Result<Tried> {
    let number = entry["number"].as_u64();
    let outcome = entry["outcome"].as_str();
    ensure!(entry["counted"] == true, "an attempt that does not count: {entry}");
    number
        .zip(outcome)
        .map(|(number, outcome)| Tried { number, outcome: outcome.to_owned() })
        .with_context(|| format!("an attempt without a number or an outcome: {entry}"))
}
