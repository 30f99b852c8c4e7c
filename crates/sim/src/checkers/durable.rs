//! Invariant 1: what a producer was told is stored survives everything that comes after.

use anyhow::Result;
use bytes::Bytes;
use postrider_core::EventId;
use postrider_store::ledger::Ledger as _;

use crate::world::Remains;

pub(super) async fn check(remains: &Remains) -> Result<Vec<String>> {
    let acknowledged: Vec<_> = remains.chronicle.read(|history| {
        let told = history.submitted.iter();
        told.filter_map(|one| Some((one.acknowledged?.0, one.tenant, one.body.clone()))).collect()
    });
    let mut found = Vec::new();
    for (id, tenant, body) in acknowledged {
        let event = remains.store.event(tenant, id).await?;
        found.extend(judge(id, &body, event.map(|event| event.body).as_ref()));
    }
    Ok(found)
}

fn judge(id: EventId, sent: &Bytes, stored: Option<&Bytes>) -> Option<String> {
    match stored {
        None => Some(format!("what is acknowledged survives: {id} is gone")),
        Some(body) if body != sent => {
            Some(format!("what is acknowledged survives: {id} has another body"))
        }
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::made::body;
    use super::*;

    #[test]
    fn what_was_told_is_there_as_it_was_sent() {
        let id = EventId::from_i64(1);
        for (stored, complains) in [(Some(body(1)), false), (Some(body(2)), true), (None, true)] {
            assert_eq!(judge(id, &body(1), stored.as_ref()).is_some(), complains, "{stored:?}");
        }
    }
}
