//! Verification of inbound webhooks: whether a request that reached a source was sent by the
//! provider that holds one of the source's secrets.
//!
//! [`Scheme`] says how a provider signs, [`Spec`] is its JSON form, [`Verifier`] checks requests.
//! Everything is decided on the bytes as they came, in constant time where a secret is involved.
//! A body is parsed only after its signature was found good, with one exception: Twilio signs the
//! fields of a form, so a form is split into fields to check it.

use std::fmt;
use std::time::Duration;

use crate::span;
use crate::time::Timestamp;

mod custom;
mod form;
mod handshake;
mod inbound;
mod mac;
mod provider;
mod scheme;
mod spec;
mod standard;
mod template;
mod token;
mod twilio;
mod window;

pub use handshake::Handshake;
pub use inbound::{Inbound, MAX_HEADER_BYTES};
pub use mac::{Algorithm, Encoding};
pub use scheme::{Place, Recipe, Scheme, Stamp, StampFormat};
pub use spec::Spec;
pub use template::Template;

use custom::Custom;
use mac::Keys;
use standard::Standard;
use token::Token;
use twilio::Twilio;

/// How many secrets of a source are live at once.
pub const MAX_SECRETS: usize = crate::signing::MAX_LIVE_SECRETS;

/// How many ed25519 public keys of a source are live at once: the old one and the new one. Each
/// costs a hash of the whole body for every signature in the header.
pub const MAX_PUBLIC_KEYS: usize = 2;

/// The longest text taken as a secret.
pub const MAX_SECRET_BYTES: usize = 512;

/// How many signatures one request may carry. A sender writes one for each secret it is rotating.
pub const MAX_SIGNATURES: usize = 16;

/// Why a source cannot verify in the way asked for: the field of `verify`, and a sentence. Nothing
/// of a secret is repeated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct Invalid {
    pub field: String,
    pub message: String,
}

impl Invalid {
    fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { field: field.into(), message: message.into() }
    }
}

/// Why a request is not believed. No message repeats a secret, a token or a signature.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("the header {header} is missing")]
    MissingHeader { header: String },
    /// Two lines of one header may have been put together from two messages, and intermediaries
    /// differ in which of them they keep, so no scheme takes more than one.
    #[error("the header {header} came more than once; it must come exactly once")]
    RepeatedHeader { header: String },
    #[error("the header {header} is malformed; expected {expected}")]
    MalformedHeader { header: String, expected: &'static str },
    #[error("the header {header} holds more than {MAX_SIGNATURES} signatures")]
    TooManySignatures { header: String },
    #[error("the query parameter {name} is missing")]
    MissingParameter { name: String },
    #[error("the query parameter {name} came more than once; it must come exactly once")]
    RepeatedParameter { name: String },
    #[error("the query parameter {name} is malformed; expected {expected}")]
    MalformedParameter { name: String, expected: &'static str },
    #[error("the query of the URL has too many parameters")]
    TooManyParameters,
    #[error("the body is malformed; expected {expected}")]
    MalformedBody { expected: &'static str },
    #[error("the signature does not cover the body; a body that is no form needs bodySHA256")]
    UnsignedBody,
    #[error("the body is not the one whose hash the signed URL holds")]
    OtherBody,
    #[error(
        "the request was signed {} ago; at most {} is accepted",
        span::format(*age),
        span::format(*tolerance)
    )]
    TooOld { age: Duration, tolerance: Duration },
    #[error(
        "the request was signed {} in the future; at most {} is accepted",
        span::format(*ahead),
        span::format(*tolerance)
    )]
    InFuture { ahead: Duration, tolerance: Duration },
    #[error("no live secret of the source matches the request")]
    NoMatch,
}

/// Checks the requests of one source. Made once; its keys are prepared.
#[derive(Clone)]
pub struct Verifier {
    check: Check,
    scheme: &'static str,
    secrets: usize,
}

#[derive(Clone)]
enum Check {
    None,
    Standard(Standard),
    Stripe(Keys, Duration),
    Github(Keys),
    Slack(Keys, Duration),
    Shopify(Keys),
    Twilio(Twilio),
    Linear(Keys, Duration),
    Paddle(Keys, Duration),
    Hmac(Custom),
    /// Telegram's too.
    Token(Token),
}

