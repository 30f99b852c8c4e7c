//! One checker for each thing that must always hold. Each looks at what remains of a world and says where
//! the rule was broken: its own name, the rule, and the place.

mod after_success;
mod attempt_numbers;
mod by_age;
mod due;
mod duplicates;
mod durable;
mod isolated;
mod jumps;
mod kept;
#[cfg(test)]
mod made;
mod memory;
mod near;
mod one_each;
mod order;
mod prompt;
mod same_letter;
mod stale_writes;
mod stranded;
mod tenants;
mod whole;

use anyhow::Result;

use crate::world::Remains;

/// So many of one kind are enough to see what is wrong.
const MAX_SHOWN: usize = 5;

pub(crate) async fn check(remains: &Remains) -> Result<Vec<String>> {
    // In the order of the invariants.
    let found = [
        ("durable", durable::check(remains).await?),
        ("whole", whole::check(remains)),
        ("one_each", one_each::check(remains)),
        ("stranded", stranded::check(remains)),
        ("due", due::check(remains)),
        ("prompt", prompt::check(remains)),
        ("stale_writes", stale_writes::check(remains)),
        ("duplicates", duplicates::check(remains)),
        ("same_letter", same_letter::check(remains)),
        ("after_success", after_success::check(remains)),
        ("attempt_numbers", attempt_numbers::check(remains).await?),
        ("order", order::check(remains)),
        ("isolated", isolated::check(remains)),
        ("by_age", by_age::check(remains)),
        ("jumps", jumps::check(remains)),
        ("tenants", tenants::check(remains)),
        ("memory", memory::check(remains)),
        ("kept", kept::check(remains).await?),
    ];
    let shown = found.into_iter().flat_map(|(checker, found)| {
        found.into_iter().take(MAX_SHOWN).map(move |what| format!("{checker}: {what}"))
    });
    Ok(shown.collect())
}
