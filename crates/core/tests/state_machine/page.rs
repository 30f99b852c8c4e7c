//! The walk as a page: what can become of what, when, and the picture of it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use postrider_core::delivery::{Next, Why};
use postrider_core::{Happening, Reason, State};

use crate::walk::{DIMENSIONS, Effect, Situation, Wait, Walk};

const INTRODUCTION: &str = "\
# The state machine of a delivery

This page is rendered from a walk of `step` in `crates/core/src/delivery.rs` over every state, \
everything that can happen and every situation that matters; `cargo xtask docs` writes it, and a \
test fails while it differs.
";

const OVERVIEW: &str = "
## What can become of what

A cell names the states a happening can lead to, with the reason where there is one. In italics: \
why nothing changes.
";

const DETAILS: &str = "
## When

Everything that can move a delivery, told apart by the situations that decide. `age almost used` \
leaves too little for the next wait; `no attempt left` comes about when a policy is made shorter \
under a delivery that is on its way.
";

const PICTURE: &str = "
## The picture
";

pub(crate) fn render(walk: &Walk) -> String {
    [INTRODUCTION, OVERVIEW, &overview(walk), DETAILS, &details(walk), PICTURE, &diagram(walk)]
        .concat()
}

/// The state a move leads to, and why it is a dead letter if it is one.
pub(crate) fn ending(next: &Next) -> String {
    match next.reason {
        None => next.state.as_str().to_owned(),
        Some(reason) => format!("{} ({})", next.state.as_str(), reason.as_str()),
    }
}

pub(crate) fn why(why: Why) -> &'static str {
    match why {
        Why::NotDue => "not due",
        Why::NotInFlight => "not in flight",
        Why::InFlight => "in flight",
        Why::AlreadyDelivered => "already delivered",
        Why::AlreadyEnded => "already ended",
        Why::WithinAge => "within its age",
    }
}

fn overview(walk: &Walk) -> String {
    let mut table = String::from("\n|");
    for state in State::ALL {
        write!(table, " | {}", state.as_str()).expect("a string");
    }
    table.push_str(" |\n|");
    table.push_str(&" --- |".repeat(1 + State::ALL.len()));
    table.push('\n');
    for (happening, name) in &walk.happenings {
        write!(table, "| {name}").expect("a string");
        for state in State::ALL {
            write!(table, " | {}", endings(walk, state, *happening).join(", ")).expect("a string");
        }
        table.push_str(" |\n");
    }
    table
}

/// What a happening can lead to, moves first.
fn endings(walk: &Walk, state: State, happening: Happening) -> Vec<String> {
    let mut moves = Vec::new();
    let mut stays = Vec::new();
    for effect in walk.effects(state, happening) {
        let (kind, ending) = match effect {
            Effect::Moves(next, _) => (&mut moves, ending(&next)),
            Effect::Stays(reason) => (&mut stays, format!("*{}*", why(reason))),
        };
        if !kind.contains(&ending) {
            kind.push(ending);
        }
    }
    [moves, stays].concat()
}

fn details(walk: &Walk) -> String {
    let mut table =
        String::from("\n| state | happening | situation | result |\n| --- | --- | --- | --- |\n");
    for state in State::ALL {
        for (happening, name) in &walk.happenings {
            let cases = walk.cases(state, *happening);
            if cases.iter().all(|(_, effect)| matches!(effect, Effect::Stays(_))) {
                continue;
            }
            let results: Vec<(Situation, String)> = cases
                .into_iter()
                .map(|(situation, effect)| (situation, describe(*happening, &effect)))
                .collect();
            for (situation, result) in tell_apart(&results, 0) {
                let situation = if situation.is_empty() { "any" } else { &situation.join(", ") };
                writeln!(table, "| {} | {name} | {situation} | {result} |", state.as_str())
                    .expect("a string");
            }
        }
    }
    table
}

/// What is true of a situation, and what happens then.
type Rows = Vec<(Vec<String>, String)>;

/// The fewest rows that say what happens when: a dimension is named only where it decides.
fn tell_apart(cases: &[(Situation, String)], dimension: usize) -> Rows {
    let (_, first) = cases.first().expect("a situation");
    if cases.iter().all(|(_, result)| result == first) {
        return vec![(Vec::new(), first.clone())];
    }
    // Values of this dimension that lead to the same rows are named together.
    let mut branches: Vec<(Vec<&str>, Rows)> = Vec::new();
    for (place, value) in DIMENSIONS[dimension].iter().enumerate() {
        let with_value: Vec<(Situation, String)> =
            cases.iter().filter(|(situation, _)| situation[dimension] == place).cloned().collect();
        if with_value.is_empty() {
            continue;
        }
        let rows = tell_apart(&with_value, dimension + 1);
        match branches.iter_mut().find(|(_, known)| *known == rows) {
            Some((values, _)) => values.push(value),
            None => branches.push((vec![value], rows)),
        }
    }
    let decides = branches.len() > 1;
    let mut rows = Vec::new();
    for (values, below) in branches {
        for (mut situation, result) in below {
            if decides {
                situation.insert(0, values.join(" or "));
            }
            rows.push((situation, result));
        }
    }
    rows
}

fn describe(happening: Happening, effect: &Effect) -> String {
    let (next, wait) = match effect {
        Effect::Stays(reason) => return format!("stays: {}", why(*reason)),
        Effect::Moves(next, wait) => (next, *wait),
    };
    let mut parts = vec![format!("**{}**", ending(next))];
    match wait {
        Wait::None => {}
        Wait::AtOnce => parts.push("due at once".into()),
        Wait::Backoff => parts.push("due after the backoff".into()),
        Wait::Hint => parts.push("due when the hint says".into()),
        Wait::EndOfAge => parts.push("due at the end of its age".into()),
    }
    match happening {
        Happening::Finish(_) | Happening::LeaseExpired | Happening::Release => {
            parts.push(if next.counted { "counts" } else { "does not count" }.into());
        }
        Happening::Reset => parts.push("attempts and age from zero".into()),
        Happening::Start | Happening::Sweep | Happening::Cancel => {}
    }
    if next.hold_endpoint_until.is_some() {
        parts.push("holds the endpoint".into());
    }
    if next.disable_endpoint {
        parts.push("disables the endpoint".into());
    }
    parts.join("; ")
}

/// One arrow for each pair of states and reason, named after all that leads along it.
fn diagram(walk: &Walk) -> String {
    let mut diagram =
        String::from("\n```mermaid\nstateDiagram-v2\n    [*] --> pending: accepted\n");
    for ((from, to, reason), names) in arrows(walk) {
        let (from, to) = (State::ALL[from].as_str(), State::ALL[to].as_str());
        let reason = reason.map(|reason| format!("{reason} – ")).unwrap_or_default();
        writeln!(diagram, "    {from} --> {to}: {reason}{}", names.join(" / ")).expect("a string");
    }
    diagram.push_str("    delivered --> [*]\n```\n");
    diagram
}

/// By the places of the two states, so that arrows stand in the order of the states.
type Arrows<'a> = BTreeMap<(usize, usize, Option<&'a str>), Vec<&'a str>>;

fn arrows(walk: &Walk) -> Arrows<'_> {
    let mut arrows = Arrows::new();
    for (from, name, next) in walk.moves() {
        let reason = next.reason.map(Reason::as_str);
        let names = arrows.entry((place(from), place(next.state), reason)).or_default();
        if !names.contains(&name) {
            names.push(name);
        }
    }
    arrows
}

fn place(state: State) -> usize {
    State::ALL.iter().position(|known| *known == state).expect("every state is listed")
}
