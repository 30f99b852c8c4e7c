//! Invariant 7, second half: every attempt of a delivery has the same id and the same bytes, and a
//! signature.

use std::collections::BTreeMap;

use crate::world::Remains;

pub(super) fn check(remains: &Remains) -> Vec<String> {
    remains.chronicle.read(|history| {
        let mut letters = BTreeMap::new();
        let mut found = Vec::new();
        for arrival in &history.arrivals {
            let letter = (&arrival.webhook_id, &arrival.body);
            let first = *letters.entry(arrival.delivery).or_insert(letter);
            if first != letter {
                found.push(format!("every attempt is the same: {} differs", arrival.delivery));
            }
            let signed = arrival.headers.contains_key("webhook-signature");
            if !arrival.headers.is_empty() && !signed {
                found.push(format!("every attempt is signed: {} is not", arrival.delivery));
            }
        }
        found
    })
}
