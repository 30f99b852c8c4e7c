//! Who is there: nodes join, are known by what they said of themselves, end, and leave.

use std::sync::Arc;

use postrider_core::HubId;

use super::Place;
use super::fleet::{LONG, SHORT, Witness, lanes_of, members};
use super::scene::Scene;
use crate::error::Error;
use crate::fleet::{Charge, Held, Joined, Member, NewNode, NodeId, NodeRecord, Pulse, Tenure};

/// There are no more numbers than this.
const NUMBERS: usize = 256;

const HUB: HubId = HubId::from_i64(1 << 40);
const OTHER_HUB: HubId = HubId::from_i64((1 << 40) + 1);

async fn nodes(scene: &Scene) -> Vec<NodeRecord> {
    let mut nodes = scene.fleet().nodes(scene.now).await.expect("a list");
    for node in &mut nodes {
        node.held.sort_unstable_by_key(|tenure| tenure.charge);
    }
    nodes
}

pub async fn a_node_is_known_by_what_it_said_of_itself(place: &dyn Place) {
    let scene = Scene::new(place).await;
    assert_eq!(nodes(&scene).await, []);
    let first = scene.joined(LONG, 4).await;
    let other = NewNode { name: "other".to_owned(), ..scene.newcomer(LONG, 4) };
    let second = scene.fleet().join(other).await.expect("joined");

    let new = &nodes(&scene).await[0];
    assert_eq!((new.node, new.number), (first.node, first.number));
    assert_eq!((new.name.as_str(), new.version.as_str()), ("b\u{fc}ro", "1.2.3"));
    assert_eq!(new.address, "127.0.0.1:8080");
    assert!(new.live && new.held.is_empty());
    assert_eq!((new.in_flight, new.waiting_since), (0, None));
    assert_eq!(new.joined_at, new.seen_at);
    assert_eq!(new.until, new.seen_at.plus(LONG));

    let pulse = Pulse {
        listens: true,
        in_flight: 7,
        waiting_since: Some(scene.now),
        ..scene.pulse(first.node)
    };
    let beat = scene.fleet().beat(pulse).await.expect("answered").expect("a member");
    let expected =
        [Member { node: first.node, listens: true }, Member { node: second.node, listens: false }];
    assert_eq!(beat.nodes, expected);
    scene.beat(second.node).await;
    let listed = nodes(&scene).await;
    assert_eq!(listed.iter().map(|node| node.node).collect::<Vec<_>>(), [first.node, second.node]);
    assert_eq!(listed[1].name, "other");
    assert_eq!((listed[0].in_flight, listed[0].waiting_since), (7, Some(scene.now)));
    assert!(listed[0].seen_at >= listed[0].joined_at);
    assert_eq!((listed[0].held.len(), listed[1].held.len()), (2, 2));

    let beat = scene.beat(first.node).await;
    assert!(!beat.nodes[0].listens, "only what it said last counts");
    assert_eq!(nodes(&scene).await[0].waiting_since, None);
}

pub async fn numbers_differ_and_rest_after_use(place: &dyn Place) {
    let scene = Scene::new(place).await;
    let mut joined = Vec::new();
    for _ in 0..4 {
        joined.push(scene.joined(LONG, 4).await);
    }
    let numbers = |joined: &[Joined]| joined.iter().map(|one| one.number).collect::<Vec<_>>();
    assert_eq!(numbers(&joined), [0, 1, 2, 3], "the lowest that is free");
    scene.fleet().leave(joined[1].node).await.expect("left");
    joined.push(scene.joined(LONG, 4).await);
    assert_eq!(joined[4].number, 4, "a number rests after use");
    let ids = joined.windows(2).all(|pair| pair[0].node < pair[1].node);
    assert!(ids, "{joined:?}");
}

