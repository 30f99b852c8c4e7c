//! The state machine walked from end to end, and the page that shows it.
//!
//! With `POSTRIDER_WRITE_DOCS=1` the page is written instead of compared.

mod page;
mod walk;

use std::collections::BTreeSet;
use std::{env, fs};

use postrider_core::State;
use walk::{Effect, Walk};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/state-machine.md");

#[test]
fn the_page_is_what_the_machine_does() {
    let rendered = page::render(&Walk::new());
    if env::var("POSTRIDER_WRITE_DOCS").is_ok_and(|value| value == "1") {
        fs::write(PAGE, rendered).expect(PAGE);
        return;
    }
    let committed = fs::read_to_string(PAGE).unwrap_or_default();
    assert!(
        rendered == committed,
        "docs/state-machine.md is not what the state machine does: run cargo xtask docs"
    );
}

#[test]
fn every_state_answers_everything_that_can_happen() {
    let walk = Walk::new();
    for state in State::ALL {
        for (happening, name) in &walk.happenings {
            let effects = walk.effects(state, *happening);
            assert!(!effects.is_empty(), "{} on {name}", state.as_str());
        }
    }
    let names: BTreeSet<&str> = walk.happenings.iter().map(|(_, name)| *name).collect();
    assert_eq!(names.len(), walk.happenings.len(), "two happenings share a name");
}

/// Written by hand from the design: what the page must show whatever the code says.
#[test]
fn the_edges_are_those_of_the_design() {
    let designed = [
        "pending -> in_flight",
        "pending -> dead (expired)",
        "pending -> pending",
        "pending -> cancelled",
        "in_flight -> delivered",
        "in_flight -> failed (rejected)",
        "in_flight -> dead (exhausted)",
        "in_flight -> dead (expired)",
        "in_flight -> retrying",
        "in_flight -> pending",
        "in_flight -> cancelled",
        "retrying -> in_flight",
        "retrying -> dead (exhausted)",
        "retrying -> dead (expired)",
        "retrying -> pending",
        "retrying -> cancelled",
        "failed -> pending",
        "dead -> pending",
        "cancelled -> pending",
    ];
    let walked: BTreeSet<String> = Walk::new()
        .moves()
        .map(|(from, _, next)| format!("{} -> {}", from.as_str(), page::ending(next)))
        .collect();
    assert_eq!(walked, designed.map(str::to_owned).into());
}

#[test]
fn every_edge_of_the_walk_is_drawn() {
    let walk = Walk::new();
    let page = page::render(&walk);
    let mut drawn = BTreeSet::new();
    for line in page.lines() {
        let Some((from, rest)) = line.trim().split_once(" --> ") else { continue };
        let Some((to, label)) = rest.split_once(": ") else { continue };
        let (reason, names) = label.split_once(" – ").unwrap_or(("", label));
        drawn.extend(names.split(" / ").map(|name| [from, to, reason, name].join("|")));
    }
    assert!(drawn.remove("[*]|pending||accepted"));
    let walked: BTreeSet<String> = walk
        .moves()
        .map(|(from, name, next)| {
            let reason = next.reason.map_or("", |reason| reason.as_str());
            [from.as_str(), next.state.as_str(), reason, name].join("|")
        })
        .collect();
    assert_eq!(drawn, walked);
}

#[test]
fn only_a_reset_leaves_a_terminal_state_and_nothing_leaves_delivered() {
    let walk = Walk::new();
    for state in State::ALL.into_iter().filter(|state| state.is_terminal()) {
        let ways_out: BTreeSet<&str> =
            walk.moves().filter(|(from, ..)| *from == state).map(|(_, name, _)| name).collect();
        let expected: &[&str] = if state == State::Delivered { &[] } else { &["reset"] };
        assert_eq!(ways_out, expected.iter().copied().collect(), "{}", state.as_str());
    }
}

#[test]
fn a_waiting_state_has_a_due_time_and_a_dead_letter_a_reason() {
    for (from, name, next) in Walk::new().moves() {
        let waits = matches!(next.state, State::Pending | State::Retrying);
        assert_eq!(next.due.is_some(), waits, "{} on {name}", from.as_str());
        let dead_letter = next.state.is_dead_letter();
        assert_eq!(next.reason.is_some(), dead_letter, "{} on {name}", from.as_str());
    }
}

#[test]
fn the_walk_meets_every_reason_not_to_move() {
    let walk = Walk::new();
    let mut met = BTreeSet::new();
    for state in State::ALL {
        for (happening, _) in &walk.happenings {
            for effect in walk.effects(state, *happening) {
                if let Effect::Stays(why) = effect {
                    met.insert(page::why(why));
                }
            }
        }
    }
    let known = [
        "not due",
        "not in flight",
        "in flight",
        "already delivered",
        "already ended",
        "within its age",
    ];
    assert_eq!(met, known.into());
}
