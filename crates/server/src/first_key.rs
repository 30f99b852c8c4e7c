//! The way in: the admin key that is given at a start, or made at the first one. Several nodes may
//! start at once on one store.

use std::time::Duration;

use postrider_core::{KeyId, Timestamp};
use postrider_store::audit::{Actor, Audit};
use postrider_store::registry::{KeyRecord, Role};
use postrider_store::{Error, Registry};
use sha2::{Digest as _, Sha256};

use crate::keys::{PREFIX, hash, is_live_admin, new_key};

/// A key given by an operator has at least this much after its prefix.
const MIN_KEY_CHARS: usize = 32;
const MAX_KEY_CHARS: usize = 512;

/// How often a node tries to be the one that makes the first key.
const MAX_TRIES: u8 = 10;
/// For how long a node lets others take their keys back before it does so itself.
const MAX_LOOKS: u32 = 20;
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);

/// What is left to chance in the id of a key, beside the millisecond: the engine, which sees to it
/// that no two are the same, does not run yet.
const CHANCE_BITS: u32 = 22;

/// Why there is no admin key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error(
        "an admin key is `{PREFIX}` and {MIN_KEY_CHARS} to {MAX_KEY_CHARS} letters, digits, `-` or `_`"
    )]
    Malformed,
    #[error("the admin key that was given is already the key of a tenant; give another")]
    IsATenants,
    #[error(transparent)]
    Store(#[from] Error),
}

/// Sees to it that somebody can get in: stores the key that was `given`, or, where no admin key
/// opens anything, makes one of the `random` bytes and returns it. That is the only time it can be
/// read. Of several nodes that do this at once, one makes a key, and the others none.
pub async fn ensure_admin_key(
    store: &dyn Registry,
    now: Timestamp,
    random: [u8; 32],
    given: Option<&str>,
) -> Result<Option<String>, KeyError> {
    match given {
        Some(given) => {
            check(given)?;
            put_given(store, now, random, given).await?;
            Ok(None)
        }
        None => Ok(make_first(store, now, random).await?),
    }
}

async fn put_given(
    store: &dyn Registry,
    now: Timestamp,
    random: [u8; 32],
    given: &str,
) -> Result<(), KeyError> {
    let known = store.keys().await?;
    if let Some(known) = is_known(&known, given, now) {
        return known;
    }
    let record = new_admin(&known, now, &random, given, "given at start");
    let audit = audit(&record, "key.create", Some(&record.name));
    match store.put_key(record, Some(audit)).await {
        // Another node was given the same key, and was faster.
        Err(error @ Error::Exists(_)) => {
            is_known(&store.keys().await?, given, now).unwrap_or(Err(error.into()))
        }
        put => Ok(put?),
    }
}

/// Whether a key that is given is there, and is what it should be.
fn is_known(known: &[KeyRecord], given: &str, now: Timestamp) -> Option<Result<(), KeyError>> {
    let sha256 = hash(given);
    let same = known.iter().find(|record| record.sha256 == sha256)?;
    Some(match same.role {
        Role::Admin => {
            if !is_live_admin(same, now) {
                let key = same.id;
                tracing::warn!(%key, "the admin key that was given is revoked or has expired");
            }
            Ok(())
        }
        Role::Tenant(_) => Err(KeyError::IsATenants),
    })
}

/// A node that has stored its key looks whether it is the only one, and takes the key back if it is
/// not. Of two nodes the one that stores later sees the key of the other, so no two keep theirs.
async fn make_first(
    store: &dyn Registry,
    now: Timestamp,
    random: [u8; 32],
) -> Result<Option<String>, Error> {
    for number in 0..MAX_TRIES {
        let known = store.keys().await?;
        if known.iter().any(|record| is_live_admin(record, now)) {
            return Ok(None);
        }
        // One that was taken back is not used again.
        let random = if number == 0 { random } else { digest(&random, &[number]) };
        let key = new_key(random);
        let record = new_admin(&known, now, &random, &key, "made at first start");
        let created = audit(&record, "key.create", Some(&record.name));
        store.put_key(record.clone(), Some(created)).await?;
        if is_the_only_one(store, &record, now).await? {
            return Ok(Some(key));
        }
        let revoked = audit(&record, "key.revoke", None);
        store.put_key(KeyRecord { revoked_at: Some(now), ..record }, Some(revoked)).await?;
    }
    let many = "other nodes are making the first admin key, and none has come to an end";
    Err(Error::Unavailable(many.to_owned()))
}

