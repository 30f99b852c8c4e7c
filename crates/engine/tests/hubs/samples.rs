//! Tests of an endpoint through its hub: they take the hub's room like everything else.

use postrider_core::Class;
use postrider_core::hub::Met;
use postrider_engine::{Engine, Error, WaitReason};
use postrider_store::record::Attempt;
use tokio::task::JoinHandle;

use crate::gateway::{Gateway, TENANT, delivery_of};
use crate::{behind, status};

fn test(
    engine: &Engine,
    endpoint: postrider_core::EndpointId,
) -> JoinHandle<Result<Attempt, Error>> {
    let engine = engine.clone();
    tokio::spawn(async move { engine.test_endpoint(TENANT, endpoint).await })
}

#[tokio::test]
async fn an_endpoint_is_tested_through_its_hub() {
    let gateway = Gateway::start().await;
    let hub = gateway.hub().await;
    let endpoint = gateway.endpoint(behind(hub)).await;
    let refused = gateway.engine.test_endpoint(TENANT, endpoint).await;
    assert!(
        matches!(&refused, Err(Error::Conflict(why)) if why.contains("not connected")),
        "{refused:?}"
    );
    let mut agent = gateway.connect(hub, 1).await;
    let cases = [
        (status(204), (Some(204), None)),
        (status(500), (Some(500), Some(Class::Retryable))),
        (Met::Network { error: "refused".into() }, (None, Some(Class::Retryable))),
    ];
    for (met, (code, class)) in cases {
        let testing = test(&gateway.engine, endpoint);
        let deliver = agent.next().await;
        assert_eq!((deliver.kind.as_str(), deliver.endpoint), ("postrider.test", endpoint));
        agent.answer(deliver.seq, met).expect("asked");
        let attempt = testing.await.expect("no panic").expect("an attempt");
        assert_eq!((attempt.status, attempt.class, attempt.counted), (code, class, false));
    }
    let counts = gateway.engine.store().counts(TENANT).await.expect("readable");
    assert!(counts.iter().all(|count| count.deliveries == 0), "nothing is kept of it");
}

#[tokio::test]
async fn a_test_takes_room_and_gives_it_back() {
    let mut gateway = Gateway::start().await;
    let hub = gateway.hub().await;
    let endpoint = gateway.endpoint(behind(hub)).await;
    let mut agent = gateway.connect(hub, 1).await;
    let testing = test(&gateway.engine, endpoint);
    let sample = agent.next().await;
    assert_eq!(gateway.hub_in_flight(hub).await, 1);
    let delivery = delivery_of(gateway.send("n.1").await);
    assert!(agent.is_quiet().await);
    assert_eq!(gateway.waits_on(delivery).await, Some(WaitReason::Capacity));
    agent.done(&sample);
    testing.await.expect("no panic").expect("an attempt");
    let deliver = agent.next().await;
    assert_eq!(deliver.delivery, delivery);
    // A hub whose hands are full takes no test either.
    let refused = gateway.engine.test_endpoint(TENANT, endpoint).await;
    assert!(
        matches!(&refused, Err(Error::Conflict(why)) if why.contains("as much as it can")),
        "{refused:?}"
    );
    agent.done(&deliver);
    gateway.delivered(1).await;
    assert_eq!(gateway.hub_in_flight(hub).await, 0);
}

#[tokio::test]
async fn a_test_that_nobody_waits_for_any_more_keeps_its_room_until_it_is_answered() {
    let gateway = Gateway::start().await;
    let hub = gateway.hub().await;
    let endpoint = gateway.endpoint(behind(hub)).await;
    let mut agent = gateway.connect(hub, 1).await;
    let testing = test(&gateway.engine, endpoint);
    let sample = agent.next().await;
    testing.abort();
    assert!(testing.await.expect_err("it was aborted").is_cancelled());
    let delivery = delivery_of(gateway.send("n.1").await);
    assert!(agent.is_quiet().await);
    assert_eq!(gateway.hub_in_flight(hub).await, 1, "the hub still has it");
    agent.done(&sample);
    assert_eq!(agent.next().await.delivery, delivery);
}

#[tokio::test]
async fn a_test_whose_line_ends_says_so() {
    let gateway = Gateway::start().await;
    let hub = gateway.hub().await;
    let endpoint = gateway.endpoint(behind(hub)).await;
    let mut agent = gateway.connect(hub, 1).await;
    let testing = test(&gateway.engine, endpoint);
    agent.next().await;
    drop(agent);
    let told = testing.await.expect("no panic");
    assert!(matches!(&told, Err(Error::Conflict(_))), "{told:?}");
    assert_eq!(gateway.hub_in_flight(hub).await, 0);
}
