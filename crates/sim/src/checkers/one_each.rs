//! Invariant 3: one delivery for each event and endpoint that matched; and what is sent again under its
//! key is the same event.

use std::collections::{BTreeMap, BTreeSet};

use crate::history::History;
use crate::world::Remains;

pub(super) fn check(remains: &Remains) -> Vec<String> {
    let mut counts = BTreeMap::new();
    for record in remains.deliveries.iter().filter(|record| !record.replay) {
        *counts.entry((record.event, record.endpoint)).or_insert(0) += 1;
    }
    let many = counts.into_iter().filter(|(_, count)| *count != 1);
    let mut found: Vec<String> = many
        .map(|((event, endpoint), count)| {
            format!("one delivery each: {event} has {count} to {endpoint}")
        })
        .collect();
    found.extend(remains.chronicle.read(stored_twice));
    found
}

/// No two submissions have the same body, so two events with one body are one submission's.
fn stored_twice(history: &History) -> Vec<String> {
    let keyed = history.submitted.iter().filter(|one| one.key.is_some());
    let keyed: BTreeSet<_> = keyed.map(|one| &one.body).collect();
    let mut events: BTreeMap<_, BTreeSet<&str>> = BTreeMap::new();
    for arrival in history.arrivals.iter().filter(|arrival| keyed.contains(&arrival.body)) {
        events.entry(&arrival.body).or_default().insert(&arrival.webhook_id);
    }
    let twice = events.into_values().filter(|events| events.len() > 1);
    twice.map(|events| format!("one event for a key: {events:?} are the same")).collect()
}

#[cfg(test)]
mod tests {
    use super::super::made::{self, arrival, body, minute, record, submitted};
    use super::*;
    use crate::history::Arrival;

    #[test]
    fn an_endpoint_has_one_delivery_of_an_event() {
        let mut remains = made::remains(|_| {});
        remains.deliveries = vec![record(1, 0), record(1, 1), record(2, 0)];
        assert_eq!(check(&remains), [] as [&str; 0]);
        remains.deliveries.push(record(2, 0));
        assert_eq!(check(&remains).len(), 1);
        // Who asks for a replay gets another.
        remains.deliveries[3].replay = true;
        assert_eq!(check(&remains), [] as [&str; 0]);
    }

    #[test]
    fn what_has_a_key_is_stored_once() {
        for (key, complains) in [(Some("key".to_owned()), true), (None, false)] {
            let remains = made::remains(|history| {
                history.submitted = vec![submitted(1, minute(1))];
                history.submitted[0].key.clone_from(&key);
                let again = Arrival { body: body(1), ..arrival(2, 0, minute(2)) };
                history.arrivals = vec![arrival(1, 0, minute(1)), again];
            });
            assert_eq!(!check(&remains).is_empty(), complains, "{key:?}");
        }
    }
}
