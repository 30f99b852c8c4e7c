//! A subscription: which events go where, and how.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::id::{EndpointId, HubId, SourceId, TenantId};
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
    pub tls: Option<Tls>,
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
    /// Only events that came in through one of these; empty is any event at all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<SourceId>,
    /// An expression that an event has to meet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
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
    /// How an event is written for the receiver; none is its bytes as they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<Format>,
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub metadata: serde_json::Map<String, serde_json::Value>,
}

/// Where an endpoint's deliveries go.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Destination {
    Url(String),
    /// A program on the gateway's own machine, and its arguments.
    Command(Vec<String>),
    /// An agent that dials out to the gateway and forwards what it is given.
    Hub(HubId),
    /// Nowhere: workers come and lease.
    #[serde(with = "always")]
    Pull,
    /// A function of the program that the engine is part of, by the name it was registered under.
    Handler(String),
}

/// A mark that is there or not: written as `true`, and read as nothing else.
mod always {
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(super) fn serialize<S: Serializer>(serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bool(true)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<(), D::Error> {
        if bool::deserialize(deserializer)? {
            Ok(())
        } else {
            Err(de::Error::custom("can only be true"))
        }
    }
}

/// Without the path and the query: those of a chat's URL are a secret.
impl std::fmt::Debug for Destination {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let url = match self {
            Self::Url(url) => url,
            Self::Command(words) => return f.debug_tuple("Command").field(words).finish(),
            Self::Hub(id) => return f.debug_tuple("Hub").field(id).finish(),
            Self::Pull => return f.write_str("Pull"),
            Self::Handler(name) => return f.debug_tuple("Handler").field(name).finish(),
        };
        let host = url.find("://").map_or(0, |at| at + 3);
        let end = url[host..].find(['/', '?', '#']).map_or(url.len(), |at| host + at);
        write!(f, "Url({}…)", &url[..end])
    }
}

/// A message for people in place of an event's bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Format {
    /// `{"text"}`, as Slack, Mattermost, Rocket.Chat and Discord's `/slack` take it.
    Slack,
    /// `{"chat_id","text"}`, as `sendMessage` of a Telegram bot takes it.
    Telegram { chat_id: String },
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

/// What an endpoint needs of TLS beyond the rest, as PEM. Kept with the secrets, because one of them
/// is a private key.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tls {
    /// The certificate the gateway shows, and those between it and its authority.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_cert: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_key: Option<String>,
    /// Authorities trusted beside the public ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<String>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_of_a_destination_holds_no_secret() {
        for (url, expected) in [
            ("https://api.telegram.org/bot1:secret/sendMessage", "Url(https://api.telegram.org…)"),
            ("https://example.com?token=secret", "Url(https://example.com…)"),
            ("https://example.com", "Url(https://example.com…)"),
            ("/secret", "Url(…)"),
        ] {
            assert_eq!(format!("{:?}", Destination::Url(url.to_owned())), expected);
        }
    }

    #[test]
    fn destinations_are_read_as_they_are_written() {
        let hub = HubId::from_i64(7);
        for (json, destination) in [
            (r#"{"url":"https://example.com"}"#, Destination::Url("https://example.com".into())),
            (r#"{"command":["/bin/true"]}"#, Destination::Command(vec!["/bin/true".into()])),
            (r#"{"hub":"hub_0000000000007"}"#, Destination::Hub(hub)),
            (r#"{"pull":true}"#, Destination::Pull),
            (r#"{"handler":"mail"}"#, Destination::Handler("mail".into())),
        ] {
            assert_eq!(serde_json::from_str::<Destination>(json).expect(json), destination);
            assert_eq!(serde_json::to_string(&destination).expect("writable"), json);
        }
        assert!(serde_json::from_str::<Destination>(r#"{"pull":false}"#).is_err());
    }

    #[test]
    fn formats_are_read_as_they_are_written() {
        for (json, format) in [
            (r#""slack""#, Format::Slack),
            (r#"{"telegram":{"chat_id":"-1"}}"#, Format::Telegram { chat_id: "-1".to_owned() }),
        ] {
            assert_eq!(serde_json::from_str::<Format>(json).expect(json), format);
            assert_eq!(serde_json::to_string(&format).expect("writable"), json);
        }
        for json in [
            r#""teams""#,
            r#""telegram""#,
            r#"{"telegram":{}}"#,
            "7",
            r#"{"telegram":{"chat_id":"-1","token":"x"}}"#,
        ] {
            assert!(serde_json::from_str::<Format>(json).is_err(), "{json}");
        }
    }
}
