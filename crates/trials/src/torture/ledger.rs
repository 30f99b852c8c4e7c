//! What producers sent and what they were told: kept in memory, where nobody is killed.

use std::fmt::Write as _;

use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;

use super::random::Random;
use super::route::{KEYS, Topic};

/// The most events of one round.
const MAX_EVENTS: usize = 2_000_000;
/// The most answers that are kept of those that should not have been.
const MAX_COMPLAINTS: usize = 20;
/// The most events in one batch; one has at least two.
const MAX_IN_BATCH: u64 = 24;

pub(crate) type Digest = [u8; 32];

pub(crate) fn digest(body: &[u8]) -> Digest {
    Sha256::digest(body).into()
}

/// How a producer sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Manner {
    pub(crate) batches: bool,
    /// Under an idempotency key, and again until somebody says yes. Without one it is sent once.
    pub(crate) insists: bool,
}

/// An event as it was sent, by its number.
#[derive(Debug, Clone)]
pub(crate) struct Sent {
    pub(crate) topic: Topic,
    /// The ordering key.
    pub(crate) key: Option<u64>,
    pub(crate) digest: Digest,
    /// Which batch it was part of.
    pub(crate) batch: Option<u64>,
    /// A tick of one clock for all producers: one event was surely accepted before another if its
    /// answer was there before the other was sent.
    pub(crate) at: u64,
}

/// An event that the gateway has said yes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ack {
    pub(crate) number: u64,
    pub(crate) event: String,
    pub(crate) at: u64,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Books {
    pub(crate) sent: Vec<Sent>,
    pub(crate) acks: Vec<Ack>,
    /// Requests that were answered with 429 or 503.
    pub(crate) refused: u64,
    /// Requests that were not answered, or by a connection that ended.
    pub(crate) unanswered: u64,
    /// Answers that should not have been.
    pub(crate) complaints: Vec<String>,
    /// The highest number that was acknowledged.
    pub(crate) newest: Option<u64>,
    batches: u64,
    ticks: u64,
}

impl Books {
    pub(crate) fn tick(&mut self) -> u64 {
        self.ticks += 1;
        self.ticks
    }
}

/// What one request carries.
#[derive(Debug, Clone)]
pub(crate) struct Parcel {
    pub(crate) numbers: Vec<u64>,
    pub(crate) manner: Manner,
    pub(crate) text: String,
}

impl Parcel {
    pub(crate) const fn path(&self) -> &'static str {
        if self.manner.batches { "/v1/events/batch" } else { "/v1/events" }
    }

    /// The ids of its events, from an answer that says yes.
    pub(crate) fn ids(&self, answer: &Value) -> Option<Vec<String>> {
        let id = |receipt: &Value| receipt["id"].as_str().map(str::to_owned);
        if !self.manner.batches {
            return Some(vec![id(answer)?]);
        }
        let ids: Vec<String> = answer["results"].as_array()?.iter().map_while(id).collect();
        (ids.len() == self.numbers.len()).then_some(ids)
    }
}

#[derive(Debug)]
pub(crate) struct Ledger {
    books: watch::Sender<Books>,
}

impl Ledger {
    pub(crate) fn new() -> Self {
        Self { books: watch::Sender::new(Books::default()) }
    }

    pub(crate) fn books(&self) -> watch::Receiver<Books> {
        self.books.subscribe()
    }

    pub(crate) fn read(&self) -> Books {
        self.books.borrow().clone()
    }

    /// The number of the next event.
    pub(crate) fn next_number(&self) -> u64 {
        self.books.borrow().sent.len() as u64
    }

    pub(crate) fn acknowledged(&self) -> usize {
        self.books.borrow().acks.len()
    }

