//! Which endpoints need somebody, and which do not.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;

use super::*;
use crate::dashboard::chart::Column;

const NOW: Timestamp = Timestamp::from_millis(1_767_225_600_000);

fn id(number: i64) -> EndpointId {
    EndpointId::from_i64(EndpointId::floor(NOW).as_i64() + number)
}

fn standing(number: i64) -> Standing {
    Standing {
        endpoint_id: id(number),
        state: EndpointState::Active,
        deliveries: StateCounts::default(),
        health: Health { breaker: Some(BreakerState::Closed), hold_until: None },
    }
}

fn dead(counts: &[(i64, u64)]) -> Each {
    let column = |dead| vec![Column { start: NOW, delivered: 0, failures: 0, dead }];
    let endpoints: BTreeMap<_, _> =
        counts.iter().map(|(number, dead)| (id(*number), column(*dead))).collect();
    Each { grain_seconds: 60, since: NOW, endpoints }
}

/// The history of ten minutes in which so many came in and ended each minute.
fn history(received: u64, delivered: u64) -> History {
    let point = json!({
        "start": NOW, "received": received, "delivered": delivered, "failures": 0, "dead": 0,
    });
    serde_json::from_value(json!({
        "grain_seconds": 60,
        "points": vec![point; 60],
        "total": {
            "received": 0, "delivered": 0, "failures": 0, "dead": 0,
            "success_rate": null, "p50_ms": null, "p95_ms": null, "p99_ms": null,
        },
        "per_second": {"received": 0, "delivered": 0},
        "oldest_waiting_at": null,
    }))
    .expect("a history")
}

#[test]
fn each_matter_is_found_and_needs_whom_it_needs() {
    let later = NOW.plus(Duration::from_secs(30));
    let open = |breaker| Health { breaker: Some(breaker), hold_until: None };
    let held = |until| Health { breaker: None, hold_until: Some(until) };
    let table = [
        (standing(1), 0, None, None),
        (Standing { state: EndpointState::Deleted, ..standing(1) }, 9, None, None),
        (Standing { health: held(NOW), ..standing(1) }, 0, None, None),
        (
            Standing { health: held(later), ..standing(1) },
            0,
            None,
            Some((Need::Watch, vec![Matter::Held(later)])),
        ),
        (
            Standing { state: EndpointState::Disabled, ..standing(1) },
            0,
            None,
            Some((Need::Act, vec![Matter::Disabled])),
        ),
        (
            Standing { state: EndpointState::Paused, ..standing(1) },
            0,
            Some(100),
            Some((Need::Know, vec![Matter::Paused])),
        ),
        (
            Standing { state: EndpointState::Paused, ..standing(1) },
            3,
            None,
            Some((Need::Act, vec![Matter::DeadLetters(3), Matter::Paused])),
        ),
        (
            Standing { health: open(BreakerState::Open), ..standing(1) },
            2,
            Some(40),
            Some((
                Need::Act,
                vec![Matter::BreakerOpen, Matter::DeadLetters(2), Matter::BacklogGrows(40)],
            )),
        ),
        (
            Standing { health: open(BreakerState::HalfOpen), ..standing(1) },
            0,
            None,
            Some((Need::Watch, vec![Matter::Probing])),
        ),
        (
            Standing { health: open(BreakerState::Ramping), ..standing(1) },
            0,
            None,
            Some((Need::Watch, vec![Matter::Ramping])),
        ),
    ];
    for (standing, count, growth, expected) in table {
        let grown: Vec<_> = growth.map(|by| (id(1), by)).into_iter().collect();
        let each = dead(&[(1, count)]);
        let found = judge(std::slice::from_ref(&standing), &each, &grown, NOW);
        let found = found.into_iter().next().map(|concern| (concern.need, concern.matters));
        assert_eq!(found, expected, "{standing:?}");
    }
}

#[test]
fn the_worst_comes_first() {
    let standings = [
        Standing { state: EndpointState::Paused, ..standing(1) },
        Standing {
            health: Health { breaker: Some(BreakerState::Ramping), hold_until: None },
            ..standing(2)
        },
        standing(3),
        standing(4),
        Standing { state: EndpointState::Disabled, ..standing(5) },
        standing(6),
        Standing {
            health: Health { breaker: Some(BreakerState::Open), hold_until: None },
            ..standing(7)
        },
    ];
    let concerns = judge(&standings, &dead(&[(3, 1), (4, 8)]), &[], NOW);
    let order: Vec<EndpointId> = concerns.iter().map(|concern| concern.endpoint).collect();
    assert_eq!(order, [5, 7, 4, 3, 2, 1].map(id));
}

#[test]
fn a_backlog_grows_when_clearly_more_comes_in_than_goes_out() {
    let table = [(0, 0, None), (5, 5, None), (5, 4, None), (5, 3, Some(20)), (3, 5, None)];
    for (received, delivered, expected) in table {
        assert_eq!(growth(&history(received, delivered)), expected, "{received} {delivered}");
    }
}

#[test]
fn only_the_largest_backlogs_of_active_endpoints_are_asked_after() {
    let with = |number, pending, state| Standing {
        state,
        deliveries: StateCounts { pending, ..StateCounts::default() },
        ..standing(number)
    };
    let standings = [
        with(1, 99, EndpointState::Active),
        with(2, 100, EndpointState::Active),
        with(3, 9_000, EndpointState::Paused),
        with(4, 300, EndpointState::Active),
        with(5, 200, EndpointState::Active),
    ];
    assert_eq!(backlogged(&standings, 2), [4, 5].map(id));
    assert_eq!(backlogged(&standings, 9), [4, 5, 2].map(id));
}

#[test]
fn the_verdict_is_one_sentence_with_its_reasons() {
    let is = |number, state| Standing { state, ..standing(number) };
    let (active, paused, disabled) =
        (EndpointState::Active, EndpointState::Paused, EndpointState::Disabled);
    let held = Standing {
        health: Health { breaker: None, hold_until: Some(NOW.plus(Duration::from_secs(9))) },
        ..standing(7)
    };
    let of = |endpoints| Elsewhere { endpoints, ..Elsewhere::default() };
    let table = [
        (vec![], of(0), "verdict-watch", "Nothing goes anywhere yet", 1),
        (vec![is(1, active)], of(1), "verdict-well", "All is well", 1),
        (vec![is(1, paused)], of(1), "verdict-well", "All is well", 1),
        (
            vec![held.clone()],
            of(1),
            "verdict-watch",
            "Nothing needs you; 1 endpoint is being handled",
            1,
        ),
        (vec![is(1, disabled)], of(1), "verdict-act", "1 endpoint needs you", 1),
        (
            vec![is(1, disabled), is(2, disabled), held],
            Elsewhere { endpoints: 3, awaited_hubs: 1, lost_nodes: 2 },
            "verdict-act",
            "2 endpoints need you, 1 hub is not connected, 2 nodes are gone",
            4,
        ),
    ];
    for (standings, elsewhere, class, sentence, reasons) in table {
        let found = verdict(&judge(&standings, &dead(&[]), &[], NOW), elsewhere);
        assert_eq!((found.class, found.sentence.as_str()), (class, sentence));
        assert_eq!(found.reasons.len(), reasons, "{found:?}");
    }
}
