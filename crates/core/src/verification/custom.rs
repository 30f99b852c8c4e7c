//! The scheme `hmac`: an HMAC of the user's own description.

use super::inbound::malformed;
use super::mac::Keys;
use super::{Inbound, MAX_SIGNATURES, Recipe, Refusal, StampFormat, window};
use crate::time::Timestamp;

const EXPECTED: &str = "the prefix and a digest of the configured algorithm and encoding";
const TIME_EXPECTED: &str = "a time in the configured format";

#[derive(Clone)]
pub(super) struct Custom {
    /// Its header names are in lower case.
    recipe: Recipe,
    keys: Keys,
}

impl Custom {
    pub(super) fn new(recipe: &Recipe, secrets: &[String]) -> Self {
        let mut recipe = recipe.clone();
        recipe.header.make_ascii_lowercase();
        if let Some(stamp) = &mut recipe.timestamp {
            stamp.header.make_ascii_lowercase();
        }
        Self { keys: Keys::new(recipe.algorithm, secrets), recipe }
    }

    pub(super) fn verify(&self, request: &Inbound<'_>, now: Timestamp) -> Result<(), Refusal> {
        let signatures = self.signatures(request)?;
        let (time, window) = match &self.recipe.timestamp {
            None => ("", None),
            Some(stamp) => {
                let time = request.text(&stamp.header, TIME_EXPECTED)?;
                let signed_at = read_time(stamp.format, time)
                    .ok_or_else(|| malformed(&stamp.header, TIME_EXPECTED))?;
                (time, Some((signed_at, stamp.tolerance)))
            }
        };
        let message = self.recipe.signed.fill(request, time)?;
        if !self.keys.match_any(&message, &signatures) {
            return Err(Refusal::NoMatch);
        }
        match window {
            None => Ok(()),
            Some((signed_at, tolerance)) => window::check(signed_at, tolerance, now),
        }
    }

    fn signatures(&self, request: &Inbound<'_>) -> Result<Vec<Vec<u8>>, Refusal> {
        let header = &self.recipe.header;
        let mut signatures = Vec::new();
        for (place, item) in request.text(header, EXPECTED)?.split(',').enumerate() {
            if place == MAX_SIGNATURES {
                return Err(Refusal::TooManySignatures { header: header.clone() });
            }
            // One that cannot be read must not stand in the way of the others.
            signatures.extend(
                item.trim_ascii().strip_prefix(&self.recipe.prefix).and_then(|text| {
                    self.recipe.encoding.digest(text, self.recipe.algorithm.bytes())
                }),
            );
        }
        if signatures.is_empty() { Err(malformed(header, EXPECTED)) } else { Ok(signatures) }
    }
}

fn read_time(format: StampFormat, text: &str) -> Option<i64> {
    match format {
        StampFormat::Unix => window::seconds(text),
        StampFormat::UnixMs => window::millis(text),
        StampFormat::Rfc3339 => text.parse::<Timestamp>().ok().map(Timestamp::as_millis),
    }
}