    /// Makes something up to be sent, and writes it down. None once there is enough.
    pub(crate) fn draw(&self, manner: Manner, random: &mut Random) -> Option<Parcel> {
        let mut parcel = None;
        self.books.send_modify(|books| {
            let count = if manner.batches { 2 + random.below(MAX_IN_BATCH - 1) } else { 1 };
            if books.sent.len() as u64 + count > MAX_EVENTS as u64 {
                return;
            }
            let at = books.tick();
            let batch = manner.batches.then_some(books.batches);
            books.batches += u64::from(manner.batches);
            let mut numbers = Vec::new();
            let mut texts = Vec::new();
            for _ in 0..count {
                let number = books.sent.len() as u64;
                let (topic, key) = draw_topic(random);
                let body = body(number, random);
                texts.push(envelope(number, topic, key, manner, &body));
                books.sent.push(Sent { topic, key, digest: digest(body.as_bytes()), batch, at });
                numbers.push(number);
            }
            let text = texts.join(",");
            let text = if manner.batches { format!(r#"{{"events":[{text}]}}"#) } else { text };
            parcel = Some(Parcel { numbers, manner, text });
        });
        parcel
    }

    pub(crate) fn acknowledge(&self, parcel: &Parcel, ids: Vec<String>) {
        self.books.send_modify(|books| {
            let at = books.tick();
            for (number, event) in parcel.numbers.iter().zip(ids) {
                books.newest = books.newest.max(Some(*number));
                books.acks.push(Ack { number: *number, event, at });
            }
        });
    }

    pub(crate) fn note_refusal(&self) {
        self.books.send_modify(|books| books.refused += 1);
    }

    pub(crate) fn note_silence(&self) {
        self.books.send_modify(|books| books.unanswered += 1);
    }

    pub(crate) fn complain(&self, what: String) {
        self.books.send_modify(|books| {
            if books.complaints.len() < MAX_COMPLAINTS {
                books.complaints.push(what);
            }
        });
    }
}

/// Lines are worked off one by one, so less goes into them.
fn draw_topic(random: &mut Random) -> (Topic, Option<u64>) {
    match random.below(20) {
        0..3 => (Topic::Line, None),
        3..9 => (Topic::Keyed, Some(random.below(KEYS))),
        _ => (Topic::Plain, None),
    }
}

/// Mostly small, now and then larger than a page, seldom larger than many.
fn body(number: u64, random: &mut Random) -> String {
    let filling = match random.below(200) {
        0 => 60_000 + random.below(5_000),
        1..10 => 5_000 + random.below(5_000),
        _ => random.below(600),
    };
    let letter = char::from(b'a' + u8::try_from(number % 26).unwrap_or(0));
    let filling = letter.to_string().repeat(usize::try_from(filling).unwrap_or(0));
    format!(r#"{{"number":{number}, "filling":"{filling}"}}"#)
}

/// The number in a body.
pub(crate) fn number_in(body: &[u8]) -> Option<u64> {
    serde_json::from_slice::<Value>(body).ok()?["number"].as_u64()
}

fn envelope(number: u64, topic: Topic, key: Option<u64>, manner: Manner, body: &str) -> String {
    let mut text = format!(r#"{{"type":"{}","payload":{body}"#, topic.kind());
    // Writing to a String cannot fail.
    if let Some(key) = key {
        let _ = write!(text, r#","ordering_key":"line-{key}""#);
    }
    if manner.insists {
        let _ = write!(text, r#","idempotency_key":"key-{number}""#);
    }
    text.push('}');
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ONCE: Manner = Manner { batches: false, insists: false };

    #[test]
    fn what_is_drawn_is_what_is_written_down() {
        let ledger = Ledger::new();
        let mut random = Random::new(5);
        for manner in [ONCE, Manner { batches: true, insists: true }] {
            let parcel = ledger.draw(manner, &mut random).expect("there is room");
            let text: Value = serde_json::from_str(&parcel.text).expect("JSON");
            let events = match text["events"].as_array() {
                Some(events) => events.clone(),
                None => vec![text],
            };
            assert_eq!(events.len(), parcel.numbers.len());
            let books = ledger.read();
            for (number, event) in parcel.numbers.iter().zip(events) {
                let sent = &books.sent[usize::try_from(*number).expect("small")];
                assert_eq!(event["type"], sent.topic.kind());
                assert_eq!(event["payload"]["number"], *number);
                assert_eq!(event["idempotency_key"].is_string(), manner.insists);
                assert_eq!(event["ordering_key"].is_string(), sent.key.is_some());
                assert_eq!(sent.batch.is_some(), manner.batches);
                assert!(sent.at > 0);
            }
        }
    }

    #[test]
    fn a_yes_counts_only_if_it_names_every_event() {
        let single = Parcel { numbers: vec![3], manner: ONCE, text: String::new() };
        assert_eq!(single.ids(&json!({ "id": "a" })), Some(vec!["a".to_owned()]));
        assert_eq!(single.ids(&json!({})), None);
        let manner = Manner { batches: true, insists: false };
        let batch = Parcel { numbers: vec![3, 4], manner, text: String::new() };
        let both = json!({ "results": [{ "id": "a" }, { "id": "b" }] });
        assert_eq!(batch.ids(&both), Some(vec!["a".to_owned(), "b".to_owned()]));
        for other in [json!({ "results": [{ "id": "a" }, { "error": 1 }] }), json!({})] {
            assert_eq!(batch.ids(&other), None, "{other}");
        }
    }

    #[test]
    fn an_answer_comes_after_what_it_answers() {
        let ledger = Ledger::new();
        let parcel = ledger.draw(ONCE, &mut Random::new(1)).expect("there is room");
        ledger.acknowledge(&parcel, vec!["evt_1".to_owned()]);
        let books = ledger.read();
        assert!(books.acks[0].at > books.sent[0].at);
        assert_eq!(books.newest, Some(0));
        assert_eq!(ledger.next_number(), 1);
    }
}
