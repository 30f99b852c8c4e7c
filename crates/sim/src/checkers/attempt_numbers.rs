//! Invariant 9: attempts are numbered without gaps, and no more are counted than the policy allows.

use anyhow::Result;
use postrider_core::policy::Presets;
use postrider_store::ledger::Ledger as _;

use crate::world::Remains;

pub(super) async fn check(remains: &Remains) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for record in &remains.deliveries {
        let attempts = remains.store.attempts(record.id).await?;
        let numbers: Vec<u32> = attempts.iter().map(|attempt| attempt.number).collect();
        let expected: Vec<u32> = (1..).take(numbers.len()).collect();
        if numbers != expected {
            found.push(format!("attempts have no gaps: {} has {numbers:?}", record.id));
        }
        let index = remains.endpoints.iter().position(|endpoint| *endpoint == record.endpoint);
        let plan = index.and_then(|index| remains.scenario.endpoints.get(index));
        let policy = plan.and_then(|plan| plan.policy.build(&Presets::default()).ok());
        let most = policy.and_then(|policy| policy.max_attempts());
        let counted = attempts.iter().filter(|attempt| attempt.counted).count();
        if most.is_some_and(|most| counted > usize::try_from(most).unwrap_or(usize::MAX)) {
            found.push(format!("no more attempts than allowed: {} has {counted}", record.id));
        }
    }
    Ok(found)
}
