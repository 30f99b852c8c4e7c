//! The real binary on what a power loss left: it starts, and has and carries all that was promised.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http::{Method, StatusCode};
use rusqlite::{Connection as Database, OpenFlags};
use serde_json::Value;

use super::super::fleet::Fleet;
use super::super::ledger::digest;
use super::super::node::{self, Launch};
use super::super::route::{Reply, Target, Topic};
use super::super::sink::Arrival;
use super::history::Moment;
use super::record::Recording;
use crate::bench::connection::{self, Connection};
use crate::bench::peer::KEY;

const DATABASE: &str = "postrider.db";
/// Pages of a list.
const MAX_PAGES: usize = 1_000;
/// How many bodies are read again: of those events that were promised last.
const MAX_BODIES: usize = 200;
/// How many faults are told of.
const MAX_FAULTS: usize = 20;

/// What was found after one power loss.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// Events that producers had been told were accepted.
    pub(super) acknowledged: usize,
    pub(super) stored: usize,
    /// Deliveries that were taken before and arrived again.
    pub(super) repeated: usize,
    pub(super) lost: usize,
    /// From the start to the moment when nothing waited any more.
    pub(super) recovery: Duration,
    pub(super) faults: Faults,
}

/// What should not be; told of up to a bound.
#[derive(Debug, Default)]
pub(super) struct Faults {
    pub(super) told: Vec<String>,
    pub(super) count: usize,
}

impl Faults {
    fn note(&mut self, fault: impl Into<String>) {
        self.count += 1;
        if self.told.len() < MAX_FAULTS {
            self.told.push(fault.into());
        }
    }
}

/// The most deliveries that can arrive again: those that were under way.
pub(super) fn most_repeated() -> usize {
    Target::ALL.into_iter().map(Target::max_in_flight).sum()
}

/// Starts the gateway on `data` and looks at everything. What is wrong is in the findings.
pub(super) async fn examine(
    binary: &Path,
    data: &Path,
    recording: &Recording,
    cut: Moment,
) -> Findings {
    let mut findings = Findings::default();
    let examined = Examination::new(recording, cut).carry_out(binary, data, &mut findings).await;
    if let Err(error) = examined {
        findings.faults.note(format!("{error:#}"));
    }
    findings
}

struct Examination<'a> {
    recording: &'a Recording,
    /// The numbers of the events by their ids.
    numbers: HashMap<&'a str, u64>,
    /// What was promised.
    events: Vec<&'a str>,
    endpoints: BTreeSet<&'a str>,
    /// What had been sent, by the attempt that is taken.
    carried: BTreeSet<(&'a str, Target)>,
    /// What had been sent at all, in order.
    pushed: Vec<(&'a str, Target)>,
}

/// What is delivered one by one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Line {
    All,
    Key(u64),
}

/// A stored event and the endpoints of its deliveries.
#[derive(Debug, Default)]
struct Stored {
    kind: String,
    deliveries: Vec<Target>,
}

impl<'a> Examination<'a> {
    fn new(recording: &'a Recording, cut: Moment) -> Self {
        let (history, books) = (&recording.history, &recording.books);
        let (events, endpoints): (Vec<&str>, Vec<&str>) =
            history.promised(cut).partition(|id| id.starts_with("evt_"));
        let numbers: HashMap<&str, u64> =
            books.acks.iter().map(|ack| (&*ack.event, ack.number)).collect();
        let (mut carried, mut pushed) = (BTreeSet::new(), Vec::new());
        for push in history.pushes.iter().take_while(|push| push.at < cut) {
            let Some(target) = Target::of_path(&push.path) else { continue };
            let Some(number) = numbers.get(&*push.event) else { continue };
            pushed.push((&*push.event, target));
            if matches!(target.reply(*number, push.attempt), Reply::Taken { .. }) {
                carried.insert((&*push.event, target));
            }
        }
        let endpoints = endpoints.into_iter().collect();
        Self { recording, numbers, events, endpoints, carried, pushed }
    }

