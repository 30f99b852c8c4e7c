//! The providers that sign with HMAC-SHA256 and the text of the secret as key: where each puts the
//! signature, what it signs, how it writes it and how old it may be, as its documentation says.

use std::time::Duration;

use serde::Deserialize;

use super::inbound::malformed;
use super::mac::Keys;
use super::{Encoding, Inbound, MAX_SIGNATURES, Refusal, window};
use crate::time::Timestamp;

/// `X-Hub-Signature-256: sha256=<hex>` of the body. GitHub sends a SHA-1 beside it, for old
/// receivers, which is not looked at. No timestamp.
pub(super) fn github(keys: &Keys, request: &Inbound<'_>) -> Result<(), Refusal> {
    const HEADER: &str = "x-hub-signature-256";
    const EXPECTED: &str = "sha256= and 64 hexadecimal digits";
    let text = request.text(HEADER, EXPECTED)?;
    let hex = text.strip_prefix("sha256=").ok_or_else(|| malformed(HEADER, EXPECTED))?;
    let signature = one(keys, Encoding::Hex, hex).ok_or_else(|| malformed(HEADER, EXPECTED))?;
    believe(keys, &[request.body], &signature)
}

/// `X-Shopify-Hmac-SHA256: <base64>` of the body, keyed with the app's client secret. No timestamp.
pub(super) fn shopify(keys: &Keys, request: &Inbound<'_>) -> Result<(), Refusal> {
    const HEADER: &str = "x-shopify-hmac-sha256";
    const EXPECTED: &str = "32 bytes in base64";
    let text = request.text(HEADER, EXPECTED)?;
    let signature = one(keys, Encoding::Base64, text).ok_or_else(|| malformed(HEADER, EXPECTED))?;
    believe(keys, &[request.body], &signature)
}

/// `X-Slack-Signature: v0=<hex>` of `v0:<X-Slack-Request-Timestamp>:<body>`, five minutes.
pub(super) fn slack(
    keys: &Keys,
    tolerance: Duration,
    request: &Inbound<'_>,
    now: Timestamp,
) -> Result<(), Refusal> {
    const HEADER: &str = "x-slack-signature";
    const EXPECTED: &str = "v0= and 64 hexadecimal digits";
    const TIME_HEADER: &str = "x-slack-request-timestamp";
    const TIME_EXPECTED: &str = "seconds since 1970";
    let text = request.text(HEADER, EXPECTED)?;
    let hex = text.strip_prefix("v0=").ok_or_else(|| malformed(HEADER, EXPECTED))?;
    let signature = one(keys, Encoding::Hex, hex).ok_or_else(|| malformed(HEADER, EXPECTED))?;
    let time = request.text(TIME_HEADER, TIME_EXPECTED)?;
    let signed_at = window::seconds(time).ok_or_else(|| malformed(TIME_HEADER, TIME_EXPECTED))?;
    believe(keys, &[b"v0:", time.as_bytes(), b":", request.body], &signature)?;
    window::check(signed_at, tolerance, now)
}

/// `Linear-Signature: <hex>` of the body. The time is inside, in milliseconds, as the field
/// `webhookTimestamp`, and should be within a minute.
pub(super) fn linear(
    keys: &Keys,
    tolerance: Duration,
    request: &Inbound<'_>,
    now: Timestamp,
) -> Result<(), Refusal> {
    #[derive(Deserialize)]
    struct Body {
        #[serde(rename = "webhookTimestamp")]
        webhook_timestamp: i64,
    }

    const HEADER: &str = "linear-signature";
    const EXPECTED: &str = "64 hexadecimal digits";
    let text = request.text(HEADER, EXPECTED)?;
    let signature = one(keys, Encoding::Hex, text).ok_or_else(|| malformed(HEADER, EXPECTED))?;
    believe(keys, &[request.body], &signature)?;
    let body: Body = serde_json::from_slice(request.body).map_err(|_| Refusal::MalformedBody {
        expected: "a JSON object with webhookTimestamp in milliseconds",
    })?;
    window::check(body.webhook_timestamp, tolerance, now)
}

/// `Stripe-Signature: t=<seconds>,v1=<hex>` of `<t>.<body>`, five minutes. There is one `v1` for
/// each live secret; other versions, like the `v0` of test events, are there to be ignored, or a
/// weaker one could be chosen by whoever forges.
pub(super) fn stripe(
    keys: &Keys,
    tolerance: Duration,
    request: &Inbound<'_>,
    now: Timestamp,
) -> Result<(), Refusal> {
    const STRIPE: Listing = Listing {
        header: "stripe-signature",
        expected: "t= with seconds since 1970 and v1= with 64 hexadecimal digits, separated by \
                   commas",
        separator: ',',
        time: "t",
        signature: "v1",
        joint: ".",
    };
    STRIPE.verify(keys, tolerance, request, now)
}

/// `Paddle-Signature: ts=<seconds>;h1=<hex>` of `<ts>:<body>`, five seconds. There is one `h1` for
/// each live secret.
pub(super) fn paddle(
    keys: &Keys,
    tolerance: Duration,
    request: &Inbound<'_>,
    now: Timestamp,
) -> Result<(), Refusal> {
    const PADDLE: Listing = Listing {
        header: "paddle-signature",
        expected: "ts= with seconds since 1970 and h1= with 64 hexadecimal digits, separated by \
                   semicolons",
        separator: ';',
        time: "ts",
        signature: "h1",
        joint: ":",
    };
    PADDLE.verify(keys, tolerance, request, now)
}

/// A header that lists the time and the signatures, each with a name.
struct Listing {
    header: &'static str,
    expected: &'static str,
    separator: char,
    time: &'static str,
    signature: &'static str,
    /// What stands between the time and the body in what is signed.
    joint: &'static str,
}

impl Listing {
    fn verify(
        &self,
        keys: &Keys,
        tolerance: Duration,
        request: &Inbound<'_>,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        let malformed = || malformed(self.header, self.expected);
        let mut time = None;
        let mut signatures = Vec::new();
        let mut listed = 0;
        for item in request.text(self.header, self.expected)?.split(self.separator) {
            let Some((name, value)) = item.split_once('=') else { continue };
            if name == self.time {
                if time.replace(value).is_some() {
                    return Err(malformed());
                }
            } else if name == self.signature {
                listed += 1;
                if listed > MAX_SIGNATURES {
                    return Err(Refusal::TooManySignatures { header: self.header.to_owned() });
                }
                // One that cannot be read must not stand in the way of the others.
                signatures.extend(Encoding::Hex.digest(value, keys.algorithm().bytes()));
            }
        }
        let time = time.ok_or_else(malformed)?;
        let signed_at = window::seconds(time).ok_or_else(malformed)?;
        if signatures.is_empty() {
            return Err(malformed());
        }
        let message = [time.as_bytes(), self.joint.as_bytes(), request.body];
        believe(keys, &message, &signatures)?;
        window::check(signed_at, tolerance, now)
    }
}

fn one(keys: &Keys, encoding: Encoding, text: &str) -> Option<[Vec<u8>; 1]> {
    encoding.digest(text, keys.algorithm().bytes()).map(|digest| [digest])
}

fn believe(keys: &Keys, message: &[&[u8]], signatures: &[Vec<u8>]) -> Result<(), Refusal> {
    if keys.match_any(message, signatures) { Ok(()) } else { Err(Refusal::NoMatch) }
}
