//! Which of the newest events an endpoint would get, before it is saved: by type, by source, by filter.

use askama::Template;
use http::Method;
use postrider_core::pattern::Pattern;
use postrider_core::{EventId, Timestamp};
use serde::Deserialize;
use serde_json::json;

use super::typed::Typed;
use crate::dashboard::api::{Api, List, Refused};
use crate::dashboard::fields::Form;
use crate::dashboard::html::{Shown, show};
use crate::dashboard::words::{self, Moment, moment};

/// How many events are tried, the newest.
const TRIED: usize = 20;
const MAX_TYPE_CHARS: usize = 120;
/// What a filter says of an event can quote it.
const MAX_ERROR_CHARS: usize = 300;

#[derive(Template)]
#[template(path = "endpoint_tries.html")]
struct Part {
    tries: Vec<Try>,
    goes: usize,
    /// Why the filter is none.
    refused: Option<String>,
}

struct Try {
    id: EventId,
    kind: String,
    received: Moment,
    verdict: Verdict,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Verdict {
    Goes,
    OtherType,
    OtherSource,
    FilteredOut,
    /// The filter cannot be evaluated on it.
    Unclear(String),
}

impl Verdict {
    fn goes(&self) -> bool {
        *self == Self::Goes
    }

    fn words(&self) -> String {
        match self {
            Self::Goes => "goes here".into(),
            Self::OtherType => "stays out: no pattern of types fits".into(),
            Self::OtherSource => "stays out: it came in by another way".into(),
            Self::FilteredOut => "stays out: the filter says no".into(),
            Self::Unclear(error) => format!("stays out: the filter does not fit it: {error}"),
        }
    }
}

#[derive(Deserialize)]
struct Event {
    id: EventId,
    r#type: String,
    received_at: Timestamp,
    source: Option<String>,
}

/// The part of the form that shows them.
pub(super) async fn part(form: Form) -> Shown {
    let typed = Typed::read(&form);
    let api = &form.visitor.api;
    let now = form.visitor.now;
    let events: List<Event> = api.get(&format!("/v1/events?limit={TRIED}")).await?;
    let patterns = typed.patterns();
    let mut tries = Vec::new();
    let mut refused = None;
    for event in events.data {
        let verdict = match judge(api, &typed, &patterns, &event).await {
            Ok(verdict) => verdict,
            // The filter is none, whatever the event.
            Err(error) if error.of_field("filter").is_some() => {
                refused = error.of_field("filter").map(str::to_owned);
                break;
            }
            Err(error) => return Err(error.into()),
        };
        let received = moment(event.received_at, now);
        tries.push(Try {
            id: event.id,
            kind: words::line(&event.r#type, MAX_TYPE_CHARS),
            received,
            verdict,
        });
    }
    let goes = tries.iter().filter(|tried| tried.verdict.goes()).count();
    show(&Part { tries, goes, refused })
}

async fn judge(
    api: &Api,
    typed: &Typed,
    patterns: &[Pattern],
    event: &Event,
) -> Result<Verdict, Refused> {
    #[derive(Deserialize)]
    struct Tried {
        passes: Option<bool>,
        error: Option<String>,
    }

    let passes = if typed.filter.is_empty() {
        Tried { passes: Some(true), error: None }
    } else {
        let body = json!({ "filter": typed.filter, "event_id": event.id });
        match api.send(Method::POST, "/v1/filters/preview", &body).await {
            // It went while it was looked at.
            Err(refused) if refused.status == http::StatusCode::NOT_FOUND => {
                Tried { passes: None, error: Some("the event is gone".into()) }
            }
            tried => tried?,
        }
    };
    let by_source = typed.sources.is_empty()
        || event.source.as_deref().is_some_and(|source| typed.has_source(source));
    Ok(if !patterns.iter().any(|pattern| pattern.matches(&event.r#type)) {
        Verdict::OtherType
    } else if !by_source {
        Verdict::OtherSource
    } else {
        match passes {
            Tried { passes: Some(true), .. } => Verdict::Goes,
            Tried { passes: Some(false), .. } => Verdict::FilteredOut,
            Tried { passes: None, error } => {
                Verdict::Unclear(words::line(error.unwrap_or_default(), MAX_ERROR_CHARS))
            }
        }
    })
}
