//! A subscription: which events go where, and how.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::id::{EndpointId, TenantId};
use crate::pattern::Pattern;
use crate::policy::{self, Preset};
use crate::signing::Scheme;
use crate::span;
use crate::time::Timestamp;

/// An endpoint as it is stored.
#[derive(Debug, Clone, PartialEq)]
pub struct Endpoint {
    pub id: EndpointId,
    pub tenant: TenantId,
    pub state: EndpointState,
    pub spec: Spec,
    /// Newest first. All that have not lapsed sign.
    pub secrets: Vec<StoredSecret>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndpointState {
    Active,
    /// An operator stopped it: it accepts and keeps, and does not send.
    Paused,
    /// It was stopped automatically; deliveries wait until it is enabled.
    Disabled,
    /// Gone from the API; what is unfinished is being cancelled, history stays until retention.
    Deleted,
}

impl EndpointState {
    pub const ALL: [Self; 4] = [Self::Active, Self::Paused, Self::Disabled, Self::Deleted];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Paused => "paused",
            Self::Disabled => "disabled",
            Self::Deleted => "deleted",
        }
    }
}

/// What a user says of an endpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Spec {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(flatten)]
    pub destination: Destination,
    pub event_types: Vec<Pattern>,
    pub policy: policy::Spec,
    pub ordering: Ordering,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_limit: Option<RateLimit>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_in_flight: Option<u32>,
    #[serde(default, with = "span::serde_option", skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    pub signing: Scheme,
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub metadata: serde_json::Map<String, serde_json::Value>,
}

/// Where an endpoint's deliveries go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Destination {
    Url(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ordering {
    #[default]
    None,
    /// The next event starts when the one before it has ended.
    Fifo,
    /// The same, among events that share an ordering key.
    FifoByKey,
}

impl Ordering {
    /// What an endpoint gets that says nothing: `edge` keeps order, the others do not.
    pub const fn default_for(preset: Option<Preset>) -> Self {
        match preset {
            Some(Preset::Edge) => Self::Fifo,
            None
            | Some(
                Preset::Standard | Preset::Inbox | Preset::Dispatch | Preset::Runs | Preset::Router,
            ) => Self::None,
        }
    }

    /// The line an event stands in: deliveries of one line go one after the other.
    pub fn line(self, ordering_key: Option<&str>) -> Option<&str> {
        match self {
            Self::None => None,
            Self::Fifo => Some(""),
            Self::FifoByKey => ordering_key,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateLimit {
    pub per_second: f64,
    #[serde(default = "one")]
    pub burst: u32,
}

fn one() -> u32 {
    1
}

/// A signing secret in its text form, and until when it signs.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredSecret {
    pub text: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
}

impl std::fmt::Debug for StoredSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoredSecret").field("expires_at", &self.expires_at).finish_non_exhaustive()
    }
}
