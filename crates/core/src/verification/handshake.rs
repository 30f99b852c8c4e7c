//! Requests by which a provider sets a source up, and that want a certain answer.
//!
//! | scheme | handshake |
//! | --- | --- |
//! | `slack` | `url_verification`: answered with its challenge. Slack signs it like every request, so the signature must be good first. |
//! | `github` | none; the `ping` event is an event like others |
//! | `standard`, `stripe`, `shopify`, `twilio`, `linear`, `paddle`, `telegram` | none |
//! | `hmac`, `token`, `none` | none that is known |

use serde::Deserialize;

use super::Inbound;

/// Slack's are some 200 bytes long.
const MAX_BODY_BYTES: usize = 16 * 1024;
const MAX_CHALLENGE_BYTES: usize = 1024;

/// The answer to send, in place of that to an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handshake {
    pub status: u16,
    pub content_type: &'static str,
    pub body: String,
}

/// A body of the type `url_verification` is answered with 200 and its challenge as plain text.
pub(super) fn slack(request: &Inbound<'_>) -> Option<Handshake> {
    #[derive(Deserialize)]
    struct Body {
        r#type: String,
        challenge: String,
    }

    if request.body.len() > MAX_BODY_BYTES {
        return None;
    }
    let body: Body = serde_json::from_slice(request.body).ok()?;
    let known = body.r#type == "url_verification" && body.challenge.len() <= MAX_CHALLENGE_BYTES;
    known.then_some(Handshake {
        status: 200,
        content_type: "text/plain; charset=utf-8",
        body: body.challenge,
    })
}
