//! Words between nodes: the server's notifications, on one connection of each process.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::{Notify, mpsc, watch};
use tokio_postgres::Notification;

use super::ears::{Ears, Wanted};
use super::outbox::{Outbox, Outgoing};
use crate::fleet::{Heard, NodeId, To};
use crate::postgres::fault::Fault;
use crate::postgres::session::{Ear, Session};
use crate::postgres::text;

/// What all nodes listen to.
const ALL: &str = "postrider_all";

/// What one node listens to; its id follows.
const NODE: &str = "postrider_node_";

/// The longest that the server passes on.
const MAX_PAYLOAD: usize = 7_999;

/// Everything that waits, in one transaction.
const TELL: &str = "SELECT pg_notify(w.channel, w.payload) \
     FROM unnest($1::text[], $2::text[]) w (channel, payload)";

/// What is told and heard in this process. The connection belongs to somebody else, who calls.
pub(crate) struct Wire {
    ears: Arc<Ears>,
    outbox: Outbox,
    call: Notify,
    /// The serial of what is wanted that the connection listens for; none while there is none.
    tuned: watch::Sender<Option<u64>>,
}

/// The nodes whose words a connection gets.
#[derive(Debug)]
pub(crate) struct Tuned(BTreeSet<NodeId>);

impl Wire {
    pub(crate) fn new() -> Self {
        Self {
            ears: Arc::default(),
            outbox: Outbox::default(),
            call: Notify::new(),
            tuned: watch::Sender::new(None),
        }
    }

    /// Whatever is told to `node` from now on reaches this process. If there is no connection, those
    /// who hear learn of a gap when there is one.
    pub(crate) async fn attach(&self, node: NodeId) {
        let serial = self.ears.want(node);
        self.call.notify_one();
        let reached = |tuned: &Option<u64>| tuned.is_none_or(|tuned| tuned >= serial);
        // It lives as long as this does.
        let _ = self.tuned.subscribe().wait_for(reached).await;
    }

    pub(crate) fn detach(&self, node: NodeId) {
        self.ears.forget(node);
        self.call.notify_one();
    }

    pub(crate) fn tell(&self, from: NodeId, to: To, word: String) {
        self.outbox.put(from, to, word, Instant::now());
        self.call.notify_one();
    }

    pub(crate) fn hear(&self, node: NodeId, room: usize) -> mpsc::Receiver<Heard> {
        let heard = self.ears.hear(node, room);
        self.call.notify_one();
        heard
    }

    /// For the connection that listens.
    pub(crate) fn ear(&self) -> Ear {
        let ears = Arc::clone(&self.ears);
        Arc::new(move |notification| {
            if let Some((from, to, word)) = understand(notification) {
                ears.take(from, to, &word);
            }
        })
    }

    /// Listens on a new connection for all that is wanted. What was told before was not heard.
    pub(crate) async fn tune_in(&self, session: &Session) -> Result<Tuned, Fault> {
        let Wanted { nodes, serial } = self.ears.wanted();
        // Nothing that is told has to survive a crash of the server.
        let mut script = vec!["SET synchronous_commit = off".to_owned(), format!("LISTEN {ALL}")];
        script.extend(nodes.iter().map(|node| format!("LISTEN {}", channel(*node))));
        session.script(&script.join("; ")).await?;
        self.ears.gap_for_all();
        self.tuned.send_replace(Some(serial));
        Ok(Tuned(nodes))
    }

    /// Waits until something is to be sent, or listened for.
    pub(crate) async fn called(&self) {
        self.call.notified().await;
    }

    /// Does what is to be done.
    pub(crate) async fn serve(&self, session: &Session, tuned: &mut Tuned) -> Result<(), Fault> {
        self.tune(session, tuned).await?;
        loop {
            let batch = self.outbox.take(Instant::now());
            if batch.is_empty() {
                return Ok(());
            }
            let (channels, payloads): (Vec<String>, Vec<String>) =
                (0..).zip(batch).filter_map(|(index, out)| express(index, &out)).unzip();
            session.execute(TELL, &[&channels, &payloads]).await?;
        }
    }

