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

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::super::made::{self, arrival, body, minute};
    use super::*;
    use crate::history::Arrival;

    #[test]
    fn every_attempt_is_the_same_and_signed() {
        let second = || arrival(1, 0, minute(2));
        let mut unsigned = second();
        unsigned.headers.clear();
        unsigned.headers.insert("postrider-attempt", HeaderValue::from_static("2"));
        let cases = [
            (second(), false),
            (Arrival { body: body(2), ..second() }, true),
            (Arrival { webhook_id: "another".to_owned(), ..second() }, true),
            (unsigned, true),
        ];
        for (second, complains) in cases {
            let shown = format!("{second:?}");
            let remains =
                made::remains(|history| history.arrivals = vec![arrival(1, 0, minute(1)), second]);
            assert_eq!(!check(&remains).is_empty(), complains, "{shown}");
        }
    }
}
