//! Invariant 15: memory is bounded whatever waits. Of one endpoint no more is in memory than a window
//! has room for, and no more is in flight than it may have.

use crate::world::Remains;

/// What the architecture promises of a window.
const WINDOW: usize = 1_024;
const WINDOW_BYTES: usize = 1 << 20;
/// In flight to an endpoint that says nothing else.
const IN_FLIGHT: u32 = 128;

pub(super) fn check(remains: &Remains) -> Vec<String> {
    remains.chronicle.read(|history| {
        let mut found = Vec::new();
        for held in &history.operations.holdings {
            let neighbour = history.operations.neighbour(held.endpoint);
            let body_bytes = neighbour.map_or(1, |one| one.body_bytes.max(1));
            // The last one that fits begins below the limit, and may end above it.
            let most = WINDOW_BYTES.div_ceil(body_bytes).min(WINDOW);
            if held.window > most {
                found.push(format!(
                    "memory is bounded: {} of {} wait in memory at {}, {most} have room",
                    held.window, held.endpoint, held.at
                ));
            }
            let most = neighbour.map_or(IN_FLIGHT, |one| one.max_in_flight);
            if held.in_flight > most as usize {
                found.push(format!(
                    "memory is bounded: {} of {} are in flight at {}, {most} may be",
                    held.in_flight, held.endpoint, held.at
                ));
            }
        }
        found
    })
}

#[cfg(test)]
mod tests {
    use postrider_core::{EndpointId, TenantId};

    use super::super::made::{self, minute};
    use super::*;
    use crate::history::{Holding, Neighbour};

    #[test]
    fn a_window_is_bounded_by_its_number_and_by_its_bytes() {
        let cases = [
            (1, 1_024, 0, false),
            (1, 1_025, 0, true),
            (1 << 19, 2, 0, false),
            (1 << 19, 3, 0, true),
        ];
        for (body_bytes, window, in_flight, complains) in
            cases.into_iter().chain([(1, 0, 2, false), (1, 0, 3, true)])
        {
            let endpoint = EndpointId::from_i64(9);
            let remains = made::remains(|history| {
                history.operations.neighbours = vec![Neighbour {
                    tenant: TenantId(2),
                    endpoint,
                    kind: "heavy.made",
                    max_in_flight: 2,
                    body_bytes,
                }];
                history.operations.holdings =
                    vec![Holding { at: minute(1), endpoint, window, in_flight }];
            });
            assert_eq!(!check(&remains).is_empty(), complains, "{body_bytes} {window} {in_flight}");
        }
    }
}
