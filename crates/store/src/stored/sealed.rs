//! Secrets as they are kept: sealed, each for the row that it is in.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::words::to_json;
use crate::error::Error;
use crate::sealing::Keyring;

/// What a sealed value belongs to: one that was moved to another row does not open.
pub(crate) fn context(kind: &str, id: i64) -> Vec<u8> {
    format!("{kind}:{id}").into_bytes()
}

pub(crate) fn seal(
    keyring: &Keyring,
    kind: &str,
    id: i64,
    secrets: &impl Serialize,
) -> Result<Vec<u8>, Error> {
    Ok(keyring.seal_in(&context(kind, id), to_json(secrets)?.as_bytes()))
}

pub(crate) fn unseal<T: DeserializeOwned>(
    keyring: &Keyring,
    kind: &str,
    id: i64,
    sealed: &[u8],
) -> Result<T, Error> {
    let what = || format!("the secrets of {kind} {id}");
    let plain = keyring.open(&context(kind, id), sealed).map_err(|error| error.of(what()))?;
    serde_json::from_slice(&plain).map_err(|_| Error::Damaged(format!("{} cannot be read", what())))
}

/// A digest of something secret, sealed like one.
pub(crate) fn seal_digest(keyring: &Keyring, kind: &str, id: i64, digest: &[u8; 32]) -> Vec<u8> {
    keyring.seal_in(&context(kind, id), digest)
}

pub(crate) fn unseal_digest(
    keyring: &Keyring,
    kind: &str,
    id: i64,
    sealed: &[u8],
) -> Result<[u8; 32], Error> {
    let what = || format!("the digest of {kind} {id}");
    let plain = keyring.open(&context(kind, id), sealed).map_err(|error| error.of(what()))?;
    plain.as_slice().try_into().map_err(|_| Error::Damaged(format!("{} cannot be read", what())))
}