pub async fn of_many_that_join_at_once_each_has_its_own_number(place: &dyn Place) {
    let scene = Scene::new(place).await;
    let tasks: Vec<_> = (0..NUMBERS)
        .map(|_| {
            let (store, new) = (Arc::clone(&scene.store), scene.newcomer(LONG, 4));
            tokio::spawn(async move { store.fleet().expect("shared").join(new).await })
        })
        .collect();
    let mut joined = Vec::new();
    for task in tasks {
        joined.push(task.await.expect("no panic").expect("joined"));
    }
    joined.sort_unstable_by_key(|one| one.number);
    let numbers: Vec<usize> = joined.iter().map(|one| one.number.into()).collect();
    assert_eq!(numbers, (0..NUMBERS).collect::<Vec<_>>());
    let refused = scene.fleet().join(scene.newcomer(LONG, 4)).await;
    assert!(matches!(refused, Err(Error::Refused(_))), "{refused:?}");
    assert_eq!(nodes(&scene).await.len(), NUMBERS, "the others go on");
}

pub async fn one_that_left_is_no_member(place: &dyn Place) {
    let scene = Scene::new(place).await;
    let (goes, stays) = (scene.join(LONG, 4).await, scene.join(LONG, 4).await);
    scene.share_out(&[goes, stays], 4, &mut Witness::default()).await;
    let hub = scene.fleet().seize(goes, HUB).await.expect("seized");
    scene.fleet().leave(goes).await.expect("left");
    scene.fleet().leave(goes).await.expect("once is enough");

    let listed = nodes(&scene).await;
    assert_eq!((listed[0].node, listed[0].live), (goes, false), "it is remembered");
    assert!(listed[0].held.is_empty() && listed[0].until >= listed[0].seen_at);
    let beat = scene.beat(stays).await;
    assert_eq!(members(&beat), [stays], "at once");
    assert_eq!(lanes_of(&beat, stays).len(), 4);
    assert_eq!(beat.next_lapse, None);

    let late = scene.fleet().beat(scene.pulse(goes)).await.expect("answered");
    assert!(late.is_none(), "{late:?}");
    scene.fleet().release(goes, vec![hub]).await.expect("answered");
    let beat = scene.beat(stays).await;
    assert_eq!(members(&beat), [stays], "it did not come back");

    let again = scene.join(LONG, 4).await;
    assert!(again > stays);
    assert_eq!(members(&scene.beat(again).await), [stays, again]);
}

pub async fn one_that_nobody_knows_is_no_member(place: &dyn Place) {
    let scene = Scene::new(place).await;
    let nobody = NodeId(i64::MAX);
    assert!(scene.fleet().beat(scene.pulse(nobody)).await.expect("answered").is_none());
    scene.fleet().leave(nobody).await.expect("answered");
    let known = scene.join(LONG, 4).await;
    assert!(scene.fleet().beat(scene.pulse(nobody)).await.expect("answered").is_none());
    let beat = scene.beat(known).await;
    assert_eq!((members(&beat), lanes_of(&beat, known).len()), (vec![known], 4));
}

pub async fn a_dead_node_is_remembered_with_what_it_has(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let dies = scene.join(SHORT, 4).await;
    let had = scene.beat(dies).await;
    let hub = scene.fleet().seize(dies, HUB).await.expect("seized");
    let stays = scene.join(LONG, 4).await;
    let beat = scene.beat_until(stays, |beat| members(beat) == [stays]).await;
    assert_eq!(lanes_of(&beat, stays).len(), 4);
    assert!(beat.held.iter().all(|held| held.node == stays), "only what the living have");

    let listed = nodes(&scene).await;
    assert_eq!((listed[0].node, listed[0].live), (dies, false));
    assert!(listed[0].seen_at <= had.now && listed[0].until <= beat.now);
    assert_eq!(listed[0].held, [hub], "hubs wait for whoever seizes them");
    assert_eq!((listed[1].node, listed[1].live, listed[1].held.len()), (stays, true, 4));
}

