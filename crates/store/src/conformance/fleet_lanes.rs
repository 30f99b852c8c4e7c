//! Lanes are shared out evenly, each to one node at a time, and nothing is taken from one that lives.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::Lane;

use super::Place;
use super::fleet::{LONG, SHORT, Witness, counts, lanes_of, members, shares};
use super::scene::Scene;
use crate::fleet::{Charge, NodeId, Pulse, Tenure};

/// Not a multiple of most numbers of nodes.
const LANES: u16 = 13;

pub async fn shares_stay_even_while_nodes_come_and_go(place: &dyn Place) {
    let scene = Scene::new(place).await;
    let mut seen = Witness::default();
    let mut nodes: Vec<NodeId> = Vec::new();
    for _ in 0..5 {
        nodes.push(scene.join(LONG, LANES).await);
        let beat = scene.share_out(&nodes, LANES, &mut seen).await;
        assert_eq!(members(&beat), nodes, "in the order they joined");
        assert_eq!(counts(&beat, &nodes), shares(LANES, nodes.len()));
        let lanes: Vec<Charge> = beat.held.iter().map(|held| held.tenure.charge).collect();
        let every: Vec<Charge> = (0..LANES).map(|lane| Charge::Lane(Lane(lane))).collect();
        assert_eq!(lanes, every);
    }
    // The first, the last, one between: those that stay move up.
    for place in [0, 3, 1, 0] {
        let gone = nodes.remove(place);
        seen.given_up(&lanes_of(&scene.beat(nodes[0]).await, gone));
        scene.fleet().leave(gone).await.expect("left");
        let beat = scene.share_out(&nodes, LANES, &mut seen).await;
        assert_eq!(members(&beat), nodes);
        assert_eq!(counts(&beat, &nodes), shares(LANES, nodes.len()));
    }
}

pub async fn what_is_released_goes_to_those_who_lack_it(place: &dyn Place) {
    let scene = Scene::new(place).await;
    let first = scene.join(LONG, 4).await;
    let alone = scene.beat(first).await;
    assert_eq!((alone.surplus, alone.next_lapse), (0, None));
    let second = scene.join(LONG, 4).await;
    for _ in 0..3 {
        let beat = scene.beat(second).await;
        assert_eq!(beat.held, alone.held, "nothing is taken from a live node");
        assert_eq!(beat.surplus, 0);
        assert!(beat.next_lapse.is_some_and(|lapse| lapse <= LONG));
    }
    let crowded = scene.beat(first).await;
    assert_eq!(crowded.held, alone.held, "it keeps its surplus until it is done with it");
    assert_eq!(crowded.surplus, 2);

    let given = lanes_of(&crowded, first).split_off(1);
    scene.fleet().release(first, given.clone()).await.expect("released");
    let beat = scene.beat(second).await;
    assert_eq!(counts(&beat, &[first, second]), [1, 2], "no more than a share");
    for taken in lanes_of(&beat, second) {
        let old = given.iter().find(|old| old.charge == taken.charge).expect("what was given up");
        assert_eq!(taken.epoch, old.epoch + 1);
    }
    let beat = scene.beat(first).await;
    assert_eq!(counts(&beat, &[first, second]), [2, 2], "what is left over is taken back");
    assert_eq!(beat.surplus, 0);
    let kept = lanes_of(&crowded, first)[0];
    assert!(lanes_of(&beat, first).contains(&kept), "what it kept it has as before");
}

