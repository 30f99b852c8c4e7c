//! What one node tells is heard by those it concerns, in the order it was told. Words are hints: what
//! is lost is lost, but a gap says so.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::timeout;

use super::Place;
use super::fleet::LONG;
use super::scene::Scene;
use crate::fleet::{Heard, MAX_WORD, NodeId, To};

/// What was not heard after so long is told again, where that is allowed …
const AGAIN: Duration = Duration::from_millis(200);
/// … so often at most.
const MAX_TELLINGS: usize = 100;
/// What was told to somebody who listens is heard within this.
const SOON: Duration = Duration::from_secs(20);

struct Ear {
    heard: mpsc::Receiver<Heard>,
}

impl Ear {
    /// Listens, and waits until it hears `friend`.
    async fn of(scene: &Scene, node: NodeId, friend: NodeId, room: usize) -> Self {
        let mut ear = Self { heard: scene.fleet().hear(node, room) };
        ear.expect_again(scene, friend, node, "hello").await;
        ear
    }

    /// Tells it something, again and again, until it has heard the last that was told; returns what
    /// it heard before.
    async fn expect_again(
        &mut self,
        scene: &Scene,
        friend: NodeId,
        node: NodeId,
        word: &str,
    ) -> Vec<Heard> {
        let mut others = Vec::new();
        for telling in 0..MAX_TELLINGS {
            let word = format!("{word} {telling}");
            scene.fleet().tell(friend, To::Node(node), word.clone());
            let last = Heard::Word { from: friend, word };
            while let Ok(heard) = timeout(AGAIN, self.heard.recv()).await {
                let heard = heard.expect("the store is open");
                if heard == last {
                    return others;
                }
                others.push(heard);
            }
        }
        panic!("{word} is not heard")
    }

    async fn next(&mut self) -> (NodeId, String) {
        let heard = timeout(SOON, self.heard.recv()).await.expect("something is heard");
        match heard.expect("the store is open") {
            Heard::Word { from, word } => (from, word),
            Heard::Gap => panic!("nothing was lost"),
        }
    }

    /// All that is heard up to `last`.
    async fn up_to(&mut self, last: &str) -> Vec<(NodeId, String)> {
        let mut words = Vec::new();
        loop {
            let (from, word) = self.next().await;
            if word == last {
                return words;
            }
            words.push((from, word));
        }
    }
}

async fn three(scene: &Scene) -> [NodeId; 3] {
    [scene.join(LONG, 4).await, scene.join(LONG, 4).await, scene.join(LONG, 4).await]
}

pub async fn words_reach_those_they_are_for(place: &dyn Place) {
    let scene = Scene::new(place).await;
    let [a, b, c] = three(&scene).await;
    let mut at_a = Ear::of(&scene, a, b, 100).await;
    let mut at_b = Ear::of(&scene, b, a, 100).await;
    let mut at_c = Ear::of(&scene, c, a, 100).await;
    let tell = |from, to, word: &str| scene.fleet().tell(from, to, word.to_owned());
    tell(a, To::Node(b), "a to b");
    tell(a, To::All, "a to all");
    tell(a, To::Node(NodeId(i64::MAX)), "a to nobody");
    tell(a, To::Node(c), "a to c");
    for node in [b, c] {
        tell(a, To::Node(node), "end of a");
    }
    let said = |from: NodeId, words: &[&str]| -> Vec<(NodeId, String)> {
        words.iter().map(|word| (from, (*word).to_owned())).collect()
    };
    assert_eq!(at_b.up_to("end of a").await, said(a, &["a to b", "a to all"]));
    assert_eq!(at_c.up_to("end of a").await, said(a, &["a to all", "a to c"]));
    // Whoever tells it to all does not hear it.
    tell(b, To::All, "b to all");
    for node in [a, c] {
        tell(b, To::Node(node), "end of b");
    }
    assert_eq!(at_a.up_to("end of b").await, said(b, &["b to all"]));
    assert_eq!(at_c.up_to("end of b").await, said(b, &["b to all"]));
    tell(c, To::All, "c to all");
    assert_eq!(at_a.next().await, (c, "c to all".to_owned()));
    assert_eq!(at_b.next().await, (c, "c to all".to_owned()), "nor what was told before");
}

