//! The JSON form of a scheme: the object `verify` of a source.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::scheme::{FIVE_MINUTES, LINEAR_TOLERANCE, PADDLE_TOLERANCE};
use super::{Algorithm, Encoding, Invalid, Place, Recipe, Scheme, Stamp, StampFormat, Template};
use crate::span;

/// What a user wrote, secrets included. [`Spec::build`] turns it into a scheme and its secrets, or
/// says why it cannot be one. What is written out never holds the secrets.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    scheme: Name,
    #[serde(default, skip_serializing)]
    secret: Option<String>,
    #[serde(default, skip_serializing)]
    secrets: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none", with = "span::serde_option")]
    tolerance: Option<Duration>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    header: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    query: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    authorization: Option<Authorization>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    algorithm: Option<Algorithm>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    encoding: Option<Encoding>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    prefix: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    signed: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    timestamp: Option<StampSpec>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Name {
    None,
    Standard,
    Stripe,
    Github,
    Slack,
    Shopify,
    Twilio,
    Linear,
    Paddle,
    Telegram,
    Hmac,
    Token,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Authorization {
    Bearer,
    Basic,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StampSpec {
    header: String,
    #[serde(default)]
    format: StampFormat,
    #[serde(default, skip_serializing_if = "Option::is_none", with = "span::serde_option")]
    tolerance: Option<Duration>,
}

impl Spec {
    /// The scheme, and the secrets where some were written.
    pub fn build(mut self) -> Result<(Scheme, Option<Vec<String>>), Invalid> {
        let secrets = match (self.secret.take(), self.secrets.take()) {
            (None, None) => None,
            (Some(secret), None) => Some(vec![secret]),
            (None, Some(secrets)) => Some(secrets),
            (Some(_), Some(_)) => {
                return Err(Invalid::new("secret", "and secrets exclude each other; use one"));
            }
        };
        let mut tolerance = |usual: Duration| self.tolerance.take().unwrap_or(usual);
        let scheme = match self.scheme {
            Name::None => Scheme::None,
            Name::Standard => Scheme::Standard { tolerance: tolerance(FIVE_MINUTES) },
            Name::Stripe => Scheme::Stripe { tolerance: tolerance(FIVE_MINUTES) },
            Name::Github => Scheme::Github,
            Name::Slack => Scheme::Slack { tolerance: tolerance(FIVE_MINUTES) },
            Name::Shopify => Scheme::Shopify,
            Name::Twilio => Scheme::Twilio,
            Name::Linear => Scheme::Linear { tolerance: tolerance(LINEAR_TOLERANCE) },
            Name::Paddle => Scheme::Paddle { tolerance: tolerance(PADDLE_TOLERANCE) },
            Name::Telegram => Scheme::Telegram,
            Name::Hmac => Scheme::Hmac(self.recipe()?),
            Name::Token => Scheme::Token(self.place()?),
        };
        if let Some(field) = self.left_over() {
            let message =
                format!("is not an option of the scheme {}; leave it out", scheme.as_str());
            return Err(Invalid::new(field, message));
        }
        scheme.check()?;
        Ok((scheme, secrets))
    }

    fn recipe(&mut self) -> Result<Recipe, Invalid> {
        let header = self.header.take().ok_or_else(|| {
            Invalid::new("header", "is missing: say which header holds the signature")
        })?;
        let timestamp = self.timestamp.take().map(|stamp| Stamp {
            header: stamp.header,
            format: stamp.format,
            tolerance: stamp.tolerance.unwrap_or(FIVE_MINUTES),
        });
        let usual = if timestamp.is_some() { "{timestamp}.{body}" } else { "{body}" };
        let signed = self.signed.take();
        Ok(Recipe {
            header,
            algorithm: self.algorithm.take().unwrap_or_default(),
            encoding: self.encoding.take().unwrap_or_default(),
            prefix: self.prefix.take().unwrap_or_default(),
            signed: Template::parse(signed.as_deref().unwrap_or(usual))?,
            timestamp,
        })
    }

    fn place(&mut self) -> Result<Place, Invalid> {
        match (self.header.take(), self.query.take(), self.authorization.take()) {
            (Some(name), None, None) => {
                Ok(Place::Header { name, prefix: self.prefix.take().unwrap_or_default() })
            }
            (None, Some(name), None) => Ok(Place::Query { name }),
            (None, None, Some(Authorization::Bearer)) => Ok(Place::Bearer),
            (None, None, Some(Authorization::Basic)) => Ok(Place::Basic),
            (None, None, None) => Err(Invalid::new(
                "header",
                "is missing: say where the token stands, with one of header, query and \
                 authorization",
            )),
            (Some(_), _, _) | (_, Some(_), _) => Err(Invalid::new(
                "header",
                "and query and authorization exclude each other; use one",
            )),
        }
    }

    /// An option that the scheme did not take.
    fn left_over(&self) -> Option<&'static str> {
        // Named one by one, so that a new option cannot be forgotten here.
        let Self {
            scheme: _,
            secret: _,
            secrets: _,
            tolerance,
            header,
            query,
            authorization,
            algorithm,
            encoding,
            prefix,
            signed,
            timestamp,
        } = self;
        [
            ("tolerance", tolerance.is_some()),
            ("header", header.is_some()),
            ("query", query.is_some()),
            ("authorization", authorization.is_some()),
            ("algorithm", algorithm.is_some()),
            ("encoding", encoding.is_some()),
            ("prefix", prefix.is_some()),
            ("signed", signed.is_some()),
            ("timestamp", timestamp.is_some()),
        ]
        .into_iter()
        .find_map(|(field, left)| left.then_some(field))
    }

    fn bare(scheme: Name) -> Self {
        Self {
            scheme,
            secret: None,
            secrets: None,
            tolerance: None,
            header: None,
            query: None,
            authorization: None,
            algorithm: None,
            encoding: None,
            prefix: None,
            signed: None,
            timestamp: None,
        }
    }
}

impl fmt::Debug for Spec {
    /// Without the secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match serde_json::to_string(self) {
            Ok(json) => write!(f, "Spec({json})"),
            Err(_) => f.write_str("Spec"),
        }
    }
}

