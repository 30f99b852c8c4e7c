//! One checker for each thing that must always hold. Each looks at what remains of a world and says, in
//! a sentence that begins with the rule, where the rule was broken.

mod after_success;
mod attempt_numbers;
mod due;
mod duplicates;
mod durable;
mod one_each;
mod order;
mod prompt;
mod same_letter;
mod stale_writes;
mod whole;

use anyhow::Result;

use crate::world::Remains;

/// So many of one kind are enough to see what is wrong.
const MAX_SHOWN: usize = 5;

pub(crate) async fn check(remains: &Remains) -> Result<Vec<String>> {
    let found = [
        durable::check(remains).await?,
        whole::check(remains),
        one_each::check(remains),
        due::check(remains),
        stale_writes::check(remains),
        duplicates::check(remains),
        same_letter::check(remains),
        after_success::check(remains),
        attempt_numbers::check(remains).await?,
        order::check(remains),
        prompt::check(remains),
    ];
    Ok(found.into_iter().flat_map(|found| found.into_iter().take(MAX_SHOWN)).collect())
}
