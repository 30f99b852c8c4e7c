//! The schemes `token` and `telegram`: the secret itself is sent along, in a header or in the query.

use std::borrow::Cow;

use sha2::{Digest as _, Sha256};
use subtle::{Choice, ConstantTimeEq as _};

use super::inbound::malformed;
use super::{Encoding, Inbound, Invalid, Place, Refusal, secret_field};

const TELEGRAM_HEADER: &str = "x-telegram-bot-api-secret-token";
const MAX_TELEGRAM_BYTES: usize = 256;
const AUTHORIZATION: &str = "authorization";
const EXPECTED: &str = "the prefix and a token";
const BEARER_EXPECTED: &str = "Bearer and a token";
const BASIC_EXPECTED: &str = "Basic and credentials in base64";

#[derive(Clone)]
pub(super) struct Token {
    /// Its header name is in lower case.
    place: Place,
    /// Hashes are compared rather than tokens, so that not even a length shows in the time taken.
    hashes: Vec<[u8; 32]>,
}

impl Token {
    pub(super) fn new(place: &Place, secrets: &[String]) -> Result<Self, Invalid> {
        let place = match place {
            Place::Header { name, prefix } => {
                Place::Header { name: name.to_ascii_lowercase(), prefix: prefix.clone() }
            }
            Place::Basic => {
                if let Some(at) = secrets.iter().position(|secret| !secret.contains(':')) {
                    let message = "must be user:password for authorization basic";
                    return Err(Invalid::new(secret_field(secrets, at), message));
                }
                Place::Basic
            }
            Place::Bearer | Place::Query { .. } => place.clone(),
        };
        let hashes = secrets.iter().map(|secret| Sha256::digest(secret).into()).collect();
        Ok(Self { place, hashes })
    }

    /// `X-Telegram-Bot-Api-Secret-Token`, as given to `setWebhook`: 1 to 256 letters, digits,
    /// underscores and hyphens.
    pub(super) fn telegram(secrets: &[String]) -> Result<Self, Invalid> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        for (at, secret) in secrets.iter().enumerate() {
            if secret.len() > MAX_TELEGRAM_BYTES || !secret.bytes().all(allowed) {
                let message = format!(
                    "is not a secret token of Telegram; use at most {MAX_TELEGRAM_BYTES} letters, \
                     digits, underscores and hyphens"
                );
                return Err(Invalid::new(secret_field(secrets, at), message));
            }
        }
        let place = Place::Header { name: TELEGRAM_HEADER.to_owned(), prefix: String::new() };
        Self::new(&place, secrets)
    }

    pub(super) fn verify(&self, request: &Inbound<'_>) -> Result<(), Refusal> {
        let hash: [u8; 32] = Sha256::digest(self.find(request)?).into();
        let mut found = Choice::from(0);
        for wanted in &self.hashes {
            found |= wanted.ct_eq(&hash);
        }
        if found.into() { Ok(()) } else { Err(Refusal::NoMatch) }
    }

    fn find<'a>(&self, request: &Inbound<'a>) -> Result<Cow<'a, [u8]>, Refusal> {
        match &self.place {
            Place::Header { name, prefix } => request
                .required(name, EXPECTED)?
                .strip_prefix(prefix.as_bytes())
                .map(Cow::Borrowed)
                .ok_or_else(|| malformed(name, EXPECTED)),
            Place::Bearer => {
                let token = credentials(request, "bearer", BEARER_EXPECTED)?;
                Ok(Cow::Borrowed(token.as_bytes()))
            }
            Place::Basic => {
                let encoded = credentials(request, "basic", BASIC_EXPECTED)?;
                let decoded = Encoding::Base64.decode(encoded);
                decoded.map(Cow::Owned).ok_or_else(|| malformed(AUTHORIZATION, BASIC_EXPECTED))
            }
            Place::Query { name } => request
                .parameter(name)?
                .ok_or_else(|| Refusal::MissingParameter { name: name.clone() }),
        }
    }
}

/// What follows the name of the authentication scheme, whose case does not matter (RFC 9110,
/// section 11.4).
fn credentials<'a>(
    request: &Inbound<'a>,
    scheme: &str,
    expected: &'static str,
) -> Result<&'a str, Refusal> {
    let (named, rest) = request
        .text(AUTHORIZATION, expected)?
        .split_once(' ')
        .ok_or_else(|| malformed(AUTHORIZATION, expected))?;
    if named.eq_ignore_ascii_case(scheme) {
        Ok(rest.trim_ascii_start())
    } else {
        Err(malformed(AUTHORIZATION, expected))
    }
}