pub async fn a_hub_is_with_whoever_seized_it_last(place: &dyn Place) {
    let scene = Scene::new(place).await;
    let (first, second) = (scene.join(LONG, 2).await, scene.join(LONG, 2).await);
    scene.share_out(&[first, second], 2, &mut Witness::default()).await;
    let seize = async |node, hub| scene.fleet().seize(node, hub).await.expect("seized");
    let release = async |node, tenure: Tenure| {
        scene.fleet().release(node, vec![tenure]).await.expect("answered");
    };
    let hubs = async || -> Vec<Held> {
        let mut held = scene.beat(first).await.held;
        held.retain(|held| matches!(held.tenure.charge, Charge::Hub(_)));
        held
    };
    let one = seize(first, HUB).await;
    let other = seize(second, OTHER_HUB).await;
    assert_eq!((one.charge, other.charge), (Charge::Hub(HUB), Charge::Hub(OTHER_HUB)));
    let others = Held { node: second, tenure: other };
    assert_eq!(hubs().await, [Held { node: first, tenure: one }, others]);

    let taken = seize(second, HUB).await;
    assert!(taken.epoch > one.epoch);
    release(first, one).await;
    assert_eq!(hubs().await, [Held { node: second, tenure: taken }, others]);
    let anew = seize(second, HUB).await;
    assert!(anew.epoch > taken.epoch, "even from oneself");
    release(second, taken).await;
    assert_eq!(hubs().await, [Held { node: second, tenure: anew }, others]);

    release(second, anew).await;
    assert_eq!(hubs().await, [others], "nobody takes it by beating");
    let back = seize(first, HUB).await;
    assert!(back.epoch > anew.epoch);
    let beat = scene.last_beat(first).await;
    assert_eq!(beat.surplus, 1, "a hub is no lane");
    scene.fleet().leave(second).await.expect("left");
    assert_eq!(hubs().await, [Held { node: first, tenure: back }]);
}

pub async fn members_survive_closing(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let joined = [scene.joined(LONG, 5).await, scene.joined(LONG, 5).await];
    let members_of = joined.map(|one| one.node);
    let gone = scene.join(LONG, 5).await;
    scene.fleet().leave(gone).await.expect("left");
    scene.share_out(&members_of, 5, &mut Witness::default()).await;
    let hub = scene.fleet().seize(joined[1].node, HUB).await.expect("seized");
    let listed = nodes(&scene).await;
    let before = scene.beat(joined[0].node).await;
    scene.store.close().await;
    let refused = scene.fleet().beat(scene.pulse(joined[0].node)).await;
    assert!(matches!(refused, Err(Error::Closed)), "{refused:?}");

    scene.store = place.open().await;
    let reopened = nodes(&scene).await;
    assert_eq!(reopened[1..], listed[1..]);
    assert_eq!(reopened[0].held, listed[0].held);
    let beat = scene.beat(joined[0].node).await;
    assert_eq!((&beat.held, &beat.nodes), (&before.held, &before.nodes));
    assert_eq!((beat.surplus, beat.revision), (0, before.revision));
    let again = scene.fleet().seize(joined[0].node, HUB).await.expect("seized");
    assert!(again.epoch > hub.epoch);
    let new = scene.joined(LONG, 5).await;
    assert_eq!((new.number, new.lanes), (3, 5), "numbers in use or at rest are not given");
}

pub async fn whoever_comes_back_to_its_place_waits_for_nobody(place: &dyn Place) {
    let scene = Scene::new(place).await;
    let at = |spot: &str| NewNode { place: Some(spot.to_owned()), ..scene.newcomer(LONG, 4) };
    let join = async |new: NewNode| scene.fleet().join(new).await.expect("joined");
    let before = join(at("here")).await;
    assert_eq!(lanes_of(&scene.beat(before.node).await, before.node).len(), 4);
    let elsewhere = join(at("there")).await;
    assert!(lanes_of(&scene.beat(elsewhere.node).await, elsewhere.node).is_empty());

    let after = join(at("here")).await;
    assert_ne!(after.number, before.number, "it may still have made ids");
    let gone = scene.fleet().beat(scene.pulse(before.node)).await.expect("answered");
    assert!(gone.is_none(), "it is no member any more");
    assert_eq!(lanes_of(&scene.beat(after.node).await, after.node).len(), 2, "its share, at once");
}
