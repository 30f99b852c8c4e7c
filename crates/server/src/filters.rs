//! `/v1/filters/preview`: tries a filter against an event before an endpoint relies on it.

use std::sync::Arc;

use axum::extract::State;
use bytes::Bytes;
use http::StatusCode;
use postrider_core::{EventId, SourceId};
use postrider_engine::filter::{Facts, Filter, Subject};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::App;
use crate::answer::{Answer, json};
use crate::auth::Caller;
use crate::extract::Json;
use crate::new_event::{self, JSON};
use crate::problem::{OrMissing as _, Problem};

/// A stored event by its id, or one that is given.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Preview {
    filter: String,
    event_id: Option<EventId>,
    event: Option<Given>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Given {
    r#type: String,
    #[serde(default)]
    payload: Option<Box<RawValue>>,
    #[serde(default)]
    metadata: Option<Box<RawValue>>,
    #[serde(default)]
    headers: std::collections::BTreeMap<String, String>,
    source: Option<SourceId>,
}

#[derive(Serialize)]
struct Tried {
    /// None where the filter could not be evaluated.
    passes: Option<bool>,
    error: Option<String>,
}

pub(crate) async fn preview(
    State(app): State<Arc<App>>,
    caller: Caller,
    Json(preview): Json<Preview>,
) -> Answer {
    let filter = Filter::compile(&preview.filter)
        .map_err(|invalid| Problem::invalid("filter", invalid.to_string()))?;
    let tried = match (preview.event_id, preview.event) {
        (Some(id), None) => {
            let stored = app.engine.store().event(caller.tenant, id).await?;
            let event = stored.or_missing("event")?;
            try_on(&filter, postrider_engine::facts(&event))
        }
        (None, Some(given)) => {
            new_event::check_kind(&given.r#type)?;
            let metadata = given.metadata.as_deref().map(new_event::check_metadata).transpose()?;
            let headers: Vec<(String, Bytes)> = given
                .headers
                .into_iter()
                .map(|(name, value)| (name.to_ascii_lowercase(), Bytes::from(value)))
                .collect();
            let body = given.payload.as_deref().map_or("null", RawValue::get);
            try_on(
                &filter,
                Facts {
                    kind: &given.r#type,
                    headers: &headers,
                    metadata: metadata.as_deref(),
                    content_type: JSON,
                    body: body.as_bytes(),
                    source: given.source,
                },
            )
        }
        (None, None) | (Some(_), Some(_)) => {
            return Err(Problem::invalid("event", "give either event_id or event"));
        }
    };
    json(StatusCode::OK, &tried)
}

fn try_on(filter: &Filter, facts: Facts<'_>) -> Tried {
    match filter.passes(&Subject::new(facts)) {
        Ok(passes) => Tried { passes: Some(passes), error: None },
        Err(error) => Tried { passes: None, error: Some(error.to_string()) },
    }
}
