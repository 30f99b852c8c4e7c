//! Invariant 14: what belongs to one tenant goes to no other, and no other sees or changes it.

use std::collections::BTreeMap;

use crate::world::{Remains, TENANT};

pub(super) fn check(remains: &Remains) -> Vec<String> {
    remains.chronicle.read(|history| {
        let operations = &history.operations;
        let mut found: Vec<String> = operations
            .trespasses
            .iter()
            .map(|what| format!("tenants are apart: one could {what}"))
            .collect();
        let first = remains.endpoints.iter().map(|endpoint| (*endpoint, TENANT));
        let second = operations.neighbours.iter().map(|one| (one.endpoint, one.tenant));
        let owners: BTreeMap<_, _> = first.chain(second).collect();
        let told = history.submitted.iter();
        let senders: BTreeMap<_, _> =
            told.filter_map(|one| Some((one.acknowledged?.0, one.tenant))).collect();
        for record in &remains.deliveries {
            let whose = [owners.get(&record.endpoint), senders.get(&record.event)];
            if whose.into_iter().flatten().any(|tenant| *tenant != record.tenant) {
                found.push(format!(
                    "tenants are apart: {} of {} goes to {}, which is another's",
                    record.id, record.event, record.endpoint
                ));
            }
        }
        found
    })
}

#[cfg(test)]
mod tests {
    use postrider_core::TenantId;

    use super::super::made::{self, minute, record, submitted};
    use super::*;
    use crate::history::Submitted;

    #[test]
    fn an_event_of_one_does_not_go_to_the_other() {
        let other = TenantId(2);
        for (sender, complains) in [(TENANT, false), (other, true)] {
            let mut remains = made::remains(|history| {
                let sent = submitted(1, minute(1));
                history.submitted = vec![Submitted { tenant: sender, ..sent }];
            });
            remains.deliveries = vec![record(1, 0)];
            assert_eq!(!check(&remains).is_empty(), complains, "{sender:?}");
        }
    }

    #[test]
    fn a_row_of_the_other_is_not_theirs_to_have() {
        let mut remains = made::remains(|_| {});
        remains.deliveries = vec![record(1, 0)];
        remains.deliveries[0].tenant = TenantId(2);
        assert_eq!(check(&remains).len(), 1);
    }

    #[test]
    fn whoever_gets_at_what_is_anothers_is_told_of() {
        let remains = made::remains(|history| {
            history.operations.trespasses = vec!["cancel a delivery".to_owned()];
        });
        assert_eq!(check(&remains).len(), 1);
    }
}