/// For a scheme that stands alone, as it is stored.
impl TryFrom<Spec> for Scheme {
    type Error = Invalid;

    fn try_from(spec: Spec) -> Result<Self, Invalid> {
        match spec.build()? {
            (scheme, None) => Ok(scheme),
            (_, Some(_)) => Err(Invalid::new("secret", "does not belong here; it is kept apart")),
        }
    }
}

impl From<Scheme> for Spec {
    fn from(scheme: Scheme) -> Self {
        let timed = |name, tolerance| Self { tolerance: Some(tolerance), ..Self::bare(name) };
        match scheme {
            Scheme::None => Self::bare(Name::None),
            Scheme::Standard { tolerance } => timed(Name::Standard, tolerance),
            Scheme::Stripe { tolerance } => timed(Name::Stripe, tolerance),
            Scheme::Github => Self::bare(Name::Github),
            Scheme::Slack { tolerance } => timed(Name::Slack, tolerance),
            Scheme::Shopify => Self::bare(Name::Shopify),
            Scheme::Twilio => Self::bare(Name::Twilio),
            Scheme::Linear { tolerance } => timed(Name::Linear, tolerance),
            Scheme::Paddle { tolerance } => timed(Name::Paddle, tolerance),
            Scheme::Telegram => Self::bare(Name::Telegram),
            Scheme::Hmac(recipe) => Self {
                header: Some(recipe.header),
                algorithm: Some(recipe.algorithm),
                encoding: Some(recipe.encoding),
                prefix: Some(recipe.prefix),
                signed: Some(recipe.signed.to_string()),
                timestamp: recipe.timestamp.map(|stamp| StampSpec {
                    header: stamp.header,
                    format: stamp.format,
                    tolerance: Some(stamp.tolerance),
                }),
                ..Self::bare(Name::Hmac)
            },
            Scheme::Token(place) => {
                let bare = Self::bare(Name::Token);
                match place {
                    Place::Header { name, prefix } => {
                        Self { header: Some(name), prefix: Some(prefix), ..bare }
                    }
                    Place::Bearer => Self { authorization: Some(Authorization::Bearer), ..bare },
                    Place::Basic => Self { authorization: Some(Authorization::Basic), ..bare },
                    Place::Query { name } => Self { query: Some(name), ..bare },
                }
            }
        }
    }
}