    async fn carry_out(&self, binary: &Path, data: &Path, findings: &mut Findings) -> Result<()> {
        let before = self.recording.sink.arrived();
        findings.acknowledged = self.events.len();
        let launch = Launch {
            binary: binary.to_owned(),
            data: data.to_owned(),
            log: data.with_extension("log"),
            arguments: Vec::new(),
            variables: Vec::new(),
        };
        let started = Instant::now();
        let mut fleet = Fleet::start(vec![launch]).await.context("it does not start")?;
        let address = fleet.address()?;
        let stored = self.stored(address, &mut findings.faults).await?;
        findings.stored = stored.len();
        self.check_events(&stored, findings);
        self.check_endpoints(address, &mut findings.faults).await?;
        self.check_bodies(address, &stored, &mut findings.faults).await?;
        fleet.quiet().await?;
        findings.recovery = started.elapsed();
        check_ends(address, &mut findings.faults).await?;
        fleet.stop_all().await?;
        let arrivals = self.recording.sink.arrivals();
        self.check_arrivals(&stored, &arrivals[before..], findings);
        check_soundness(&data.join(DATABASE), &mut findings.faults)
    }

    /// Everything there is, by the ids of the events.
    async fn stored(
        &self,
        address: SocketAddr,
        faults: &mut Faults,
    ) -> Result<BTreeMap<String, Stored>> {
        let mut stored: BTreeMap<String, Stored> = BTreeMap::new();
        for event in list(address, "/v1/events").await? {
            let kind = text(&event, "type")?.to_owned();
            let known = Stored { kind, deliveries: Vec::new() };
            if stored.insert(text(&event, "id")?.to_owned(), known).is_some() {
                faults.note(format!("an event is listed twice: {event}"));
            }
        }
        for delivery in list(address, "/v1/deliveries").await? {
            let endpoint = self.recording.endpoints.get(text(&delivery, "endpoint_id")?);
            match (stored.get_mut(text(&delivery, "event_id")?), endpoint) {
                (Some(event), Some(target)) => event.deliveries.push(*target),
                (None, _) => faults.note(format!("a delivery without its event: {delivery}")),
                (_, None) => faults.note(format!("a delivery to nowhere: {delivery}")),
            }
        }
        Ok(stored)
    }

    /// What was promised is there, and what is there is whole.
    fn check_events(&self, stored: &BTreeMap<String, Stored>, findings: &mut Findings) {
        for event in &self.events {
            if !stored.contains_key(*event) {
                findings.lost += 1;
                findings.faults.note(format!("{event} was acknowledged and is lost"));
            }
        }
        for (id, Stored { kind, deliveries }) in stored {
            let mut deliveries = deliveries.clone();
            deliveries.sort_unstable();
            let expected = targets_of(kind);
            if deliveries != expected {
                let fault = format!("{id} ({kind}) has deliveries to {deliveries:?}");
                findings.faults.note(fault);
            }
        }
    }

    async fn check_endpoints(&self, address: SocketAddr, faults: &mut Faults) -> Result<()> {
        let listed = list(address, "/v1/endpoints").await?;
        for endpoint in &self.endpoints {
            if !listed.iter().any(|one| one["id"] == **endpoint) {
                faults.note(format!("the endpoint {endpoint} was made and is lost"));
            }
        }
        Ok(())
    }

    /// The bodies of the youngest promises, which are nearest to what was not synced.
    async fn check_bodies(
        &self,
        address: SocketAddr,
        stored: &BTreeMap<String, Stored>,
        faults: &mut Faults,
    ) -> Result<()> {
        let mut connection = Connection::open(address).await?;
        let target = connection::Target::new(address, Some(KEY))?;
        let youngest = self.events.iter().rev().filter(|event| stored.contains_key(**event));
        for event in youngest.take(MAX_BODIES) {
            let target = target.at(Method::GET, &format!("/v1/events/{event}/payload"))?;
            let answer = connection.send(target.request(Bytes::new())).await?;
            let expected = self.digest_of(event);
            if answer.status != StatusCode::OK || Some(digest(&answer.body)) != expected {
                faults.note(format!("the body of {event} is not what was sent"));
            }
        }
        Ok(())
    }

