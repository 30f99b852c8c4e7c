//! Which deliveries are meant: the filters that lists of deliveries and of dead letters share.

use std::fmt::Display;
use std::str::FromStr;

use postrider_client::Gateway;
use postrider_core::EventId;
use serde_json::{Map, Value};

use super::{Moment, now};
use crate::Failure;
use crate::resource::ENDPOINT;

#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct FilterArgs {
    /// Only those to this endpoint: its id, or its name
    #[arg(long, value_name = "ENDPOINT")]
    endpoint: Option<String>,

    /// Only those of this event
    #[arg(long, value_name = "ID")]
    event: Option<EventId>,

    /// Only those of events of this type, such as `order.created`
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,

    /// Only those whose last failure was of this class
    #[arg(long, value_name = "CLASS", value_parser = ["final", "retryable", "rate_limited"])]
    error_class: Option<String>,

    /// Only those that ended for this reason
    #[arg(long, value_name = "REASON", value_parser = ["rejected", "exhausted", "expired"])]
    reason: Option<String>,

    /// Only those made since then: a time, or how long ago, such as `2h`
    #[arg(long, value_name = "TIME")]
    since: Option<Moment>,

    /// Only those made before then: a time, or how long ago
    #[arg(long, value_name = "TIME")]
    until: Option<Moment>,
}

impl FilterArgs {
    /// The same from what `given` says under the names that the API has for them.
    pub(crate) fn read<'t>(given: impl Fn(&str) -> Option<&'t str>) -> Result<Self, String> {
        let text = |name: &str| given(name).map(str::to_owned);
        Ok(Self {
            endpoint: text("endpoint"),
            event: parsed("event", given("event"))?,
            kind: text("type"),
            error_class: text("error_class"),
            reason: text("reason"),
            since: parsed("since", given("since"))?,
            until: parsed("until", given("until"))?,
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        let Self { endpoint, event, kind, error_class, reason, since, until } = self;
        endpoint.is_none()
            && event.is_none()
            && kind.is_none()
            && error_class.is_none()
            && reason.is_none()
            && since.is_none()
            && until.is_none()
    }

    /// The parameters of the API. A name is looked up.
    pub(crate) async fn parameters(
        &self,
        gateway: &Gateway,
        state: Option<String>,
    ) -> Result<Vec<(&'static str, String)>, Failure> {
        let Self { endpoint, event, kind, error_class, reason, since, until } = self;
        let endpoint = match endpoint {
            Some(endpoint) => Some(ENDPOINT.id_of(gateway, endpoint).await?),
            None => None,
        };
        let now = now();
        let time = |moment: &Option<Moment>| moment.map(|moment| moment.ago(now).to_string());
        let all = [
            ("state", state),
            ("endpoint", endpoint),
            ("event", event.map(|id| id.to_string())),
            ("type", kind.clone()),
            ("error_class", error_class.clone()),
            ("reason", reason.clone()),
            ("since", time(since)),
            ("until", time(until)),
        ];
        Ok(all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect())
    }
}

fn parsed<T: FromStr<Err: Display>>(name: &str, text: Option<&str>) -> Result<Option<T>, String> {
    text.map(|text| text.parse().map_err(|error| format!("{name}: {error}"))).transpose()
}

/// The same as a body has it.
pub(crate) fn as_body(parameters: Vec<(&'static str, String)>) -> Value {
    let fields = parameters.into_iter().map(|(name, value)| (name.to_owned(), value.into()));
    Value::Object(fields.collect::<Map<_, _>>())
}
