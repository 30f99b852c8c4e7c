//! How the requests of a source are signed: the schemes and their options.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Algorithm, Encoding, Invalid, Spec, Template};
use crate::signing::MAX_HEADER_NAME_BYTES;
use crate::span;

/// The window of Standard Webhooks, Stripe and Slack, as their documentation and libraries have it.
pub(super) const FIVE_MINUTES: Duration = Duration::from_mins(5);
/// What Linear's documentation and library ask for.
pub(super) const LINEAR_TOLERANCE: Duration = Duration::from_mins(1);
/// What Paddle's libraries allow.
pub(super) const PADDLE_TOLERANCE: Duration = Duration::from_secs(5);

const MIN_TOLERANCE: Duration = Duration::from_secs(1);
/// A longer window would be no protection against a request that is sent again.
const MAX_TOLERANCE: Duration = Duration::from_hours(24);

/// The longest text before a signature or a token.
const MAX_PREFIX_BYTES: usize = 32;
const MAX_PARAMETER_NAME_BYTES: usize = 64;

/// How the requests of a source are signed. The secrets are kept apart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Spec", into = "Spec")]
pub enum Scheme {
    /// Every request is believed.
    None,
    Standard {
        tolerance: Duration,
    },
    Stripe {
        tolerance: Duration,
    },
    Github,
    Slack {
        tolerance: Duration,
    },
    Shopify,
    Twilio,
    Linear {
        tolerance: Duration,
    },
    Paddle {
        tolerance: Duration,
    },
    Telegram,
    /// An HMAC of the user's own description.
    Hmac(Recipe),
    /// The secret itself, sent along.
    Token(Place),
}

/// How an HMAC is made and where it stands.
///
/// The header may hold several signatures, separated by commas, each with the prefix: that is how
/// those who have one header and rotate their secrets send them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipe {
    pub header: String,
    pub algorithm: Algorithm,
    pub encoding: Encoding,
    /// What stands before each signature, like `sha256=`.
    pub prefix: String,
    pub signed: Template,
    pub timestamp: Option<Stamp>,
}

/// Where the time stands that was signed along, and how far it may be from now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp {
    pub header: String,
    pub format: StampFormat,
    pub tolerance: Duration,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StampFormat {
    /// Whole seconds since 1970.
    #[default]
    Unix,
    /// Whole milliseconds since 1970.
    UnixMs,
    Rfc3339,
}

/// Where a token stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    Header {
        name: String,
        prefix: String,
    },
    /// `Authorization: Bearer <secret>`.
    Bearer,
    /// `Authorization: Basic <base64>` of the secret, which is `user:password`.
    Basic,
    Query {
        name: String,
    },
}

impl Scheme {
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Standard { .. } => "standard",
            Self::Stripe { .. } => "stripe",
            Self::Github => "github",
            Self::Slack { .. } => "slack",
            Self::Shopify => "shopify",
            Self::Twilio => "twilio",
            Self::Linear { .. } => "linear",
            Self::Paddle { .. } => "paddle",
            Self::Telegram => "telegram",
            Self::Hmac(_) => "hmac",
            Self::Token(_) => "token",
        }
    }

    /// Whether the options can mean what they say.
    pub(super) fn check(&self) -> Result<(), Invalid> {
        match self {
            Self::None | Self::Github | Self::Shopify | Self::Twilio | Self::Telegram => Ok(()),
            Self::Standard { tolerance }
            | Self::Stripe { tolerance }
            | Self::Slack { tolerance }
            | Self::Linear { tolerance }
            | Self::Paddle { tolerance } => check_tolerance("tolerance", *tolerance),
            Self::Hmac(recipe) => recipe.check(),
            Self::Token(place) => place.check(),
        }
    }
}

impl Recipe {
    fn check(&self) -> Result<(), Invalid> {
        check_header("header", &self.header)?;
        check_prefix(&self.prefix)?;
        if self.prefix.contains(',') {
            return Err(Invalid::new("prefix", "must not hold a comma; it separates signatures"));
        }
        match (&self.timestamp, self.signed.has_timestamp()) {
            (None, false) => Ok(()),
            (None, true) => Err(Invalid::new(
                "timestamp",
                "is missing: `signed` has {timestamp}, so name the header it stands in",
            )),
            (Some(stamp), true) => {
                check_header("timestamp.header", &stamp.header)?;
                check_tolerance("timestamp.tolerance", stamp.tolerance)
            }
            // Whoever holds an old request could write any time into a header that is not signed.
            (Some(_), false) => Err(Invalid::new(
                "signed",
                "must have {timestamp} in it, or the time could be changed by anyone",
            )),
        }
    }
}

impl Place {
    fn check(&self) -> Result<(), Invalid> {
        match self {
            Self::Bearer | Self::Basic => Ok(()),
            Self::Header { name, prefix } => {
                check_header("header", name)?;
                check_prefix(prefix)
            }
            Self::Query { name } => {
                let short = (1..=MAX_PARAMETER_NAME_BYTES).contains(&name.len());
                if short && is_printable(name) {
                    Ok(())
                } else {
                    let message = format!(
                        "must be the name of a query parameter, 1 to {MAX_PARAMETER_NAME_BYTES} \
                         printable ASCII characters"
                    );
                    Err(Invalid::new("query", message))
                }
            }
        }
    }
}

fn check_tolerance(field: &str, tolerance: Duration) -> Result<(), Invalid> {
    if (MIN_TOLERANCE..=MAX_TOLERANCE).contains(&tolerance) {
        Ok(())
    } else {
        let [min, max] = [MIN_TOLERANCE, MAX_TOLERANCE].map(span::format);
        Err(Invalid::new(field, format!("must be from {min} to {max}")))
    }
}

pub(super) fn is_header_name(name: &str) -> bool {
    // A token, RFC 9110 section 5.6.2.
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    (1..=MAX_HEADER_NAME_BYTES).contains(&name.len()) && name.bytes().all(is_token)
}

fn check_header(field: &str, name: &str) -> Result<(), Invalid> {
    if is_header_name(name) {
        Ok(())
    } else {
        let message = format!(
            "is not a header name; use 1 to {MAX_HEADER_NAME_BYTES} letters, digits and hyphens, \
             like X-Signature"
        );
        Err(Invalid::new(field, message))
    }
}

/// Names and prefixes are repeated in messages, where a control character could do harm.
fn is_printable(text: &str) -> bool {
    text.bytes().all(|byte| (b' '..=b'~').contains(&byte))
}

fn check_prefix(prefix: &str) -> Result<(), Invalid> {
    if is_printable(prefix) && prefix.len() <= MAX_PREFIX_BYTES && !prefix.starts_with(' ') {
        Ok(())
    } else {
        let message = format!(
            "must be at most {MAX_PREFIX_BYTES} printable ASCII characters, the first no space"
        );
        Err(Invalid::new("prefix", message))
    }
}
