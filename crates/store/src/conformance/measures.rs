//! Measures add up, whoever tells of them, and are found by whose they are.

use std::sync::Arc;

use postrider_core::{EndpointId, TenantId, Timestamp};

use super::Place;
use super::scene::{A, B, Scene, TENANT};
use crate::measures::{Grain, LATENCIES, Measure, Of, Tallies};

const OTHER: TenantId = TenantId(9);

fn tallies(factor: u64) -> Tallies {
    let mut latency = [0; LATENCIES];
    (latency[0], latency[7]) = (factor, 3 * factor);
    Tallies {
        received: 5 * factor,
        delivered: 4 * factor,
        failures: 2 * factor,
        dead: factor,
        latency,
    }
}

/// What happened in the stretch that is `steps` after the one that is now.
fn measure(
    scene: &Scene,
    grain: Grain,
    tenant: TenantId,
    endpoint: Option<EndpointId>,
    steps: i64,
    factor: u64,
) -> Measure {
    let start = grain.start_of(scene.now).as_millis() + steps * grain.millis();
    let start = Timestamp::from_millis(start);
    Measure { grain, start, tenant, endpoint, tallies: tallies(factor) }
}

async fn add(scene: &Scene, measures: &[Measure]) {
    scene.store.add_measures(measures.to_vec()).await.expect("added");
}

async fn all(scene: &Scene, tenant: TenantId, of: Of, grain: Grain) -> Vec<Measure> {
    since(scene, tenant, of, grain, Timestamp::from_millis(0)).await
}

async fn since(
    scene: &Scene,
    tenant: TenantId,
    of: Of,
    grain: Grain,
    since: Timestamp,
) -> Vec<Measure> {
    scene.store.measures(tenant, of, grain, since).await.expect("readable")
}

pub async fn what_is_added_adds_up(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let mut expected = measure(&scene, Grain::Minute, TENANT, Some(A), 0, 1);
    add(&scene, &[]).await;
    add(&scene, std::slice::from_ref(&expected)).await;
    let found = || all(&scene, TENANT, Of::Endpoint(A), Grain::Minute);
    assert_eq!(found().await, std::slice::from_ref(&expected));

    // Again, twice at once, and with entries that were not there before.
    let mut slow = measure(&scene, Grain::Minute, TENANT, Some(A), 0, 0);
    slow.tallies.latency[LATENCIES - 1] = u64::from(u32::MAX) + 1;
    let more = [expected.clone(), slow, expected.clone()];
    add(&scene, &more).await;
    for measure in &more {
        expected.tallies.add(&measure.tallies);
    }
    assert_eq!(found().await, std::slice::from_ref(&expected));
    let quick = measure(&scene, Grain::Minute, TENANT, Some(A), 0, 7);
    add(&scene, std::slice::from_ref(&quick)).await;
    expected.tallies.add(&quick.tallies);
    assert_eq!(found().await, std::slice::from_ref(&expected));

    scene.store.close().await;
    scene.store = place.open().await;
    assert_eq!(all(&scene, TENANT, Of::Endpoint(A), Grain::Minute).await, [expected]);
}

pub async fn what_many_add_at_once_is_all_there(place: &dyn Place) {
    const CALLERS: u64 = 4;
    const TIMES: u64 = 8;
    let scene = Scene::new(place).await;
    let of_each = [None, Some(A), Some(B)].into_iter();
    let measures: Vec<Measure> = of_each
        .flat_map(|endpoint| Grain::ALL.map(|grain| (endpoint, grain)))
        .map(|(endpoint, grain)| measure(&scene, grain, TENANT, endpoint, 0, 1))
        .collect();
    let mut callers = Vec::new();
    for caller in 0..CALLERS {
        let store = Arc::clone(&scene.store);
        let mut measures = measures.clone();
        // Each tells of the same in an order of its own.
        if caller % 2 == 1 {
            measures.reverse();
        }
        callers.push(tokio::spawn(async move {
            for _ in 0..TIMES {
                store.add_measures(measures.clone()).await.expect("added");
            }
        }));
    }
    for caller in callers {
        caller.await.expect("it ended");
    }
    for grain in Grain::ALL {
        for (of, endpoints) in
            [(Of::Tenant, vec![None]), (Of::EachEndpoint, vec![Some(A), Some(B)])]
        {
            let expected: Vec<Measure> = endpoints
                .into_iter()
                .map(|endpoint| measure(&scene, grain, TENANT, endpoint, 0, CALLERS * TIMES))
                .collect();
            assert_eq!(all(&scene, TENANT, of, grain).await, expected, "{grain:?} {of:?}");
        }
    }
}