impl Verifier {
    /// Takes the live secrets of the source; a request that matches any of them is good.
    pub fn new(scheme: &Scheme, secrets: &[String]) -> Result<Self, Invalid> {
        scheme.check()?;
        check_secrets(scheme, secrets)?;
        let sha256 = || Keys::new(Algorithm::Sha256, secrets);
        let check = match scheme {
            Scheme::None => Check::None,
            Scheme::Standard { tolerance } => Check::Standard(Standard::new(secrets, *tolerance)?),
            Scheme::Stripe { tolerance } => Check::Stripe(sha256(), *tolerance),
            Scheme::Github => Check::Github(sha256()),
            Scheme::Slack { tolerance } => Check::Slack(sha256(), *tolerance),
            Scheme::Shopify => Check::Shopify(sha256()),
            Scheme::Twilio => Check::Twilio(Twilio::new(secrets)),
            Scheme::Linear { tolerance } => Check::Linear(sha256(), *tolerance),
            Scheme::Paddle { tolerance } => Check::Paddle(sha256(), *tolerance),
            Scheme::Telegram => Check::Token(Token::telegram(secrets)?),
            Scheme::Hmac(recipe) => Check::Hmac(Custom::new(recipe, secrets)),
            Scheme::Token(place) => Check::Token(Token::new(place, secrets)?),
        };
        Ok(Self { check, scheme: scheme.as_str(), secrets: secrets.len() })
    }

    /// Whether the request was sent by someone who holds a live secret, within the time the scheme
    /// allows. The signature is checked before the time, so that a request is called too old only
    /// if it is genuine.
    pub fn verify(&self, request: &Inbound<'_>, now: Timestamp) -> Result<(), Refusal> {
        match &self.check {
            Check::None => Ok(()),
            Check::Standard(standard) => standard.verify(request, now),
            Check::Stripe(keys, tolerance) => provider::stripe(keys, *tolerance, request, now),
            Check::Github(keys) => provider::github(keys, request),
            Check::Slack(keys, tolerance) => provider::slack(keys, *tolerance, request, now),
            Check::Shopify(keys) => provider::shopify(keys, request),
            Check::Twilio(twilio) => twilio.verify(request),
            Check::Linear(keys, tolerance) => provider::linear(keys, *tolerance, request, now),
            Check::Paddle(keys, tolerance) => provider::paddle(keys, *tolerance, request, now),
            Check::Hmac(custom) => custom.verify(request, now),
            Check::Token(token) => token.verify(request),
        }
    }

    /// The answer to a request by which a provider sets the source up, where it is one.
    ///
    /// To be asked only about a request that [`Verifier::verify`] found good: the providers that
    /// have a handshake sign it like any other request.
    pub fn handshake(&self, request: &Inbound<'_>) -> Option<Handshake> {
        match &self.check {
            Check::Slack(..) => handshake::slack(request),
            Check::None
            | Check::Standard(_)
            | Check::Stripe(..)
            | Check::Github(_)
            | Check::Shopify(_)
            | Check::Twilio(_)
            | Check::Linear(..)
            | Check::Paddle(..)
            | Check::Hmac(_)
            | Check::Token(_) => None,
        }
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Verifier({}, {} secrets)", self.scheme, self.secrets)
    }
}

fn check_secrets(scheme: &Scheme, secrets: &[String]) -> Result<(), Invalid> {
    let name = scheme.as_str();
    if *scheme == Scheme::None {
        return if secrets.is_empty() {
            Ok(())
        } else {
            Err(Invalid::new("secret", "has no use with the scheme none; leave it out"))
        };
    }
    if secrets.is_empty() {
        return Err(Invalid::new("secret", format!("is needed by the scheme {name}")));
    }
    if secrets.len() > MAX_SECRETS {
        let message = format!("has {} entries; at most {MAX_SECRETS} are allowed", secrets.len());
        return Err(Invalid::new("secrets", message));
    }
    for (place, secret) in secrets.iter().enumerate() {
        let refuse = |message: String| Err(Invalid::new(secret_field(secrets, place), message));
        if secret.trim().is_empty() {
            return refuse("must not be empty".to_owned());
        }
        if secret.trim() != secret {
            return refuse("begins or ends with white space; remove it".to_owned());
        }
        if secret.len() > MAX_SECRET_BYTES {
            let bytes = secret.len();
            return refuse(format!(
                "is {bytes} bytes long; at most {MAX_SECRET_BYTES} are allowed"
            ));
        }
    }
    Ok(())
}

/// What to call the secret at `place` in a message. One alone may have been written either way.
fn secret_field(secrets: &[String], place: usize) -> String {
    if secrets.len() == 1 { "secret".to_owned() } else { format!("secrets[{place}]") }
}