pub async fn only_what_one_has_can_be_released(place: &dyn Place) {
    let scene = Scene::new(place).await;
    let (first, second) = (scene.join(LONG, 2).await, scene.join(LONG, 2).await);
    scene.beat(first).await;
    let before = scene.beat(second).await;
    let release = async |node, tenures: Vec<Tenure>| {
        scene.fleet().release(node, tenures).await.expect("answered");
        // One that is stopping takes nothing back.
        scene.last_beat(first).await;
        scene.last_beat(second).await
    };
    let own = lanes_of(&before, first)[0];
    let earlier = Tenure { epoch: own.epoch - 1, ..own };
    let later = Tenure { epoch: own.epoch + 1, ..own };
    let nowhere = Tenure { charge: Charge::Lane(Lane(99)), epoch: 1 };
    let cases = [
        ("nothing", first, Vec::new()),
        ("what another has", second, vec![own]),
        ("what it had before", first, vec![earlier]),
        ("what it never had", first, vec![later, nowhere]),
        ("anything, as nobody", NodeId(i64::MAX), vec![own]),
    ];
    for (what, node, tenures) in cases {
        assert_eq!(release(node, tenures).await.held, before.held, "{what}");
    }
    let after = release(first, vec![earlier, own, own]).await;
    assert_eq!(counts(&after, &[first, second]), [0, 1]);
    assert_eq!(release(first, vec![own]).await.held, after.held, "once is enough");
}

pub async fn a_dead_nodes_lanes_are_taken_after_its_lease_and_not_before(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let dies = scene.join(SHORT, LANES).await;
    let before = scene.beat(dies).await;
    assert_eq!(counts(&before, &[dies]), [usize::from(LANES)]);
    let heir = scene.join(LONG, LANES).await;
    let beat = scene
        .beat_until(heir, |beat| {
            if members(beat) != [dies, heir] {
                return true;
            }
            assert_eq!(beat.held, before.held, "it lives, and has all it had");
            assert!(beat.next_lapse.is_some_and(|lapse| lapse <= SHORT));
            false
        })
        .await;
    assert_eq!(members(&beat), [heir]);
    assert!(beat.now >= before.now.plus(SHORT), "its lease had not ended");
    assert_eq!((beat.next_lapse, beat.surplus), (None, 0));
    let anew = |old: Tenure| Tenure { epoch: old.epoch + 1, ..old };
    let expected: Vec<Tenure> = lanes_of(&before, dies).into_iter().map(anew).collect();
    assert_eq!(lanes_of(&beat, heir), expected);

    let back = scene.beat(dies).await;
    assert_eq!(back.held, beat.held, "it comes back, and has nothing");
    assert_eq!((members(&back), back.surplus), (vec![dies, heir], 0));
}

pub async fn a_node_that_was_away_has_what_nobody_took(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let away = scene.join(SHORT, 6).await;
    let before = scene.beat(away).await;
    let mut stay = Vec::new();
    for _ in 0..3 {
        stay.push(scene.join(LONG, 6).await);
    }
    // A third of what is there is one's share; the others do not come for theirs.
    let taken = scene.beat_until(stay[0], |beat| members(beat) == stay).await;
    assert_eq!(counts(&taken, &stay), [2, 0, 0]);
    assert_eq!(taken.held.len(), 2, "what a dead node has is not shown as held");

    let back = scene.beat(away).await;
    assert_eq!(counts(&back, &stay), [2, 0, 0]);
    let kept = lanes_of(&back, away);
    assert_eq!(kept.len(), 4);
    let had = lanes_of(&before, away);
    assert!(kept.iter().all(|tenure| had.contains(tenure)), "as before: {kept:?} of {had:?}");
    assert_eq!(back.surplus, 2, "it has the first place among four");
}

