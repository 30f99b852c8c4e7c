//! Asking a gateway what it is doing.

use std::time::Duration;

use futures_util::future;
use postrider_client::{Error, Gateway, Method};
use postrider_engine::ports::{Clock as _, SystemClock};
use serde_json::Value;
use url::form_urlencoded::Serializer;

use super::snapshot::{self, Endpoint, Known, Node, Snapshot, Sort, list};
use crate::Failure;
use crate::resource::refused;

/// How long a look may take.
const DEADLINE: Duration = Duration::from_secs(5);

/// Names, nodes and errors change rarely: they are asked for at every so many looks.
const SELDOM: u64 = 5;

/// Pages of endpoints that are read for their names; as many as the counts are given for.
const MAX_PAGES: usize = 4;
const PAGE: &str = "250";

/// How many endpoints are asked for their last error: the worst ones.
const MAX_ASKED: usize = 16;

pub(super) struct Looker {
    gateway: Gateway,
    known: Known,
    nodes: Vec<Node>,
    looks: u64,
}

impl Looker {
    pub(super) fn new(gateway: Gateway) -> Self {
        Self { gateway, known: Known::default(), nodes: Vec::new(), looks: 0 }
    }

    pub(super) fn url(&self) -> &str {
        self.gateway.url()
    }

    pub(super) async fn look(&mut self) -> Result<Snapshot, Failure> {
        let url = self.gateway.url().to_owned();
        let looked = tokio::time::timeout(DEADLINE, self.ask()).await;
        let looked = looked.unwrap_or_else(|_| {
            let reason = format!("there was no whole answer within {DEADLINE:?}");
            Err(Error::Unreachable { gateway: url, reason })
        });
        looked.map_err(refused)
    }

    async fn ask(&mut self) -> Result<Snapshot, Error> {
        let get = |path| self.gateway.request(Method::GET, path, None);
        let (stats, history, each) = future::try_join3(
            get("/v1/stats"),
            get("/v1/stats/history?span=hour"),
            get("/v1/stats/history?span=hour&endpoint=each"),
        )
        .await?;
        let seldom = self.looks.is_multiple_of(SELDOM);
        if seldom {
            self.ask_names().await?;
            self.nodes = match self.gateway.request(Method::GET, "/v1/nodes", None).await {
                Ok(answer) => snapshot::nodes(&answer),
                // They are for admin keys only.
                Err(Error::Refused { status: 403, .. }) => Vec::new(),
                Err(error) => return Err(error),
            };
        }
        let now = SystemClock.now();
        let mut seen = Snapshot::read(now, &stats, &history, &each, &self.known);
        if seldom {
            seen.sort(Sort::Worst);
            self.ask_errors(&seen.endpoints).await?;
            seen = Snapshot::read(now, &stats, &history, &each, &self.known);
        }
        seen.nodes.clone_from(&self.nodes);
        // Whatever was not got through is asked for again at the next look.
        self.looks += 1;
        Ok(seen)
    }

    async fn ask_names(&mut self) -> Result<(), Error> {
        let mut cursor: Option<String> = None;
        let mut names = std::collections::HashMap::new();
        for _ in 0..MAX_PAGES {
            let path = page_of_endpoints(cursor.as_deref());
            let page = self.gateway.request(Method::GET, &path, None).await?;
            for endpoint in list(&page["data"]) {
                if let Some(id) = endpoint["id"].as_str() {
                    names.insert(id.to_owned(), name_of(endpoint, id));
                }
            }
            cursor = page["next_cursor"].as_str().map(str::to_owned);
            if cursor.is_none() {
                break;
            }
        }
        self.known.names = names;
        Ok(())
    }

    /// The last error of the first of `endpoints`, where there may be one.
    async fn ask_errors(&mut self, endpoints: &[Endpoint]) -> Result<(), Error> {
        let has_any = |endpoint: &&Endpoint| {
            let counts = &endpoint.counts;
            endpoint.failures + counts.retrying + counts.failed + counts.dead > 0
        };
        let asked = endpoints.iter().filter(has_any).take(MAX_ASKED);
        let asked = asked.map(|endpoint| last_error(&self.gateway, &endpoint.id));
        let errors = future::try_join_all(asked).await?;
        self.known.errors = errors.into_iter().flatten().collect();
        Ok(())
    }
}

fn page_of_endpoints(cursor: Option<&str>) -> String {
    let mut query = Serializer::new(String::new());
    query.append_pair("limit", PAGE);
    if let Some(cursor) = cursor {
        query.append_pair("cursor", cursor);
    }
    format!("/v1/endpoints?{}", query.finish())
}

/// Of the newest delivery of an endpoint that has one, with the endpoint's id.
async fn last_error(gateway: &Gateway, id: &str) -> Result<Option<(String, String)>, Error> {
    let path = {
        let mut query = Serializer::new(String::new());
        query.append_pair("endpoint", id);
        query.append_pair("state", "retrying,failed,dead").append_pair("limit", "1");
        format!("/v1/deliveries?{}", query.finish())
    };
    let found = gateway.request(Method::GET, &path, None).await?;
    let error = found["data"][0]["last_error"].as_str();
    Ok(error.map(|error| (id.to_owned(), error.to_owned())))
}

/// What it is called, or where it leads.
fn name_of(endpoint: &Value, id: &str) -> String {
    let text = |field: &str| endpoint[field].as_str().filter(|text| !text.is_empty());
    text("name").or_else(|| text("url")).unwrap_or(id).to_owned()
}
