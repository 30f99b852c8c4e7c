//! How far a replay of dead letters has come.

use askama::Template;
use axum::Router;
use axum::extract::Path;
use axum::routing::get;
use postrider_core::{Class, EndpointId, EventId, JobId, Reason, State, Timestamp};
use serde::Deserialize;

use super::Dashboard;
use super::chrome::{Chrome, Section};
use super::deliveries::known;
use super::deliveries::row::Endpoints;
use super::html::{Shown, show};
use super::session::Visitor;
use super::words;

pub(crate) fn routes() -> Router<Dashboard> {
    Router::new().route("/jobs/{id}", get(page))
}

#[derive(Debug, Deserialize)]
struct Job {
    id: JobId,
    state: JobState,
    matched: u64,
    replayed: u64,
    skipped: u64,
    rate_per_second: Option<f64>,
    filter: Filter,
    created_at: Timestamp,
    updated_at: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum JobState {
    Running,
    Finished,
}

#[derive(Debug, Deserialize)]
struct Filter {
    ids: Option<Vec<String>>,
    states: Vec<State>,
    endpoint: Option<EndpointId>,
    event: Option<EventId>,
    error_class: Option<Class>,
    reason: Option<Reason>,
    since: Option<Timestamp>,
    until: Option<Timestamp>,
}

#[derive(Template)]
#[template(path = "job.html")]
struct Page {
    chrome: Chrome,
    now: Timestamp,
    job: Job,
    /// What it was asked to replay.
    narrowed: Vec<(&'static str, String)>,
}

impl Page {
    fn is_running(&self) -> bool {
        match self.job.state {
            JobState::Running => true,
            JobState::Finished => false,
        }
    }

    /// What has been looked at; not more than there is to do, though more may have matched than were
    /// counted.
    fn done(&self) -> u64 {
        let done = self.job.replayed + self.job.skipped;
        if self.is_running() { done.min(self.most()) } else { self.most() }
    }

    /// A bar of nothing has no end.
    fn most(&self) -> u64 {
        self.job.matched.max(1)
    }

    fn percent(&self) -> u64 {
        self.done() * 100 / self.most()
    }

    fn so_far(&self) -> String {
        let Job { matched, replayed, skipped, .. } = self.job;
        let matched = words::plural(matched, "dead letter", "dead letters");
        let sent = format!("{} of {matched} sent again", words::count(replayed));
        match skipped {
            0 => sent,
            skipped => {
                let skipped = words::count(skipped);
                format!("{sent}, {skipped} left alone because they had changed meanwhile")
            }
        }
    }
}

async fn page(visitor: Visitor, Path(id): Path<String>) -> Shown {
    let id: JobId = known(&id)?;
    let job: Job = visitor.api.get(&format!("/v1/jobs/{id}")).await?;
    let mut endpoints = Endpoints::default();
    endpoints.learn(&visitor.api, job.filter.endpoint.into_iter().collect()).await?;
    let narrowed = job.filter.words(&endpoints);
    show(&Page {
        chrome: Chrome::new(&visitor, Section::DeadLetters),
        now: visitor.now,
        job,
        narrowed,
    })
}

impl Filter {
    fn words(&self, endpoints: &Endpoints) -> Vec<(&'static str, String)> {
        let states = self.states.iter().map(|state| state.as_str());
        let states = states.collect::<Vec<_>>().join(" or ");
        let chosen = self.ids.as_ref().map(|ids| ids.len() as u64);
        let said = [
            ("chosen", chosen.map(|ids| words::plural(ids, "dead letter", "dead letters"))),
            ("state", Some(states).filter(|states| !states.is_empty())),
            ("endpoint", self.endpoint.map(|id| endpoints.name(id))),
            ("event", self.event.map(|id| id.to_string())),
            ("class", self.error_class.map(|class| class.as_str().replace('_', " "))),
            ("reason", self.reason.map(|reason| reason.as_str().to_owned())),
            ("since", self.since.map(words::exact)),
            ("until", self.until.map(words::exact)),
        ];
        said.into_iter().filter_map(|(name, text)| Some((name, text?))).collect()
    }
}
