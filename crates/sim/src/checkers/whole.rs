//! Invariant 2: an event is there with all its deliveries, or not at all, whatever its producer heard.

use std::collections::{BTreeMap, BTreeSet};

use postrider_core::{EndpointId, EventId};

use crate::history::{Deed, History};
use crate::world::{Remains, TENANT};

pub(super) fn check(remains: &Remains) -> Vec<String> {
    let mut goes_to: BTreeMap<EventId, BTreeSet<EndpointId>> = BTreeMap::new();
    let mut of_first = BTreeSet::new();
    for record in remains.deliveries.iter().filter(|record| !record.replay) {
        goes_to.entry(record.event).or_default().insert(record.endpoint);
        if record.tenant == TENANT {
            of_first.insert(record.event);
        }
    }
    remains.chronicle.read(|history| {
        let listening = listening(remains, history);
        let mut wanted: BTreeMap<EventId, Vec<EndpointId>> =
            of_first.into_iter().map(|event| (event, listening.clone())).collect();
        // Those of which no delivery is there would not be seen otherwise.
        for submitted in &history.submitted {
            let Some((event, _)) = submitted.acknowledged else { continue };
            let by_kind = |one: &EndpointId| {
                let known = history.operations.neighbour(*one);
                known.is_some_and(|one| one.kind == submitted.kind)
            };
            let neighbours = history.operations.neighbours.iter().map(|one| one.endpoint);
            let listening = if submitted.tenant == TENANT {
                listening.clone()
            } else {
                neighbours.filter(by_kind).collect()
            };
            wanted.insert(event, listening);
        }
        let mut found = Vec::new();
        for (event, endpoints) in wanted {
            let there = goes_to.remove(&event).unwrap_or_default();
            let missing: Vec<_> = endpoints.iter().filter(|one| !there.contains(one)).collect();
            if !missing.is_empty() {
                found.push(format!("an event is whole: {event} has nothing for {missing:?}"));
            }
        }
        found
    })
}

/// All endpoints of the first tenant that were there from the beginning to the end.
fn listening(remains: &Remains, history: &History) -> Vec<EndpointId> {
    let deleted = |id: &EndpointId| history.operations.is_asked(Deed::Delete(*id));
    remains.endpoints.iter().filter(|id| !deleted(id)).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::super::made::{self, minute, record, submitted};
    use super::*;

    #[test]
    fn an_event_goes_to_all_that_listen() {
        for (places, complains) in [(&[0, 1][..], false), (&[0][..], true), (&[][..], true)] {
            let mut remains =
                made::remains(|history| history.submitted = vec![submitted(1, minute(1))]);
            remains.deliveries = places.iter().map(|place| record(1, *place)).collect();
            assert_eq!(!check(&remains).is_empty(), complains, "{places:?}");
        }
    }

    #[test]
    fn one_that_nobody_was_told_of_is_whole_too() {
        let mut remains = made::remains(|_| {});
        remains.deliveries = vec![record(1, 0)];
        assert_eq!(check(&remains).len(), 1);
    }

    #[test]
    fn an_endpoint_that_was_deleted_may_be_left_out() {
        let gone = record(1, 1).endpoint;
        let mut remains = made::remains(|history| made::ask(history, Deed::Delete(gone)));
        remains.deliveries = vec![record(1, 0)];
        assert_eq!(check(&remains), [] as [&str; 0]);
    }
}
