//! An inbound URL: how what is posted there is verified, and what is made of it.

use serde::{Deserialize, Serialize};

use crate::id::{SourceId, TenantId};
use crate::time::Timestamp;
use crate::verification::Scheme;

/// A source as it is stored.
#[derive(Debug, Clone, PartialEq)]
pub struct Source {
    pub id: SourceId,
    pub tenant: TenantId,
    pub spec: Spec,
    pub secrets: Secrets,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// What a user says of a source.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Spec {
    pub name: String,
    pub verify: Scheme,
    pub on_invalid: OnInvalid,
    pub type_from: TypeFrom,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dedup_from: Option<Place>,
    pub keep_headers: KeepHeaders,
}

/// What to do with a request whose signature does not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnInvalid {
    /// It is answered with 401 and not stored.
    #[default]
    Reject,
    /// It is stored, marked as not verified.
    Mark,
}

/// Where in a request something is found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    Header(String),
    /// RFC 6901, into a JSON body.
    JsonPointer(String),
}

/// Where the type of an event comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TypeFrom {
    Header(String),
    JsonPointer(String),
    Fixed(String),
}

/// Which headers are kept with an event and passed on.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeepHeaders {
    /// All but those that belong to the connection or open doors: see the server's list.
    #[default]
    All,
    /// These, in lower case.
    Named(Vec<String>),
}

/// What must not be seen: whoever has the token can post, whoever has a secret can sign.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secrets {
    /// The last part of the URL.
    pub token: String,
    /// Newest first; any of them verifies.
    pub signing: Vec<String>,
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Secrets").field("signing", &self.signing.len()).finish_non_exhaustive()
    }
}