pub async fn words_are_heard_in_the_order_they_were_told(place: &dyn Place) {
    const WORDS: usize = 200;
    let scene = Scene::new(place).await;
    let [a, b, c] = three(&scene).await;
    let mut at_c = Ear::of(&scene, c, a, 3 * WORDS).await;
    for number in 0..WORDS {
        for from in [a, b] {
            let to = if number % 3 == 0 { To::All } else { To::Node(c) };
            scene.fleet().tell(from, to, number.to_string());
        }
    }
    let mut heard = Vec::new();
    for _ in 0..2 * WORDS {
        heard.push(at_c.next().await);
    }
    let told: Vec<String> = (0..WORDS).map(|number| number.to_string()).collect();
    for from in [a, b] {
        let words = heard.iter().filter(|(by, _)| *by == from).map(|(_, word)| word.clone());
        assert_eq!(words.collect::<Vec<_>>(), told);
    }
}

pub async fn a_word_is_heard_as_it_was_told_unless_it_is_too_long(place: &dyn Place) {
    let scene = Scene::new(place).await;
    let [a, b, _] = three(&scene).await;
    let mut at_b = Ear::of(&scene, b, a, 100).await;
    let long = "x".repeat(MAX_WORD);
    let wide = "\u{fc}".repeat(MAX_WORD / 2);
    let odd = "it's \"odd\"\\ {}:,; \n\t\r \u{1f600} $1 %s";
    for (to, prefix) in [(To::Node(b), "one "), (To::All, "all ")] {
        scene.fleet().tell(a, to, format!("x{long}"));
        scene.fleet().tell(a, to, format!("\u{fc}{wide}"));
        for word in [long.as_str(), wide.as_str(), odd, "", prefix] {
            scene.fleet().tell(a, to, word.to_owned());
            assert_eq!(at_b.next().await, (a, word.to_owned()));
        }
    }
}

pub async fn a_gap_says_that_something_was_lost(place: &dyn Place) {
    const ROOM: usize = 4;
    const WORDS: usize = 60;
    let scene = Scene::new(place).await;
    let [a, b, c] = three(&scene).await;
    let mut at_b = Ear::of(&scene, b, a, ROOM).await;
    let mut at_c = Ear::of(&scene, c, a, 2 * WORDS).await;
    for round in 0..2 {
        for number in 0..WORDS {
            scene.fleet().tell(a, To::All, number.to_string());
        }
        // When the other has heard them all, this one has lost what it has no room for.
        for number in 0..WORDS {
            assert_eq!(at_c.next().await, (a, number.to_string()), "others lose nothing");
        }
        let mut heard = Vec::new();
        for number in 0..ROOM {
            assert_eq!(at_b.next().await, (a, number.to_string()), "the newest are lost");
            heard.push(Heard::Word { from: a, word: number.to_string() });
        }
        heard.extend(at_b.expect_again(&scene, a, b, "end").await);
        let gap = heard.iter().position(|heard| *heard == Heard::Gap);
        assert!(gap >= Some(ROOM), "round {round}: {heard:?}");
        assert!(heard.len() < WORDS, "nothing was lost");
    }
}

pub async fn who_stops_listening_is_in_nobodys_way(place: &dyn Place) {
    let scene = Scene::new(place).await;
    let [a, b, c] = three(&scene).await;
    let mut at_c = Ear::of(&scene, c, a, 10).await;
    for round in 0..3 {
        drop(Ear::of(&scene, b, a, 1).await);
        scene.fleet().tell(a, To::All, round.to_string());
        assert_eq!(at_c.next().await, (a, round.to_string()));
    }
    // It hears again when it listens again.
    let mut at_b = Ear::of(&scene, b, a, 10).await;
    scene.fleet().tell(c, To::Node(b), "again".to_owned());
    assert_eq!(at_b.next().await, (c, "again".to_owned()));
    scene.store.close().await;
    let end = timeout(SOON, at_b.heard.recv()).await.expect("it ends with the store");
    assert_eq!(end, None);
    scene.fleet().tell(a, To::All, "nobody hears it".to_owned());
}
