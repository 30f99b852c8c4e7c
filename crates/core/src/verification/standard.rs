//! The scheme `standard`: Standard Webhooks, symmetric (`v1`) and asymmetric (`v1a`).
//!
//! `webhook-signature` lists signatures with their versions, separated by spaces, each of
//! `<webhook-id>.<webhook-timestamp>.<body>`: `v1,<base64>` is HMAC-SHA256 under the key in
//! `whsec_<base64>`, `v1a,<base64>` is ed25519 under the public key in `whpk_<base64>`. The time may
//! be five minutes off either way.

use std::time::Duration;

use ed25519_dalek::VerifyingKey;
use ed25519_dalek::ed25519::signature::MultipartVerifier as _;
use subtle::{Choice, ConstantTimeEq as _};

use super::inbound::malformed;
use super::{
    Encoding, Inbound, Invalid, MAX_PUBLIC_KEYS, MAX_SIGNATURES, Refusal, secret_field, window,
};
use crate::signing::{self, Secret, Signer};
use crate::time::Timestamp;

const PUBLIC_PREFIX: &str = "whpk_";
const EXPECTED: &str = "signatures like v1,<base64> or v1a,<base64>, separated by spaces";
const ID_EXPECTED: &str = "an id";
const TIME_EXPECTED: &str = "seconds since 1970";

/// The names of the three headers.
struct Names {
    id: &'static str,
    time: &'static str,
    signature: &'static str,
}

const STANDARD: Names =
    Names { id: "webhook-id", time: "webhook-timestamp", signature: "webhook-signature" };

/// Senders that run on Svix, where the standard comes from, use these names for the same values.
const SVIX: Names = Names { id: "svix-id", time: "svix-timestamp", signature: "svix-signature" };

#[derive(Clone)]
pub(super) struct Standard {
    /// Signs again, to compare; `None` where there are public keys only.
    symmetric: Option<Signer>,
    public: Vec<VerifyingKey>,
    tolerance: Duration,
}

impl Standard {
    pub(super) fn new(secrets: &[String], tolerance: Duration) -> Result<Self, Invalid> {
        let mut symmetric = Vec::new();
        let mut public = Vec::new();
        for (place, text) in secrets.iter().enumerate() {
            let refuse = |message| Invalid::new(secret_field(secrets, place), message);
            if let Some(encoded) = text.strip_prefix(PUBLIC_PREFIX) {
                public.push(read_public_key(encoded).map_err(refuse)?);
            } else {
                symmetric.push(read_secret(text).map_err(refuse)?);
            }
        }
        if public.len() > MAX_PUBLIC_KEYS {
            let message = format!("has more than {MAX_PUBLIC_KEYS} public keys");
            return Err(Invalid::new("secrets", message));
        }
        let symmetric =
            (!symmetric.is_empty()).then(|| Signer::new(&signing::Scheme::Standard, &symmetric));
        Ok(Self { symmetric, public, tolerance })
    }

    pub(super) fn verify(&self, request: &Inbound<'_>, now: Timestamp) -> Result<(), Refusal> {
        let any_of_svix = [SVIX.id, SVIX.time, SVIX.signature].iter().any(|name| request.has(name));
        let names = if any_of_svix && !request.has(STANDARD.signature) { SVIX } else { STANDARD };
        let id = request.text(names.id, ID_EXPECTED)?;
        let time = request.text(names.time, TIME_EXPECTED)?;
        let signed_at =
            window::seconds(time).ok_or_else(|| malformed(names.time, TIME_EXPECTED))?;
        let listed = read_signatures(names.signature, request)?;
        if !self.match_any(&listed, id, time, signed_at / 1_000, request.body) {
            return Err(Refusal::NoMatch);
        }
        window::check(signed_at, self.tolerance, now)
    }

    fn match_any(
        &self,
        listed: &Listed<'_>,
        id: &str,
        time: &str,
        seconds: i64,
        body: &[u8],
    ) -> bool {
        let mut found = Choice::from(0);
        let ours = self.symmetric.as_ref().and_then(|signer| signer.sign(id, seconds, body));
        for wanted in ours.iter().flat_map(|signature| signature.value.split(' ')) {
            for entry in &listed.v1 {
                found |= wanted.as_bytes().ct_eq(entry.as_bytes());
            }
        }
        // Nothing here is secret, so the first good one ends it.
        let message = [id.as_bytes(), b".", time.as_bytes(), b".", body];
        found.into()
            || self.public.iter().any(|key| {
                listed.v1a.iter().any(|signature| key.multipart_verify(&message, signature).is_ok())
            })
    }
}

#[derive(Default)]
struct Listed<'a> {
    /// With their version, as they came.
    v1: Vec<&'a str>,
    v1a: Vec<ed25519_dalek::Signature>,
}

fn read_signatures<'a>(header: &str, request: &Inbound<'a>) -> Result<Listed<'a>, Refusal> {
    let mut listed = Listed::default();
    let entries = request.text(header, EXPECTED)?.split(' ').filter(|entry| !entry.is_empty());
    for (place, entry) in entries.enumerate() {
        if place == MAX_SIGNATURES {
            return Err(Refusal::TooManySignatures { header: header.to_owned() });
        }
        // Versions to come, and those that cannot be read, must not stand in the way of the others.
        match entry.split_once(',') {
            Some(("v1", _)) => listed.v1.push(entry),
            Some(("v1a", encoded)) => listed.v1a.extend(
                Encoding::Base64
                    .decode(encoded)
                    .and_then(|bytes| ed25519_dalek::Signature::from_slice(&bytes).ok()),
            ),
            Some(_) | None => {}
        }
    }
    if listed.v1.is_empty() && listed.v1a.is_empty() {
        return Err(malformed(header, EXPECTED));
    }
    Ok(listed)
}

fn read_secret(text: &str) -> Result<Secret, String> {
    Secret::parse(text, &signing::Scheme::Standard).map_err(|error| match error {
        signing::Error::SecretPrefix { .. } => {
            "must begin with whsec_ for a shared key or whpk_ for a public key, followed by base64"
                .to_owned()
        }
        signing::Error::HeaderNotUsed
        | signing::Error::HeaderMalformed
        | signing::Error::HeaderReserved(_)
        | signing::Error::SecretEncoding { .. }
        | signing::Error::SecretLength { .. }
        | signing::Error::KeypairLength { .. }
        | signing::Error::KeypairMismatch
        | signing::Error::SecretEmpty
        | signing::Error::SecretTooLong { .. } => error.to_string(),
    })
}

fn read_public_key(encoded: &str) -> Result<VerifyingKey, String> {
    let bytes = Encoding::Base64
        .decode(encoded)
        .ok_or_else(|| format!("is not base64 after {PUBLIC_PREFIX}"))?;
    let key = <[u8; 32]>::try_from(bytes.as_slice())
        .ok()
        .and_then(|bytes| VerifyingKey::from_bytes(&bytes).ok())
        // Under a weak key some signatures are good for every message.
        .filter(|key| !key.is_weak());
    key.ok_or_else(|| "is not an ed25519 public key of 32 bytes".to_owned())
}
