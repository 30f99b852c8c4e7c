//! Invariant 16: nothing that was accepted is discarded silently. It is delivered, and then it was taken;
//! or it is a dead letter, and then it is listed as one; or somebody has cancelled it.

use std::collections::BTreeSet;

use anyhow::Result;
use postrider_core::{DeliveryId, State, TenantId};
use postrider_store::ledger::{DeliveryFilter, DeliveryQuery, Ledger as _};
use postrider_store::record::DeliveryRecord;

use crate::history::{Deed, History};
use crate::scenario::Taker;
use crate::world::Remains;

pub(super) async fn check(remains: &Remains) -> Result<Vec<String>> {
    let tenants: BTreeSet<_> = remains.deliveries.iter().map(|record| record.tenant.0).collect();
    let mut listed = BTreeSet::new();
    for tenant in tenants {
        listed.extend(dead_letters(remains, TenantId(tenant)).await?);
    }
    Ok(judge(remains, &listed))
}

/// What an operator is shown who looks for dead letters.
async fn dead_letters(remains: &Remains, tenant: TenantId) -> Result<BTreeSet<DeliveryId>> {
    let states = vec![State::Failed, State::Dead];
    let filter = DeliveryFilter { states, ..DeliveryFilter::default() };
    let mut query = DeliveryQuery { filter, limit: 250, ..DeliveryQuery::default() };
    let mut shown = BTreeSet::new();
    loop {
        let listed = remains.store.deliveries(tenant, query.clone()).await?;
        shown.extend(listed.rows.iter().map(|record| record.id));
        match listed.next {
            Some(next) => query.after = Some(next),
            None => return Ok(shown),
        }
    }
}

fn judge(remains: &Remains, listed: &BTreeSet<DeliveryId>) -> Vec<String> {
    remains.chronicle.read(|history| {
        let (arrived, taken) = arrived(history);
        let mut found = Vec::new();
        for record in &remains.deliveries {
            let DeliveryRecord { id, endpoint, state, .. } = record;
            let trouble = match state {
                State::Delivered if is_sent_to(remains, history, record) => {
                    (!taken.contains(id)).then_some("is delivered, and nobody took it")
                }
                State::Delivered => {
                    (!arrived.contains(id)).then_some("is delivered, and nobody got it")
                }
                State::Failed | State::Dead => {
                    (!listed.contains(id)).then_some("is a dead letter, and not listed as one")
                }
                State::Cancelled => {
                    let operations = &history.operations;
                    let asked = operations.is_asked(Deed::Cancel(*id))
                        || operations.is_asked(Deed::Delete(*endpoint));
                    (!asked).then_some("is cancelled, and nobody asked for it")
                }
                // Whether these end is for another to judge.
                State::Pending | State::Retrying | State::InFlight => None,
            };
            if let Some(trouble) = trouble {
                found.push(format!("nothing is discarded: {id} of {endpoint} {trouble}"));
            }
        }
        found
    })
}

/// What arrived at all, and what was taken.
fn arrived(history: &History) -> (BTreeSet<DeliveryId>, BTreeSet<DeliveryId>) {
    let all = history.arrivals.iter().map(|arrival| arrival.delivery).collect();
    let well = |status: Option<u16>| status.is_some_and(|status| (200..300).contains(&status));
    let taken = history.arrivals.iter().filter(|arrival| well(arrival.status));
    (all, taken.map(|arrival| arrival.delivery).collect())
}

/// Whether its endpoint answers with a status. What a worker said may be stored without its knowing.
fn is_sent_to(remains: &Remains, history: &History, record: &DeliveryRecord) -> bool {
    let index = remains.endpoints.iter().position(|known| *known == record.endpoint);
    match index.and_then(|index| remains.scenario.endpoints.get(index)) {
        Some(plan) => plan.taker == Taker::Url,
        None => history.operations.neighbour(record.endpoint).is_some(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::made::{self, arrival, in_state, minute, record};
    use super::*;

    fn world(state: State, with: impl Fn(&mut History), listed: &[DeliveryId]) -> Vec<String> {
        let mut remains = made::remains(|history| with(history));
        remains.deliveries = vec![in_state(record(1, 0), state)];
        judge(&remains, &listed.iter().copied().collect())
    }

    #[test]
    fn delivered_is_what_was_taken() {
        let taken = |history: &mut History| history.arrivals = vec![arrival(1, 0, minute(1))];
        assert_eq!(world(State::Delivered, taken, &[]), [] as [&str; 0]);
        assert_eq!(world(State::Delivered, |_| {}, &[]).len(), 1);
    }

    #[test]
    fn a_dead_letter_is_listed() {
        let id = record(1, 0).id;
        for state in [State::Failed, State::Dead] {
            assert_eq!(world(state, |_| {}, &[id]), [] as [&str; 0]);
            assert_eq!(world(state, |_| {}, &[]).len(), 1);
        }
    }

    #[test]
    fn only_who_is_asked_cancels() {
        let record = record(1, 0);
        let asked = |deed| move |history: &mut History| made::ask(history, deed);
        assert_eq!(world(State::Cancelled, |_| {}, &[]).len(), 1);
        for deed in [Deed::Cancel(record.id), Deed::Delete(record.endpoint)] {
            assert_eq!(world(State::Cancelled, asked(deed), &[]), [] as [&str; 0]);
        }
        assert_eq!(world(State::Cancelled, asked(Deed::Pause(record.endpoint)), &[]).len(), 1);
    }
}