pub async fn measures_are_found_by_whose_they_are(place: &dyn Place) {
    let scene = Scene::new(place).await;
    let mut factor = 0;
    let mut made = Vec::new();
    // In no order.
    for steps in [2, 0, 1] {
        for grain in Grain::ALL {
            for (tenant, endpoint) in
                [(TENANT, Some(B)), (TENANT, None), (TENANT, Some(A)), (OTHER, None)]
            {
                factor += 1;
                made.push(measure(&scene, grain, tenant, endpoint, steps, factor));
            }
        }
    }
    add(&scene, &made).await;
    made.sort_by_key(|measure| (measure.start, measure.endpoint));
    let whose: [(TenantId, Of, &[Option<EndpointId>]); 7] = [
        (TENANT, Of::Tenant, &[None]),
        (TENANT, Of::Endpoint(A), &[Some(A)]),
        (TENANT, Of::Endpoint(EndpointId::from_i64(77)), &[]),
        (TENANT, Of::EachEndpoint, &[Some(A), Some(B)]),
        (OTHER, Of::Tenant, &[None]),
        (OTHER, Of::Endpoint(A), &[]),
        (OTHER, Of::EachEndpoint, &[]),
    ];
    for (tenant, of, endpoints) in whose {
        for grain in Grain::ALL {
            for steps in 0..4 {
                let from = measure(&scene, grain, tenant, None, steps, 0).start;
                let expected: Vec<Measure> = made
                    .iter()
                    .filter(|measure| (measure.tenant, measure.grain) == (tenant, grain))
                    .filter(|measure| endpoints.contains(&measure.endpoint))
                    .filter(|measure| measure.start >= from)
                    .cloned()
                    .collect();
                let found = since(&scene, tenant, of, grain, from).await;
                assert_eq!(found, expected, "{of:?} {grain:?} from {steps}");
            }
        }
    }
    // What began before is not of the time asked for, though it goes on into it.
    let within = measure(&scene, Grain::Minute, TENANT, None, 2, 0).start;
    let within = Timestamp::from_millis(within.as_millis() + 1);
    assert_eq!(since(&scene, TENANT, Of::Tenant, Grain::Minute, within).await, []);
}

pub async fn what_is_old_is_forgotten_step_by_step(place: &dyn Place) {
    let scene = Scene::new(place).await;
    let mut made = Vec::new();
    for grain in Grain::ALL {
        for steps in 0..3 {
            for (tenant, endpoint) in [(TENANT, None), (TENANT, Some(A)), (OTHER, None)] {
                made.push(measure(&scene, grain, tenant, endpoint, steps, 1));
            }
        }
    }
    add(&scene, &made).await;
    let before = measure(&scene, Grain::Minute, TENANT, None, 2, 0).start;
    let forget = async |limit| {
        scene.store.forget_measures(Grain::Minute, before, limit).await.expect("forgotten")
    };
    let mut steps = Vec::new();
    for limit in [0, 4, 100, 100] {
        steps.push(forget(limit).await);
    }
    assert_eq!(steps, [0, 4, 2, 0], "of three kinds two stretches each are old");
    for (tenant, of) in [(TENANT, Of::Tenant), (TENANT, Of::EachEndpoint), (OTHER, Of::Tenant)] {
        for (grain, left) in [(Grain::Minute, 1), (Grain::QuarterHour, 3), (Grain::TwoHours, 3)] {
            let found = all(&scene, tenant, of, grain).await;
            assert_eq!(found.len(), left, "{of:?} {grain:?}");
            assert!(grain != Grain::Minute || found[0].start == before);
        }
    }
}
