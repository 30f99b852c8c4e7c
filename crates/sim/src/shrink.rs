//! Looks for the least of a world that still fails: leaves out all of something, then half of it, then
//! ever smaller pieces, and keeps whatever fails in the same way.

use crate::hazard::{Cuts, Hazard};

/// How many worlds are lived through at most to make one smaller.
const MAX_TRIES: u32 = 100;

/// How large a world is that nothing was left out of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Whole {
    pub(crate) events: u64,
    pub(crate) endpoints: usize,
}

/// What is left of a world.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Rest {
    events: u64,
    endpoints: Vec<usize>,
    hazards: Vec<Hazard>,
}

/// The smallest that was found of a world that fails as a whole. `fails` says whether one with these
/// cuts still does.
pub(crate) fn smallest(whole: Whole, mut fails: impl FnMut(&Cuts) -> bool) -> Cuts {
    let mut tries = MAX_TRIES;
    let mut still_fails = |rest: Rest| {
        let may_try = tries > 0;
        tries = tries.saturating_sub(1);
        may_try && fails(&rest.cuts(whole))
    };
    let mut rest = Rest {
        events: whole.events,
        endpoints: (0..whole.endpoints).collect(),
        hazards: Hazard::ALL.to_vec(),
    };
    loop {
        let before = rest.clone();
        let hazards = fewer(&rest.hazards, 0, |hazards| {
            still_fails(Rest { hazards: hazards.to_vec(), ..rest.clone() })
        });
        rest.hazards = hazards;
        let endpoints = fewer(&rest.endpoints, 1, |endpoints| {
            still_fails(Rest { endpoints: endpoints.to_vec(), ..rest.clone() })
        });
        rest.endpoints = endpoints;
        let events = less(rest.events, |events| still_fails(Rest { events, ..rest.clone() }));
        rest.events = events;
        // What could not be left out may be left out now that other things are.
        if rest == before {
            return rest.cuts(whole);
        }
    }
}

impl Rest {
    fn cuts(&self, whole: Whole) -> Cuts {
        let is_whole = self.endpoints.len() == whole.endpoints;
        Cuts {
            events: (self.events < whole.events).then_some(self.events),
            endpoints: (!is_whole).then(|| self.endpoints.clone()),
            without: Hazard::ALL
                .into_iter()
                .filter(|hazard| !self.hazards.contains(hazard))
                .collect(),
        }
    }
}

/// A list without whatever can be left out of it, at least `least` long.
fn fewer<T: Copy>(all: &[T], least: usize, mut still_fails: impl FnMut(&[T]) -> bool) -> Vec<T> {
    let mut left = all.to_vec();
    let mut piece = left.len();
    while piece > 0 {
        let mut at = 0;
        while at < left.len() {
            let end = left.len().min(at + piece);
            let mut without = left.clone();
            without.drain(at..end);
            if without.len() >= least && still_fails(&without) {
                left = without;
            } else {
                at = end;
            }
        }
        piece /= 2;
    }
    left
}

/// A number as far down as it goes, at least 1.
fn less(from: u64, mut still_fails: impl FnMut(u64) -> bool) -> u64 {
    let (mut number, mut step) = (from, from.div_ceil(2));
    while step > 0 {
        if number > step && still_fails(number - step) {
            number -= step;
        } else {
            step /= 2;
        }
    }
    number
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: Whole = Whole { events: 100, endpoints: 8 };

    fn has(cuts: &Cuts, endpoint: usize) -> bool {
        cuts.endpoints.as_ref().is_none_or(|left| left.contains(&endpoint))
    }

    #[test]
    fn only_what_it_takes_to_fail_is_left() {
        let mut tries = 0;
        let found = smallest(WHOLE, |cuts| {
            tries += 1;
            has(cuts, 1)
                && has(cuts, 6)
                && cuts.events.is_none_or(|events| events >= 12)
                && !cuts.without.contains(&Hazard::Pauses)
        });
        let needed = [Hazard::Pauses];
        let without: Vec<Hazard> =
            Hazard::ALL.into_iter().filter(|hazard| !needed.contains(hazard)).collect();
        let wanted = Cuts { events: Some(12), endpoints: Some(vec![1, 6]), without };
        assert_eq!(found, wanted);
        assert!(tries <= MAX_TRIES, "{tries}");
    }

    #[test]
    fn what_needs_everything_stays_whole_and_the_search_ends() {
        let mut tries = 0;
        let found = smallest(WHOLE, |_| {
            tries += 1;
            false
        });
        assert_eq!(found, Cuts::default());
        assert!(tries <= MAX_TRIES, "{tries}");
    }
}
