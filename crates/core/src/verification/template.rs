//! What a signature of the scheme `hmac` covers, written as a text with places to fill:
//! `v0:{timestamp}:{body}`.

use std::fmt;

use super::scheme::is_header_name;
use super::{Inbound, Invalid, Refusal};

const MAX_TEMPLATE_BYTES: usize = 256;

/// A checked template. The body stands in it exactly once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Literal(String),
    Body,
    /// The text of the timestamp header, as it came.
    Timestamp,
    Method,
    Url,
    /// The value of another header, as it came. The name is in lower case.
    Header(String),
}

impl Template {
    /// Reads text with the places `{body}`, `{timestamp}`, `{method}`, `{url}` and
    /// `{header:NAME}`.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let refuse = |message: String| Err(Invalid::new("signed", message));
        if text.len() > MAX_TEMPLATE_BYTES {
            return refuse(format!("must be at most {MAX_TEMPLATE_BYTES} bytes long"));
        }
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some(brace) = rest.find(['{', '}']) {
            let (literal, from_brace) = rest.split_at(brace);
            if !literal.is_empty() {
                parts.push(Part::Literal(literal.to_owned()));
            }
            let place = from_brace.strip_prefix('{').and_then(|place| place.split_once('}'));
            let Some((place, after)) = place else {
                return refuse("has a brace without its other half".to_owned());
            };
            parts.push(match place {
                "body" => Part::Body,
                "timestamp" => Part::Timestamp,
                "method" => Part::Method,
                "url" => Part::Url,
                _ => match place.strip_prefix("header:") {
                    Some(name) if is_header_name(name) => Part::Header(name.to_ascii_lowercase()),
                    Some(_) | None => {
                        return refuse(
                            "has a place that is not known; there are {body}, {timestamp}, \
                             {method}, {url} and {header:NAME}"
                                .to_owned(),
                        );
                    }
                },
            });
            rest = after;
        }
        if !rest.is_empty() {
            parts.push(Part::Literal(rest.to_owned()));
        }
        if parts.iter().filter(|part| **part == Part::Body).count() != 1 {
            return refuse("must have {body} in it exactly once".to_owned());
        }
        Ok(Self { parts })
    }

    pub(super) fn has_timestamp(&self) -> bool {
        self.parts.contains(&Part::Timestamp)
    }

    /// The bytes that were signed, in pieces.
    pub(super) fn fill<'a>(
        &'a self,
        request: &Inbound<'a>,
        timestamp: &'a str,
    ) -> Result<Vec<&'a [u8]>, Refusal> {
        self.parts
            .iter()
            .map(|part| match part {
                Part::Literal(text) => Ok(text.as_bytes()),
                Part::Body => Ok(request.body),
                Part::Timestamp => Ok(timestamp.as_bytes()),
                Part::Method => Ok(request.method.as_bytes()),
                Part::Url => Ok(request.url.as_bytes()),
                Part::Header(name) => request.required(name, "a value that was signed along"),
            })
            .collect()
    }
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in &self.parts {
            match part {
                Part::Literal(text) => f.write_str(text)?,
                Part::Body => f.write_str("{body}")?,
                Part::Timestamp => f.write_str("{timestamp}")?,
                Part::Method => f.write_str("{method}")?,
                Part::Url => f.write_str("{url}")?,
                Part::Header(name) => write!(f, "{{header:{name}}}")?,
            }
        }
        Ok(())
    }
}
