//! Putting dead letters into groups: the same for every backend, by reading its list of them.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use postrider_core::{EndpointId, TenantId};

use super::code;
use super::pages::dead_letters;
use crate::error::Error;
use crate::journal::MAX_PAGE;
use crate::ledger::{DeliveryFilter, Direction, Group, Groups, Ledger, MAX_GROUPED};
use crate::record::DeliveryRecord;

/// They are read in so many pages. No more are read when a filter passes over most of what is there
/// and the pages come short: what that costs is bounded by what a page looks at.
const PAGES: usize = 5;
const PER_PAGE: usize = MAX_GROUPED / PAGES;
const _: () = assert!(PER_PAGE <= MAX_PAGE && PER_PAGE * PAGES == MAX_GROUPED);

/// The newest dead letters that `filter` selects, by where they were to go and why they did not.
pub(crate) async fn groups(
    ledger: &impl Ledger,
    tenant: TenantId,
    filter: DeliveryFilter,
) -> Result<Groups, Error> {
    let mut grouping = Grouping::default();
    let Some(mut query) = dead_letters(filter, PER_PAGE) else { return Ok(grouping.end(true)) };
    query.direction = Direction::NewestFirst;
    for _ in 0..PAGES {
        let listed = ledger.deliveries(tenant, query.clone()).await?;
        for record in listed.rows {
            grouping.add(record);
        }
        if listed.next.is_none() {
            return Ok(grouping.end(true));
        }
        query.after = listed.next;
    }
    Ok(grouping.end(false))
}

/// Groups in the making.
#[derive(Default)]
struct Grouping {
    looked_at: u64,
    groups: BTreeMap<Key, Group>,
}

/// What the members of a group have in common: the endpoint, and the codes of state, class and reason.
type Key = (EndpointId, i64, Option<i64>, Option<i64>);

impl Grouping {
    fn add(&mut self, record: DeliveryRecord) {
        let DeliveryRecord { endpoint, state, class, reason, ended_at, last_error, .. } = record;
        let key = (endpoint, code::state(state), class.map(code::class), reason.map(code::reason));
        let group = self.groups.entry(key).or_insert_with(|| Group {
            endpoint,
            state,
            class,
            reason,
            deliveries: 0,
            newest_at: None,
            last_error: None,
        });
        self.looked_at += 1;
        group.deliveries += 1;
        // Of those that ended at the same time the one that is met first is the newest.
        if ended_at > group.newest_at {
            (group.newest_at, group.last_error) = (ended_at, last_error);
        }
    }

    fn end(self, complete: bool) -> Groups {
        let mut groups: Vec<Group> = self.groups.into_values().collect();
        groups.sort_by_key(|group| Reverse((group.deliveries, group.newest_at)));
        Groups { groups, looked_at: self.looked_at, complete }
    }
}
