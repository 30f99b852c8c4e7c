//! Making, seeing and deleting hubs, and who may.

use postrider_core::endpoint::Destination;
use postrider_core::{HubId, State};
use postrider_engine::notices::NoticeKind;
use postrider_engine::ports::Clock as _;
use postrider_engine::{Acting, Error, HubConnection, Private};
use postrider_store::audit::AuditQuery;

use crate::gateway::{ACTING, Gateway, START, TENANT, event, seconds, spec};
use crate::rig::sink::Sink;
use crate::{behind, fifo, status};

#[tokio::test]
async fn a_hub_has_a_token_that_only_its_maker_is_told() {
    let gateway = Gateway::start().await;
    let (record, token) = gateway.engine.create_hub(ACTING, "till 3".into()).await.expect("a hub");
    assert_eq!((record.tenant, record.name.as_str()), (TENANT, "till 3"));
    assert_eq!(record.created_at, START);
    let secret = token.strip_prefix("prh_").expect("the prefix");
    assert!(secret.len() == 64 && secret.bytes().all(|byte| byte.is_ascii_hexdigit()));
    assert!(!format!("{record:?}").contains(secret));
    assert_eq!(gateway.engine.hub_of_token(&token), Some(record.clone()));
    let (other, other_token) =
        gateway.engine.create_hub(ACTING, "till 3".into()).await.expect("one");
    assert_ne!((other.id, &other_token), (record.id, &token));
    let altered = format!("{}0", &token[..token.len() - 1]);
    for wrong in ["", "prh_", secret, &token.to_uppercase(), &format!("{token}0"), &altered] {
        let found = gateway.engine.hub_of_token(wrong);
        assert!(found.is_none() || wrong == token, "{wrong}");
    }
    let audited = |action: &str| {
        let query = AuditQuery { action: Some(action.into()), limit: 10, ..AuditQuery::default() };
        gateway.engine.store().audit(query)
    };
    gateway.engine.delete_hub(ACTING, other.id).await.expect("deleted");
    assert_eq!(audited("hub.create").await.expect("readable").len(), 2);
    let deleted = audited("hub.delete").await.expect("readable");
    assert_eq!((deleted.len(), &deleted[0].subject), (1, &other.id.to_string()));
}

#[tokio::test]
async fn a_hub_shows_how_it_stands() {
    let mut gateway = Gateway::start().await;
    let hub = gateway.hub().await;
    gateway.endpoint(behind(hub)).await;
    gateway.endpoint(fifo(hub)).await;
    let sink = Sink::answering(200).await;
    let elsewhere = gateway.endpoint(spec(Destination::Url(sink.url()))).await;
    let look = async |gateway: &Gateway| gateway.engine.hub(TENANT, hub).await.expect("known");
    let view = look(&gateway).await;
    assert_eq!((view.record.id, view.connection), (hub, None));
    assert_eq!((view.in_flight, view.waiting, view.oldest_waiting_at), (0, 0, None));

    gateway.clock.advance(seconds(5));
    gateway.send_all(["n.1", "n.2"].map(event)).await;
    gateway.delivered(2).await;
    gateway.clock.advance(seconds(5));
    gateway.send("n.3").await;
    gateway.delivered(1).await;
    let view = look(&gateway).await;
    assert_eq!((view.in_flight, view.waiting), (0, 6), "three to each of its endpoints");
    assert_eq!(view.oldest_waiting_at, Some(START.plus(seconds(5))));
    let health = gateway.engine.endpoint_health(elsewhere).await.expect("known");
    assert_eq!(health.in_flight, 0);

    gateway.clock.advance(seconds(5));
    let mut agent = gateway.connect(hub, 3).await;
    let connected =
        HubConnection { since: gateway.clock.now(), agent: "test/1.0".into(), capacity: 3 };
    let held = [agent.next().await, agent.next().await, agent.next().await];
    let view = look(&gateway).await;
    assert_eq!(view.connection, Some(connected));
    assert_eq!((view.in_flight, view.waiting), (3, 6));
    agent.done(&held[0]);
    gateway.delivered(1).await;
    agent.answer(held[1].seq, status(500)).expect("asked");
    gateway.notice(NoticeKind::RetryScheduled).await;
    assert_eq!(look(&gateway).await.waiting, 5, "one is done, and one will be tried again");
    drop(agent);
    assert_eq!(look(&gateway).await.connection, None);
}

