//! The scheme `twilio`: HMAC over the URL and the fields of the form.
//!
//! `X-Twilio-Signature: <base64>` of the URL as Twilio called it, followed by the name and the value
//! of each form field, sorted by name, without anything in between; of a field that is repeated,
//! each different value once, sorted. The key is the auth token and the hash SHA-1; where a shared
//! key is used instead, `X-Twilio-Webhooks-Signature-Settings: key=<id>,algorithm=HMAC_SHA256` says
//! so. Of a body that is no form only its SHA-256 is signed, in hex, as the query parameter
//! `bodySHA256`. Twilio's own libraries try the URL with and without its port, because Twilio is
//! not consistent in which it signs. There is no timestamp.

use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::inbound::malformed;
use super::mac::Keys;
use super::{Algorithm, Encoding, Inbound, Refusal, form};

const HEADER: &str = "x-twilio-signature";
const EXPECTED: &str = "a digest in base64";
const SETTINGS_HEADER: &str = "x-twilio-webhooks-signature-settings";
const SETTINGS_EXPECTED: &str = "algorithm=HMAC_SHA1 or algorithm=HMAC_SHA256";
const BODY_HASH: &str = "bodySHA256";
const BODY_HASH_EXPECTED: &str = "64 hexadecimal digits";

#[derive(Clone)]
pub(super) struct Twilio {
    sha1: Keys,
    sha256: Keys,
}

impl Twilio {
    pub(super) fn new(secrets: &[String]) -> Self {
        let [sha1, sha256] =
            [Algorithm::Sha1, Algorithm::Sha256].map(|algorithm| Keys::new(algorithm, secrets));
        Self { sha1, sha256 }
    }

    pub(super) fn verify(&self, request: &Inbound<'_>) -> Result<(), Refusal> {
        let keys = self.keys(request)?;
        let signature = Encoding::Base64
            .digest(request.text(HEADER, EXPECTED)?, keys.algorithm().bytes())
            .ok_or_else(|| malformed(HEADER, EXPECTED))?;
        let body_hash = read_body_hash(request)?;

        let mut fields = Vec::new();
        if is_form(request)? {
            fields = form::parse(request.body)
                .ok_or(Refusal::MalformedBody { expected: "a form of fewer fields" })?;
            fields.sort_unstable();
            fields.dedup();
        } else if body_hash.is_none() && !request.body.is_empty() {
            // The signature of the URL alone would be as good for any other body.
            return Err(Refusal::UnsignedBody);
        }

        let url = Url::split(request.url);
        let mut found = false;
        for port in url.ports() {
            let mut message = vec![url.head.as_bytes(), port.as_bytes(), url.tail.as_bytes()];
            message.extend(fields.iter().flat_map(|(name, value)| [&**name, &**value]));
            found |= keys.match_any(&message, std::slice::from_ref(&signature));
        }
        if !found {
            return Err(Refusal::NoMatch);
        }
        match body_hash {
            Some(hash) if !bool::from(Sha256::digest(request.body).as_slice().ct_eq(&hash)) => {
                Err(Refusal::OtherBody)
            }
            Some(_) | None => Ok(()),
        }
    }

    fn keys(&self, request: &Inbound<'_>) -> Result<&Keys, Refusal> {
        if !request.has(SETTINGS_HEADER) {
            return Ok(&self.sha1);
        }
        let settings = request.text(SETTINGS_HEADER, SETTINGS_EXPECTED)?;
        let algorithm = settings.split(',').find_map(|setting| {
            let (name, value) = setting.split_once('=')?;
            (name.trim_ascii() == "algorithm").then_some(value.trim_ascii())
        });
        match algorithm {
            None | Some("HMAC_SHA1") => Ok(&self.sha1),
            Some("HMAC_SHA256") => Ok(&self.sha256),
            Some(_) => Err(malformed(SETTINGS_HEADER, SETTINGS_EXPECTED)),
        }
    }
}

fn read_body_hash(request: &Inbound<'_>) -> Result<Option<Vec<u8>>, Refusal> {
    let Some(value) = request.parameter(BODY_HASH)? else { return Ok(None) };
    let hash = std::str::from_utf8(&value).ok().and_then(|text| Encoding::Hex.digest(text, 32));
    hash.map(Some).ok_or_else(|| Refusal::MalformedParameter {
        name: BODY_HASH.to_owned(),
        expected: BODY_HASH_EXPECTED,
    })
}

fn is_form(request: &Inbound<'_>) -> Result<bool, Refusal> {
    let content_type = request.optional("content-type")?.unwrap_or_default();
    let media_type = content_type.split(|byte| *byte == b';').next().unwrap_or_default();
    Ok(media_type.trim_ascii().eq_ignore_ascii_case(b"application/x-www-form-urlencoded"))
}

/// An absolute URL around its port.
#[derive(Debug, PartialEq, Eq)]
struct Url<'a> {
    head: &'a str,
    /// With its colon, or empty.
    port: &'a str,
    tail: &'a str,
    /// Of the scheme, with its colon.
    usual_port: &'static str,
}

impl<'a> Url<'a> {
    fn split(url: &'a str) -> Self {
        let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let host = authority.rsplit('@').next().unwrap_or_default();
        // The colons within the brackets of an IPv6 address are none of a port.
        let after_brackets = host.rfind(']').map_or(host, |bracket| &host[bracket + 1..]);
        let port = after_brackets.find(':').map_or("", |colon| &after_brackets[colon..]);
        let tail_at = url.len() - rest.len() + authority.len();
        let (before, tail) = url.split_at(tail_at);
        Self {
            head: &before[..before.len() - port.len()],
            port,
            tail,
            usual_port: if scheme.eq_ignore_ascii_case("https") { ":443" } else { ":80" },
        }
    }

    fn ports(&self) -> [&'a str; 2] {
        ["", if self.port.is_empty() { self.usual_port } else { self.port }]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_split_around_their_port() {
        for (url, head, port, tail, ports) in [
            ("https://a.b/c?d=e:1", "https://a.b", "", "/c?d=e:1", ["", ":443"]),
            ("http://a.b", "http://a.b", "", "", ["", ":80"]),
            ("https://a.b:8443/c", "https://a.b", ":8443", "/c", ["", ":8443"]),
            ("https://u:p@a.b:443?x", "https://u:p@a.b", ":443", "?x", ["", ":443"]),
            ("https://u:p@a.b/", "https://u:p@a.b", "", "/", ["", ":443"]),
            ("http://[::1]/x", "http://[::1]", "", "/x", ["", ":80"]),
            ("http://[::1]:8080#f", "http://[::1]", ":8080", "#f", ["", ":8080"]),
            ("HTTPS://a.b/http://c:1", "HTTPS://a.b", "", "/http://c:1", ["", ":443"]),
            ("", "", "", "", ["", ":80"]),
            ("/in/abc", "", "", "/in/abc", ["", ":80"]),
            ("é://ü:é/ß", "é://ü", ":é", "/ß", ["", ":é"]),
        ] {
            let split = Url::split(url);
            assert_eq!((split.head, split.port, split.tail), (head, port, tail), "{url}");
            assert_eq!(split.ports(), ports, "{url}");
        }
    }
}
