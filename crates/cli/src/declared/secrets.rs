//! The secrets that the API takes and does not show again: whether they have changed is known by a
//! digest of what was declared the last time.

use postrider_store::declarations::Applied;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use crate::config::declared::{Item, Kind};

/// Keeps the digest apart from every other hash of the same secret, such as that of a hub's token.
const DOMAIN: &[u8] = b"postrider declared secrets 1\0";

/// What of an item can only be compared by a digest.
pub(super) fn unseen(item: &Item) -> Vec<&str> {
    match item.kind {
        Kind::Tenant => Vec::new(),
        Kind::Hub => item.body.get("token").and_then(Value::as_str).into_iter().collect(),
        Kind::Source => item.body.get("verify").map(of_source).unwrap_or_default(),
        // Its signing secret can be read again, and is compared as it is.
        Kind::Endpoint => {
            let key = item.body.get("tls").and_then(|tls| tls.get("client_key"));
            key.and_then(Value::as_str).into_iter().collect()
        }
    }
}

fn of_source(verify: &Value) -> Vec<&str> {
    let one = verify.get("secret").and_then(Value::as_str);
    let several = verify.get("secrets").and_then(Value::as_array);
    let several = several.into_iter().flatten().filter_map(Value::as_str);
    one.into_iter().chain(several).collect()
}

pub(super) fn digest(item: &Item) -> Applied {
    let mut hash = Sha256::new_with_prefix(DOMAIN);
    for secret in unseen(item) {
        // The length keeps the end of one apart from the beginning of the next.
        hash.update((secret.len() as u64).to_le_bytes());
        hash.update(secret.as_bytes());
    }
    Applied(hash.finalize().into())
}

/// The field that holds them, which is said whole when one of them changes.
pub(super) fn field(kind: Kind) -> &'static str {
    match kind {
        Kind::Tenant => "",
        Kind::Hub => "token",
        Kind::Source => "verify",
        Kind::Endpoint => "tls",
    }
}

/// What a plan says has changed.
pub(super) fn named(kind: Kind) -> &'static str {
    match kind {
        Kind::Tenant => "",
        Kind::Hub => "token",
        Kind::Source => "secret",
        Kind::Endpoint => "tls.client_key",
    }
}

/// The signing secret of an endpoint, if the file says which.
pub(super) fn signing(body: &Map<String, Value>) -> Option<&str> {
    body.get("secret").and_then(Value::as_str)
}