#[tokio::test]
async fn that_a_hub_comes_and_goes_is_told_once_each() {
    let mut gateway = Gateway::start().await;
    let hub = gateway.hub().await;
    let agent = gateway.connect(hub, 1).await;
    let told = gateway.notice(NoticeKind::HubConnected).await;
    assert_eq!((told.hub, told.tenant, told.at), (Some(hub), TENANT, START));
    assert_eq!(told.detail.as_deref(), Some("the workshop"));
    gateway.clock.advance(seconds(1));
    drop(agent);
    let told = gateway.notice(NoticeKind::HubDisconnected).await;
    assert_eq!((told.hub, told.at), (Some(hub), START.plus(seconds(1))));
    let old = gateway.connect(hub, 1).await;
    let new = gateway.connect(hub, 1).await;
    drop(old);
    assert_eq!(gateway.notices(NoticeKind::HubDisconnected).len(), 0, "it is there all the time");
    drop(new);
    assert_eq!(gateway.notices(NoticeKind::HubDisconnected).len(), 1);
    let kinds = [NoticeKind::HubConnected, NoticeKind::HubDisconnected];
    assert_eq!(kinds.map(NoticeKind::as_str), ["hub.connected", "hub.disconnected"]);
}

#[tokio::test]
async fn hubs_are_listed_newest_first_to_their_tenant_alone() {
    let gateway = Gateway::start().await;
    let other = gateway.other_tenant().await;
    let (first, second) = (gateway.hub().await, gateway.hub().await);
    let theirs = gateway.engine.create_hub(Acting::gateway(other), "theirs".into()).await;
    let theirs = theirs.expect("a hub").0.id;
    let listed = async |tenant| -> Vec<HubId> {
        let views = gateway.engine.hubs(tenant).await.expect("readable");
        views.iter().map(|view| view.record.id).collect()
    };
    assert_eq!(listed(TENANT).await, [second, first]);
    assert_eq!(listed(other).await, [theirs]);
    assert!(matches!(gateway.engine.hub(TENANT, theirs).await, Err(Error::NotFound)));
    assert!(matches!(gateway.engine.delete_hub(ACTING, theirs).await, Err(Error::NotFound)));
    assert_eq!(listed(other).await, [theirs]);
}

#[tokio::test]
async fn an_endpoint_can_only_be_behind_a_hub_of_its_tenant() {
    let gateway = Gateway::start().await;
    let other = gateway.other_tenant().await;
    let theirs = gateway.engine.create_hub(Acting::gateway(other), "theirs".into()).await;
    let theirs = theirs.expect("a hub").0.id;
    let ours = gateway.hub().await;
    let endpoint = gateway.endpoint(behind(ours)).await;
    for hub in [theirs, HubId::from_i64(1)] {
        let made = gateway.engine.create_endpoint(ACTING, behind(hub), Private::default()).await;
        let changed = gateway.engine.update_endpoint(ACTING, endpoint, behind(hub), None).await;
        for refused in [made, changed] {
            match refused {
                Err(Error::Invalid { field, message }) => {
                    assert_eq!((field.as_str(), message), ("hub", format!("there is no {hub}")));
                }
                other => panic!("{other:?}"),
            }
        }
    }
    let spec = &gateway.engine.endpoint(TENANT, endpoint).expect("known").spec;
    assert_eq!(spec.destination, Destination::Hub(ours));
}

#[tokio::test]
async fn what_is_sent_to_a_hub_counts_as_waiting_until_it_is_answered() {
    let mut gateway = Gateway::start().await;
    let hub = gateway.hub().await;
    let endpoint = gateway.endpoint(behind(hub)).await;
    gateway.send("n.1").await;
    let mut agent = gateway.connect(hub, 1).await;
    let deliver = agent.next().await;
    assert!(gateway.engine.is_in_flight(endpoint, deliver.delivery).await);
    assert_eq!(gateway.engine.endpoint_health(endpoint).await.expect("known").in_flight, 1);
    assert_eq!(gateway.state(deliver.delivery).await, State::Pending, "as for a URL");
    let reset = gateway.engine.retry(ACTING, deliver.delivery).await;
    assert!(matches!(reset, Err(Error::Conflict(_))), "{reset:?}");
    agent.done(&deliver);
    gateway.delivered(1).await;
    assert!(!gateway.engine.is_in_flight(endpoint, deliver.delivery).await);
}
