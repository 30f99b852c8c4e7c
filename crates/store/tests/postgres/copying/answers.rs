//! All that a store answers, so that two can be compared.

use postrider_core::delivery::State;
use postrider_store::audit::AuditQuery;
use postrider_store::journal::Page;
use postrider_store::ledger::{DeliveryFilter, DeliveryQuery, Direction, EventQuery};
use postrider_store::measures::{Grain, Of};

use super::super::*;
use super::filled::{ENDPOINTS, JOBS, TENANTS};

/// Asks both everything, and compares what they say.
pub(super) async fn assert_same(one: &dyn Store, other: &dyn Store, now: Timestamp) {
    // Compared as they are: what is written for people leaves secrets out.
    assert_eq!(one.endpoints().await.expect("read"), other.endpoints().await.expect("read"));
    assert_eq!(one.sources().await.expect("read"), other.sources().await.expect("read"));
    let declared = one.declarations().await.expect("read");
    assert!(!declared.is_empty());
    assert_eq!(declared, other.declarations().await.expect("read"));
    let (one, other) = (answers(one, now).await, answers(other, now).await);
    assert!(one.len() > 300, "only {} answers", one.len());
    for (one, other) in one.iter().zip(&other) {
        assert_eq!(one, other);
    }
    assert_eq!(one.len(), other.len());
}

async fn answers(store: &dyn Store, now: Timestamp) -> Vec<String> {
    let mut said = Vec::new();
    let mut say =
        |what: &str, answer: &dyn std::fmt::Debug| said.push(format!("{what} {answer:?}"));
    say("instance", &store.instance([0; 16]).await.expect("named"));
    say("tenants", &store.tenants().await.expect("read"));
    say("keys", &store.keys().await.expect("read"));
    say("hubs", &store.hubs().await.expect("read"));
    say("failing", &store.failing().await.expect("read"));
    say("standings", &store.standings().await.expect("read"));
    say("open jobs", &store.open_jobs().await.expect("read"));
    say("highest id", &store.highest_id().await.expect("read"));
    for row in
        store.audit(AuditQuery { limit: 1_000, ..AuditQuery::default() }).await.expect("read")
    {
        say("audit", &row);
    }
    for tenant in TENANTS {
        for job in JOBS {
            say("job", &store.job(tenant, job).await.expect("read"));
        }
        say("counts", &store.counts(tenant).await.expect("read"));
        say("event count", &store.event_count(tenant).await.expect("read"));
        let filter = DeliveryFilter::default();
        say("dead letters", &store.count_dead_letters(tenant, filter.clone()).await.expect("read"));
        say("groups", &store.dead_letter_groups(tenant, filter).await.expect("read"));
        for grain in Grain::ALL {
            for of in [Of::Tenant, Of::Endpoint(ENDPOINTS[0]), Of::EachEndpoint] {
                let since = Timestamp::from_millis(0);
                say("measures", &store.measures(tenant, of, grain, since).await.expect("read"));
            }
        }
        let query = EventQuery { limit: 1_000, ..EventQuery::default() };
        for listed in store.events(tenant, query).await.expect("read").rows {
            let event = store.event(tenant, listed.id).await.expect("read").expect("there");
            say("event", &(&listed, &event));
            say("of event", &store.event_deliveries(tenant, event.id).await.expect("read"));
        }
        let query = DeliveryQuery {
            direction: Direction::OldestFirst,
            limit: 1_000,
            ..DeliveryQuery::default()
        };
        let deliveries = store.deliveries(tenant, query).await.expect("read").rows;
        for record in &deliveries {
            say("delivery", &record);
            say("attempts", &store.attempts(record.id).await.expect("read"));
            say("ahead", &store.ahead_of(record.id).await.expect("read"));
            say("waiting", &store.waiting(record.id).await.expect("read"));
        }
        let leased = deliveries.iter().filter(|record| record.state == State::InFlight);
        for record in leased {
            say("leased", &store.leased(vec![record.id]).await.expect("read"));
        }
    }
    say("lapsed", &store.lapsed(now, 100).await.expect("read"));
    for endpoint in ENDPOINTS {
        for now in [NOW, now] {
            let page = Page {
                endpoint,
                now,
                limit: 100,
                max_bytes: 1 << 20,
                held: Vec::new(),
                event_types: Vec::new(),
            };
            say("page", &store.page(page).await.expect("read"));
        }
        say("next due", &store.next_due(endpoint).await.expect("read"));
        let after = postrider_core::DeliveryId::from_i64(0);
        say("unfinished", &store.unfinished(endpoint, after, None, 1_000).await.expect("read"));
    }
    said
}
