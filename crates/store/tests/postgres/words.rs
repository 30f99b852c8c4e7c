//! Word from one node to another, and what becomes of it when connections are lost.

use postrider_store::fleet::{Fleet as _, Heard, Joined, MAX_WORD, NodeId, To};
use tokio::sync::mpsc;

use super::fleet::new_node;
use super::*;

const LEASE: Duration = Duration::from_secs(10);

/// Nobody waits longer for a word that was told.
const PATIENCE: Duration = Duration::from_secs(20);

/// The backends that hold the lock of processes, which hear and tell.
const LISTENING: &str = "FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND \
     mode = 'ShareLock' AND \
     database = (SELECT oid FROM pg_database WHERE datname = current_database())";

struct Speaker {
    store: Postgres,
    id: NodeId,
    heard: mpsc::Receiver<Heard>,
}

impl Speaker {
    async fn join(database: &Database) -> Self {
        let store = database.store(few()).await;
        let Joined { node: id, .. } = store.join(new_node(LEASE)).await.expect("it joins");
        let heard = store.hear(id, 10_000);
        Self { store, id, heard }
    }

    fn tell(&self, to: To, word: &str) {
        self.store.tell(self.id, to, word.to_owned());
    }

    async fn next(&mut self) -> Option<Heard> {
        tokio::time::timeout(PATIENCE, self.heard.recv()).await.expect("something is heard")
    }

    /// Everything up to the word `last`.
    async fn until(&mut self, last: &str) -> Vec<Heard> {
        let mut heard = Vec::new();
        loop {
            match self.next().await.expect("the store is open") {
                Heard::Word { word, .. } if word == last => return heard,
                other => heard.push(other),
            }
        }
    }
}

fn word(from: &Speaker, word: &str) -> Heard {
    Heard::Word { from: from.id, word: word.to_owned() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn words_reach_whom_they_are_for_and_nobody_else() {
    let database = Database::new();
    let [mut one, mut two, mut three] = [
        Speaker::join(&database).await,
        Speaker::join(&database).await,
        Speaker::join(&database).await,
    ];
    one.tell(To::Node(two.id), "for two");
    one.tell(To::All, "for others\0\u{ffff}: ü");
    one.tell(To::All, "twice");
    one.tell(To::All, "twice");
    one.tell(To::All, &"x".repeat(MAX_WORD + 1));
    let longest = "y".repeat(MAX_WORD);
    one.tell(To::All, &longest);
    one.tell(To::Node(NodeId(999)), "for nobody");
    database.sql("NOTIFY postrider_all, 'not one of ours'");
    one.tell(To::All, "end");
    let to_all =
        ["for others\0\u{ffff}: ü", "twice", "twice", &longest].map(|text| word(&one, text));
    let heard = two.until("end").await;
    assert_eq!(heard[0], word(&one, "for two"));
    assert_eq!(heard[1..], to_all);
    assert_eq!(three.until("end").await, to_all);
    // Its own words it does not hear.
    three.tell(To::All, "from three");
    assert_eq!(one.next().await, Some(word(&three, "from three")));
    assert_eq!(two.next().await, Some(word(&three, "from three")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_of_one_process_hear_each_other() {
    let database = Database::new();
    let mut one = Speaker::join(&database).await;
    let two = one.store.join(new_node(LEASE)).await.expect("it joins").node;
    let mut heard = one.store.hear(two, 10);
    one.tell(To::All, "a");
    one.store.tell(two, To::All, "b".to_owned());
    one.store.tell(two, To::Node(one.id), "c".to_owned());
    let first = tokio::time::timeout(PATIENCE, heard.recv()).await.expect("something is heard");
    assert_eq!(first, Some(word(&one, "a")));
    let from_two = |word: &str| Some(Heard::Word { from: two, word: word.to_owned() });
    assert_eq!(one.next().await, from_two("b"));
    assert_eq!(one.next().await, from_two("c"));
    // It is another's connection that listens for one that left no more.
    one.store.leave(two).await.expect("it leaves");
    drop(heard);
    one.tell(To::Node(one.id), "d");
    assert_eq!(one.next().await, Some(word(&one, "d")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_words_come_in_the_order_they_were_told() {
    let database = Database::new();
    let [one, mut two] = [Speaker::join(&database).await, Speaker::join(&database).await];
    for number in 0..2_000 {
        let to = if number % 2 == 0 { To::All } else { To::Node(two.id) };
        one.tell(to, &number.to_string());
    }
    one.tell(To::All, "end");
    let expected: Vec<Heard> = (0..2_000).map(|number| word(&one, &number.to_string())).collect();
    assert!(two.until("end").await == expected, "some are missing, or elsewhere");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_connection_is_a_gap_and_nothing_else() {
    let database = Database::new();
    let [mut one, mut two] = [Speaker::join(&database).await, Speaker::join(&database).await];
    for round in 0..3 {
        one.tell(To::Node(two.id), "before");
        assert_eq!(two.next().await, Some(word(&one, "before")));
        // Nothing that is written waits for it.
        let writing = async {
            for number in 0..20 {
                let new = event(100 * round + number, &Bytes::new());
                one.store.append(vec![new]).await.expect("stored");
            }
        };
        let killing = async {
            let killed =
                database.sql(&format!("SELECT count(pg_terminate_backend(pid)) {LISTENING}"));
            assert_eq!(killed, "2");
        };
        tokio::join!(writing, killing);
        assert_eq!(one.next().await, Some(Heard::Gap));
        assert_eq!(two.next().await, Some(Heard::Gap));
        one.tell(To::All, "after");
        assert_eq!(two.next().await, Some(word(&one, "after")));
        two.tell(To::Node(one.id), "after");
        assert_eq!(one.next().await, Some(word(&two, "after")));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_told_before_a_store_closes_is_heard() {
    let database = Database::new();
    let [mut one, mut two] = [Speaker::join(&database).await, Speaker::join(&database).await];
    for _ in 0..500 {
        one.tell(To::All, "going");
    }
    one.tell(To::All, "gone");
    one.store.close().await;
    assert_eq!(two.until("gone").await.len(), 500);
    assert_eq!(one.next().await, None, "nothing more is heard");
    one.tell(To::All, "too late");
    assert!(one.store.hear(one.id, 1).recv().await.is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_hears_without_having_joined_begins_with_a_gap() {
    let database = Database::new();
    let one = Speaker::join(&database).await;
    let store = database.store(few()).await;
    let id = NodeId(77);
    let mut heard = store.hear(id, 10);
    let first = tokio::time::timeout(PATIENCE, heard.recv()).await.expect("something is heard");
    assert_eq!(first, Some(Heard::Gap));
    one.tell(To::Node(id), "a");
    let second = tokio::time::timeout(PATIENCE, heard.recv()).await.expect("something is heard");
    assert_eq!(second, Some(word(&one, "a")));
}