    /// Everything that is stored has been taken, then or now, and was what was sent.
    fn check_arrivals(
        &self,
        stored: &BTreeMap<String, Stored>,
        arrivals: &[Arrival],
        findings: &mut Findings,
    ) {
        let faults = &mut findings.faults;
        let mut again: BTreeSet<(&str, Target)> = BTreeSet::new();
        for arrival in arrivals {
            let event = &*arrival.event;
            if let Some(forged) = arrival.forged {
                faults.note(format!("{event} arrived, and {forged}"));
            }
            if !stored.contains_key(event) {
                faults.note(format!("{event} arrived and is not stored"));
            }
            if Some(arrival.digest) != self.digest_of(event) {
                faults.note(format!("{event} arrived with another body"));
            }
            if arrival.taken && !again.insert((event, arrival.target)) {
                let target = arrival.target.name();
                faults.note(format!("{event} was taken twice at {target} after one start"));
            }
        }
        for (event, Stored { kind, .. }) in stored {
            for target in targets_of(kind) {
                let then = self.recording.taken.contains(&(event.clone(), target));
                if !then && !again.contains(&(&**event, target)) {
                    faults.note(format!("{event} never arrived at {}", target.name()));
                }
            }
        }
        for target in Target::ALL {
            let repeated = again.intersection(&self.carried).filter(|place| place.1 == target);
            let (repeated, most) = (repeated.count(), target.max_in_flight());
            findings.repeated += repeated;
            if repeated > most {
                let name = target.name();
                faults.note(format!("{repeated} arrived again at {name}, and at most {most} may"));
            }
        }
        self.check_order(arrivals, faults);
    }

    /// In a line nothing arrives once something behind it has, be that before the loss or after. One
    /// node gives ids in the order in which it accepts.
    fn check_order(&self, arrivals: &[Arrival], faults: &mut Faults) {
        let mut last: HashMap<Line, &str> = HashMap::new();
        let pushed = self.pushed.iter().map(|(event, target)| (*event, *target));
        let arrived = arrivals.iter().map(|arrival| (&*arrival.event, arrival.target));
        let events = pushed.map(|place| (place, true)).chain(arrived.map(|place| (place, false)));
        for ((event, target), before) in events {
            let Some(line) = self.line_of(event, target) else { continue };
            let head = last.entry(line).or_insert(event);
            if event < *head && !before {
                faults.note(format!("{event} arrived at {} after {head}", target.name()));
            }
            *head = event.max(head);
        }
    }

    fn line_of(&self, event: &str, target: Target) -> Option<Line> {
        let number = usize::try_from(*self.numbers.get(event)?).ok()?;
        match target {
            Target::Every | Target::Retrying => None,
            Target::Fifo => Some(Line::All),
            Target::ByKey => self.recording.books.sent.get(number)?.key.map(Line::Key),
        }
    }

    fn digest_of(&self, event: &str) -> Option<[u8; 32]> {
        let number = usize::try_from(*self.numbers.get(event)?).ok()?;
        Some(self.recording.books.sent.get(number)?.digest)
    }
}

/// Nothing was given up on the way.
async fn check_ends(address: SocketAddr, faults: &mut Faults) -> Result<()> {
    for delivery in list(address, "/v1/deliveries").await? {
        if delivery["state"] != "delivered" {
            faults.note(format!("a delivery did not end well: {delivery}"));
        }
    }
    Ok(())
}

fn check_soundness(database: &Path, faults: &mut Faults) -> Result<()> {
    let database = Database::open_with_flags(database, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    let found: String = database.query_row("PRAGMA integrity_check", (), |row| row.get(0))?;
    if found != "ok" {
        faults.note(format!("the database is damaged: {found}"));
    }
    Ok(())
}

/// Where events of this type go, in order.
fn targets_of(kind: &str) -> Vec<Target> {
    let topics = [Topic::Plain, Topic::Line, Topic::Keyed];
    let topic = topics.into_iter().find(|topic| topic.kind() == kind);
    let mut targets: Vec<Target> = topic.into_iter().flat_map(Topic::targets).collect();
    targets.sort_unstable();
    targets
}

/// A whole list of the API.
async fn list(address: SocketAddr, path: &str) -> Result<Vec<Value>> {
    let mut all = Vec::new();
    let mut next = format!("{path}?limit=250");
    for _ in 0..MAX_PAGES {
        let mut page = node::get(address, &next).await?;
        let Value::Array(rows) = page["data"].take() else {
            anyhow::bail!("{path} answered with no list");
        };
        all.extend(rows);
        let Some(cursor) = page["next_cursor"].as_str() else { return Ok(all) };
        next = format!("{path}?limit=250&cursor={cursor}");
    }
    anyhow::bail!("{path} has no end")
}

fn text<'a>(object: &'a Value, field: &str) -> Result<&'a str> {
    object[field].as_str().with_context(|| format!("no {field} in {object}"))
}

#[cfg(test)]
mod tests;