    async fn tune(&self, session: &Session, tuned: &mut Tuned) -> Result<(), Fault> {
        let Wanted { nodes, serial } = self.ears.wanted();
        let new: BTreeSet<NodeId> = nodes.difference(&tuned.0).copied().collect();
        let listen = new.iter().map(|node| format!("LISTEN {}", channel(*node)));
        let gone = tuned.0.difference(&nodes).map(|node| format!("UNLISTEN {}", channel(*node)));
        let script: Vec<String> = listen.chain(gone).collect();
        if !script.is_empty() {
            session.script(&script.join("; ")).await?;
        }
        // Whoever began to hear before this was listened for may have missed something.
        self.ears.gap(&new);
        tuned.0 = nodes;
        self.tuned.send_replace(Some(serial));
        Ok(())
    }

    /// The connection is lost.
    pub(crate) fn cut(&self) {
        self.tuned.send_replace(None);
    }

    /// There will be no other.
    pub(crate) fn end(&self) {
        self.cut();
        self.outbox.end();
        self.ears.end();
    }
}

fn channel(node: NodeId) -> String {
    format!("{NODE}{}", node.0)
}

/// The channel and the payload of a word; none if the server would not take it. Of two that are the
/// same in one transaction the server passes on only one, so they are numbered.
fn express(index: usize, out: &Outgoing) -> Option<(String, String)> {
    let channel = match out.to {
        To::All => ALL.to_owned(),
        To::Node(node) => channel(node),
    };
    let payload = format!("{}.{index}:{}", out.from.0, text::encode(&out.word));
    (payload.len() <= MAX_PAYLOAD).then_some((channel, payload))
}

/// None, if it is not one of ours.
fn understand(notification: &Notification) -> Option<(NodeId, To, String)> {
    read(notification.channel(), notification.payload())
}

fn read(channel: &str, payload: &str) -> Option<(NodeId, To, String)> {
    let to = match channel.strip_prefix(NODE) {
        Some(node) => To::Node(NodeId(node.parse().ok()?)),
        None if channel == ALL => To::All,
        None => return None,
    };
    let (from, word) = payload.split_once(':')?;
    let (from, _) = from.split_once('.')?;
    Some((NodeId(from.parse().ok()?), to, text::decode(word).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_that_fits_is_read_as_it_was_told() {
        let (outbox, now) = (Outbox::default(), Instant::now());
        let words = ["", "a:b.c", "1.2:3", "\0", "\u{ffff}", "ü 🛵"].map(str::to_owned);
        let longest = "x".repeat(crate::fleet::MAX_WORD);
        for word in words.into_iter().chain([longest]) {
            for to in [To::All, To::Node(NodeId(i64::MAX))] {
                outbox.put(NodeId(i64::MAX), to, word.clone(), now);
                let out = outbox.take(now).pop().expect("just put");
                let (channel, payload) = express(usize::MAX, &out).expect("it fits");
                let read = read(&channel, &payload);
                assert_eq!(read, Some((NodeId(i64::MAX), to, word.clone())), "{word}");
            }
        }
        outbox.put(NodeId(1), To::All, "\0".repeat(crate::fleet::MAX_WORD), now);
        let out = outbox.take(now).pop().expect("just put");
        assert!(express(0, &out).is_none(), "the server would refuse it");
    }

    #[test]
    fn what_is_not_ours_is_passed_over() {
        let cases = [
            ("postrider_all", ""),
            ("postrider_all", "a.0:b"),
            ("postrider_all", "1:b"),
            ("postrider_all", "1.0"),
            ("postrider_all", "1.0:\u{ffff}"),
            ("postrider_node_", "1.0:b"),
            ("postrider_node_x", "1.0:b"),
            ("other", "1.0:b"),
        ];
        for (channel, payload) in cases {
            assert_eq!(read(channel, payload), None, "{channel} {payload}");
        }
    }
}
