//! Invariant 4: nothing is stranded. Once all is well, everything comes to its end without help.

use crate::world::Remains;

pub(super) fn check(remains: &Remains) -> Vec<String> {
    let unfinished = remains.deliveries.iter().filter(|record| !record.state.is_terminal());
    remains.chronicle.read(|history| {
        unfinished
            .map(|record| {
                let due = record.due.map_or_else(|| "never".to_owned(), |due| due.to_string());
                let deeds = history.operations.of(record.endpoint);
                format!(
                    "none is stranded: {} of {} is {:?} though all is well, due {due}, parked {}; its endpoint: {deeds}",
                    record.id, record.endpoint, record.state, record.parked
                )
            })
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use postrider_core::State;

    use super::super::made::{self, record};
    use super::*;

    #[test]
    fn what_has_not_ended_when_all_is_well_is_stranded() {
        for (state, stranded) in [
            (State::Pending, true),
            (State::Retrying, true),
            (State::InFlight, true),
            (State::Delivered, false),
            (State::Failed, false),
            (State::Dead, false),
            (State::Cancelled, false),
        ] {
            let mut remains = made::remains(|_| {});
            remains.deliveries = vec![made::in_state(record(1, 0), state)];
            assert_eq!(!check(&remains).is_empty(), stranded, "{state:?}");
        }
    }
}
