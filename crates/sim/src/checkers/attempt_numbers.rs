//! Invariant 9: attempts are numbered without gaps, and in one life of a delivery no more are counted
//! than its policy allows.

use anyhow::Result;
use postrider_core::DeliveryId;
use postrider_core::policy::Presets;
use postrider_store::ledger::Ledger as _;
use postrider_store::record::Attempt;

use super::near;
use crate::world::Remains;

pub(super) async fn check(remains: &Remains) -> Result<Vec<String>> {
    let resets = remains.chronicle.read(near::resets);
    let policies: Vec<_> = remains
        .scenario
        .endpoints
        .iter()
        .map(|plan| plan.policy.build(&Presets::default()).ok())
        .collect();
    let mut found = Vec::new();
    for record in &remains.deliveries {
        let attempts = remains.store.attempts(record.id).await?;
        let index = remains.endpoints.iter().position(|endpoint| *endpoint == record.endpoint);
        let policy = index.and_then(|index| policies.get(index)?.as_ref());
        let lives = resets.get(&record.id).copied().unwrap_or(0) + 1;
        let most = policy.and_then(|policy| usize::try_from(policy.max_attempts()?).ok());
        found.extend(judge(record.id, &attempts, most.map(|most| most.saturating_mul(lives))));
    }
    Ok(found)
}

fn judge(id: DeliveryId, attempts: &[Attempt], most: Option<usize>) -> Vec<String> {
    let mut found = Vec::new();
    let numbers: Vec<u32> = attempts.iter().map(|attempt| attempt.number).collect();
    let expected: Vec<u32> = (1..).take(numbers.len()).collect();
    if numbers != expected {
        found.push(format!("attempts have no gaps: {id} has {numbers:?}"));
    }
    let counted = attempts.iter().filter(|attempt| attempt.counted).count();
    if most.is_some_and(|most| counted > most) {
        found.push(format!("no more attempts than allowed: {id} has {counted}"));
    }
    found
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::made::minute;
    use super::*;

    fn attempts(numbers: &[(u32, bool)]) -> Vec<Attempt> {
        let made = numbers.iter().map(|(number, counted)| Attempt {
            number: *number,
            counted: *counted,
            started_at: minute(1),
            duration: Duration::ZERO,
            status: Some(503),
            class: None,
            error: None,
            response: None,
        });
        made.collect()
    }

    #[test]
    fn numbers_have_no_gaps_and_an_end() {
        let cases: [(&[(u32, bool)], bool); 5] = [
            (&[(1, true), (2, true)], false),
            (&[(1, true), (3, true)], true),
            (&[(1, true), (1, true)], true),
            (&[(1, true), (2, true), (3, true)], true),
            // What the endpoint asked to put off does not count.
            (&[(1, true), (2, false), (3, true)], false),
        ];
        for (numbers, complains) in cases {
            let found = judge(DeliveryId::from_i64(1), &attempts(numbers), Some(2));
            assert_eq!(!found.is_empty(), complains, "{numbers:?}");
        }
    }
}