pub async fn a_stopping_node_takes_nothing_and_has_no_share(place: &dyn Place) {
    let scene = Scene::new(place).await;
    let mut seen = Witness::default();
    let nodes = [scene.join(LONG, 9).await, scene.join(LONG, 9).await, scene.join(LONG, 9).await];
    let [stays, stops, other] = nodes;
    let before = scene.share_out(&nodes, 9, &mut seen).await;
    assert_eq!(counts(&before, &nodes), [3, 3, 3]);

    let stopping = scene.last_beat(stops).await;
    assert_eq!(stopping.held, before.held);
    assert_eq!(stopping.surplus, 3, "all it has is too much");
    assert_eq!(members(&stopping), nodes, "it lives");
    let waiting = scene.beat(stays).await;
    assert_eq!((waiting.held, waiting.surplus), (before.held.clone(), 0));
    scene.fleet().release(stops, lanes_of(&before, stops)).await.expect("released");
    let stopped = scene.last_beat(stops).await;
    assert_eq!(counts(&stopped, &nodes), [3, 0, 3], "it takes nothing back");
    assert_eq!(stopped.surplus, 0);
    scene.beat(stays).await;
    let beat = scene.beat(other).await;
    assert_eq!(counts(&beat, &nodes), [5, 0, 4], "the others share by two");

    // It goes on after all.
    let beat = scene.beat(stops).await;
    assert_eq!((counts(&beat, &nodes), beat.surplus), (vec![5, 0, 4], 0));
    assert_eq!(scene.beat(stays).await.surplus, 2);
    assert_eq!(scene.beat(other).await.surplus, 1);

    // When all stop, nobody takes anything.
    for node in nodes {
        let beat = scene.last_beat(node).await;
        scene.fleet().release(node, lanes_of(&beat, node)).await.expect("released");
    }
    for node in nodes {
        let beat = scene.last_beat(node).await;
        assert_eq!((beat.held, beat.surplus), (Vec::new(), 0));
    }
}

pub async fn of_many_beats_at_once_no_lane_goes_to_two(place: &dyn Place) {
    const BEATS: u32 = 12;
    let scene = Scene::new(place).await;
    let mut nodes = Vec::new();
    for index in 0..8 {
        // The leases of some end between any two of their beats.
        let lease = if index % 2 == 0 { LONG } else { Duration::from_millis(1) };
        nodes.push(scene.join(lease, LANES).await);
    }
    let tasks: Vec<_> = (0_u32..)
        .zip(&nodes)
        .map(|(index, node)| {
            let (store, node, pulse) = (Arc::clone(&scene.store), *node, scene.pulse(*node));
            tokio::spawn(async move {
                let fleet = store.fleet().expect("shared");
                let mut beats = Vec::new();
                for round in 0..BEATS {
                    let now = pulse.now.plus(Duration::from_millis((round * 3 + index % 3).into()));
                    let takes = (round + index) % 5 != 0;
                    let beat = fleet.beat(Pulse { takes, now, ..pulse }).await;
                    let beat = beat.expect("answered").expect("a member");
                    let given = lanes_of(&beat, node).into_iter().take(beat.surplus).collect();
                    fleet.release(node, given).await.expect("released");
                    beats.push(beat);
                }
                beats
            })
        })
        .collect();
    let mut seen = Witness::default();
    for task in tasks {
        for beat in task.await.expect("no panic") {
            seen.see_any(&beat);
        }
    }

    // Those whose leases end go; the others come to rest.
    for node in nodes.iter().skip(1).step_by(2) {
        scene.fleet().leave(*node).await.expect("left");
    }
    let stay: Vec<NodeId> = nodes.iter().step_by(2).copied().collect();
    let beat = scene.share_out(&stay, LANES, &mut Witness::default()).await;
    seen.see_any(&beat);
    assert_eq!(counts(&beat, &stay), shares(LANES, stay.len()));
}

pub async fn there_are_as_many_lanes_as_the_first_node_said(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let first = scene.joined(LONG, 7).await;
    assert_eq!(first.lanes, 7);
    assert_eq!(scene.joined(LONG, 64).await.lanes, 7);
    for node in scene.fleet().nodes(scene.now).await.expect("a list") {
        scene.fleet().leave(node.node).await.expect("left");
    }
    scene.store.close().await;
    scene.store = place.open().await;
    let later = scene.joined(LONG, 64).await;
    assert_eq!(later.lanes, 7, "even when nobody is left");
    assert_eq!(counts(&scene.beat(later.node).await, &[later.node]), [7]);
}
