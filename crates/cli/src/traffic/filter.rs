//! Which deliveries are meant: the filters that lists of deliveries and of dead letters share.

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

/// The same as a body has it.
pub(crate) fn as_body(parameters: Vec<(&'static str, String)>) -> Value {
    let fields = parameters.into_iter().map(|(name, value)| (name.to_owned(), value.into()));
    Value::Object(fields.collect::<Map<_, _>>())
}