/// Whether no other admin key opens anything. If several nodes find that others do, the one with the
/// lowest id waits for the others to take theirs back, or all would.
async fn is_the_only_one(
    store: &dyn Registry,
    own: &KeyRecord,
    now: Timestamp,
) -> Result<bool, Error> {
    for _ in 0..MAX_LOOKS {
        let known = store.keys().await?;
        let mut others = known
            .iter()
            .filter(|record| record.sha256 != own.sha256 && is_live_admin(record, now))
            .peekable();
        if others.peek().is_none() {
            return Ok(true);
        }
        if others.any(|other| other.id <= own.id) {
            return Ok(false);
        }
        tokio::time::sleep(BETWEEN_LOOKS).await;
    }
    Ok(false)
}

fn new_admin(
    known: &[KeyRecord],
    now: Timestamp,
    random: &[u8; 32],
    key: &str,
    name: &str,
) -> KeyRecord {
    let last = known.iter().map(|record| record.id.as_i64()).max().unwrap_or(0);
    KeyRecord {
        id: KeyId::from_i64((KeyId::floor(now).as_i64() | chance(random)).max(last + 1)),
        name: name.to_owned(),
        sha256: hash(key),
        role: Role::Admin,
        created_at: now,
        expires_at: None,
        revoked_at: None,
        last_used_at: None,
    }
}

/// Nothing of the random bytes themselves: the key is made of them, and its id is no secret.
fn chance(random: &[u8; 32]) -> i64 {
    let [a, b, c, ..] = digest(random, b"id");
    i64::from(u32::from_be_bytes([0, a, b, c]) & ((1 << CHANCE_BITS) - 1))
}

fn digest(random: &[u8; 32], purpose: &[u8]) -> [u8; 32] {
    Sha256::new().chain_update(random).chain_update(purpose).finalize().into()
}

fn audit(record: &KeyRecord, action: &'static str, name: Option<&str>) -> Audit {
    let detail = name.map(|name| serde_json::json!({ "name": name, "role": "admin" }).to_string());
    Audit {
        at: record.created_at,
        tenant: None,
        actor: Actor::Gateway,
        action,
        subject: record.id.to_string(),
        detail,
    }
}

fn check(key: &str) -> Result<(), KeyError> {
    let secret = key.strip_prefix(PREFIX).ok_or(KeyError::Malformed)?;
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if (MIN_KEY_CHARS..=MAX_KEY_CHARS).contains(&secret.len()) && secret.bytes().all(allowed) {
        Ok(())
    } else {
        Err(KeyError::Malformed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_given_key_has_the_prefix_and_is_long_enough() {
        let long_enough = "a".repeat(MIN_KEY_CHARS);
        assert!(check(&format!("pr_{long_enough}")).is_ok());
        let short = format!("pr_{}", &long_enough[1..]);
        let spaced = format!("pr_{long_enough} ");
        let huge = format!("pr_{}", "a".repeat(MAX_KEY_CHARS + 1));
        for key in ["", "pr_", &long_enough, &short, &spaced, &huge] {
            assert!(matches!(check(key), Err(KeyError::Malformed)), "{key}");
        }
    }

    #[test]
    fn nodes_that_make_a_key_in_the_same_millisecond_give_it_another_id() {
        let now = Timestamp::from_millis(1_767_225_600_000);
        let record = |random: u8| new_admin(&[], now, &[random; 32], "pr_a", "a");
        assert_ne!(record(1).id, record(2).id);
        for random in 0..=255 {
            let id = record(random).id;
            assert!(KeyId::floor(now) <= id, "{id}");
            assert!(id < KeyId::floor(now.plus(Duration::from_millis(1))), "{id}");
        }
        let known = record(1);
        let next = new_admin(std::slice::from_ref(&known), now, &[1; 32], "pr_b", "b");
        assert!(next.id > known.id);
    }
}
