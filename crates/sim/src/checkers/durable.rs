//! Invariant 1: what a producer was told is stored survives everything that comes after.

use anyhow::Result;
use postrider_store::ledger::Ledger as _;

use crate::world::Remains;

pub(super) async fn check(remains: &Remains) -> Result<Vec<String>> {
    let acknowledged: Vec<_> = remains.chronicle.read(|history| {
        let told = history.submitted.iter();
        told.filter_map(|one| Some((one.acknowledged?.0, one.tenant, one.body.clone()))).collect()
    });
    let mut found = Vec::new();
    for (id, tenant, body) in acknowledged {
        match remains.store.event(tenant, id).await? {
            None => found.push(format!("what is acknowledged survives: {id} is gone")),
            Some(event) if event.body != body => {
                found.push(format!("what is acknowledged survives: {id} has another body"));
            }
            Some(_) => {}
        }
    }
    Ok(found)
}
