//! Each rule is broken once, and is seen to be.

use super::super::audit::Tried;
use super::super::ledger::{Ledger, Manner};
use super::super::random::Random;
use super::super::route::Topic;
use super::*;

/// A round in which everything went well.
#[derive(Clone)]
struct Scene {
    books: Books,
    arrivals: Vec<Arrival>,
    stored: Stored,
    terms: Terms,
}

const STRICT: Terms = Terms { order: Order::Strict, one_node: true, interruptions: 0 };

impl Scene {
    fn new() -> Self {
        let ledger = Ledger::new();
        let mut random = Random::new(9);
        let mut ids = BTreeMap::new();
        for turn in 0..40 {
            let manner = Manner { batches: turn % 4 == 0, insists: true };
            let parcel = ledger.draw(manner, &mut random).expect("there is room");
            ids.extend(parcel.numbers.iter().map(|number| (*number, id_of(*number))));
            let told = parcel.numbers.iter().map(|number| id_of(*number)).collect();
            ledger.acknowledge(&parcel, told);
        }
        let books = ledger.read();
        let mut arrivals = Vec::new();
        let mut stored = Stored { events: ids.len() as u64, deliveries: Vec::new() };
        for (number, event) in ids {
            let sent = sent(&books, number).expect("it was");
            for target in sent.topic.targets() {
                let delivery = format!("dlv_{number:06}_{}", target.name());
                arrivals.push(Arrival {
                    target,
                    event: event.clone(),
                    delivery: delivery.clone(),
                    attempt: 1,
                    number: Some(number),
                    kind: sent.topic.kind().to_owned(),
                    digest: sent.digest,
                    forged: None,
                    taken: true,
                    troubled: false,
                });
                stored.deliveries.push(Delivery {
                    id: delivery,
                    event: event.clone(),
                    target,
                    state: "delivered".to_owned(),
                    attempts: 1,
                    log: Some(vec![tried(1, "delivered")]),
                });
            }
        }
        Self { books, arrivals, stored, terms: STRICT }
    }

    fn check(&self) -> Finding {
        check(&self.books, &self.arrivals, &self.stored, self.terms)
    }

    /// Where the arrivals of an ordered endpoint are, those of one line.
    fn line(&self, target: Target) -> Vec<usize> {
        let key = |index: &usize| {
            let number = self.arrivals[*index].number.expect("a number");
            sent(&self.books, number).expect("it was").key
        };
        let mut of_target: Vec<usize> = (0..self.arrivals.len())
            .filter(|index| self.arrivals[*index].target == target)
            .collect();
        let first = key(of_target.first().expect("there are some"));
        of_target.retain(|index| key(index) == first);
        assert!(of_target.len() > 2, "the scene is too small");
        of_target
    }
}

fn id_of(number: u64) -> String {
    format!("evt_{number:06}")
}

fn tried(number: u64, outcome: &str) -> Tried {
    Tried { number, outcome: outcome.to_owned() }
}

#[test]
fn a_round_in_which_all_went_well_has_no_faults() {
    let scene = Scene::new();
    let finding = scene.check();
    assert_eq!(finding.faults.told, Vec::<String>::new());
    assert_eq!(finding.acknowledged, scene.books.sent.len());
    assert_eq!(finding.arrived, scene.books.sent.len());
    assert_eq!((finding.lost, finding.repeats, finding.bound), (0, 0, 0));
    let topics = [Topic::Plain, Topic::Line, Topic::Keyed];
    let all = |topic| scene.books.sent.iter().any(|sent| sent.topic == topic);
    assert!(topics.into_iter().all(all), "the scene is too small");
}

/// A deed, the words that the fault is told by, and what does it.
type Deed = (&'static str, &'static str, fn(&mut Scene));

#[test]
fn every_rule_that_is_broken_is_told() {
    let deeds: &[Deed] = &[
        ("an answer that should not be", "500", |scene| {
            scene.books.complaints.push("answered with 500".to_owned());
        }),
        ("a lost delivery", "acknowledged and lost", |scene| {
            let arrival = scene.arrivals.pop().expect("one");
            scene.stored.deliveries.retain(|delivery| delivery.id != arrival.delivery);
        }),
        ("one that was refused only", "acknowledged and lost", |scene| {
            scene.arrivals[0].taken = false;
        }),
        ("another id", "acknowledged as", |scene| scene.books.acks[0].event.push('x')),
        ("another body", "is not the one that was sent", |scene| scene.arrivals[0].digest[0] ^= 1),
        ("a bad signature", "does not pass", |scene| scene.arrivals[0].forged = Some("no")),
        ("something from nowhere", "never sent", |scene| {
            let arrival = Arrival { number: Some(999_999), ..scene.arrivals[0].clone() };
            scene.arrivals.push(arrival);
        }),
        ("another type", "which it is not for", |scene| {
            scene.arrivals[0].kind = "other".to_owned();
        }),
        ("no attempt", "which attempt", |scene| scene.arrivals[0].attempt = 0),
        ("stored twice", "arrived as", |scene| {
            let arrival = Arrival { event: "evt_x".to_owned(), ..scene.arrivals[0].clone() };
            scene.arrivals.push(arrival);
        }),
        ("two deliveries", "has the deliveries", |scene| {
            let arrival = Arrival { delivery: "dlv_x".to_owned(), ..scene.arrivals[0].clone() };
            scene.arrivals.push(arrival);
        }),
        ("one delivery of two events", "is of the events", |scene| {
            let delivery = scene.arrivals[0].delivery.clone();
            scene.arrivals[2].delivery = delivery;
        }),
        ("a part of what nobody was told of", "was taken by", |scene| {
            let event = scene.arrivals.pop().expect("one").event;
            scene.books.acks.retain(|ack| ack.event != event);
        }),
        ("stored and not sent", "events are stored", |scene| scene.stored.events += 1),
        ("sent and not stored", "but not both", |scene| {
            scene.stored.deliveries.pop();
        }),
        ("stored beside another", "beside another", |scene| {
            let delivery = scene.stored.deliveries[0].clone();
            scene.stored.deliveries.push(delivery);
        }),
        ("half a batch", "of batch", |scene| {
            let event = id_of(0);
            scene.books.acks.retain(|ack| ack.event != event);
            scene.arrivals.retain(|arrival| arrival.event != event);
            scene.stored.deliveries.retain(|delivery| delivery.event != event);
            scene.stored.events -= 1;
        }),
        ("a repeat beyond the bound", "arrived again", |scene| {
            let arrival = scene.arrivals[0].clone();
            scene.arrivals.push(arrival);
        }),
        ("one that still waits", "is retrying", |scene| {
            scene.stored.deliveries[0].state = "retrying".to_owned();
        }),
        ("a gap in the attempts", "and they are [1, 3]", |scene| {
            let delivery = &mut scene.stored.deliveries[0];
            delivery.attempts = 2;
            delivery.log = Some(vec![tried(1, "retryable"), tried(3, "delivered")]);
        }),
        ("an attempt after success", "went on after", |scene| {
            let delivery = &mut scene.stored.deliveries[0];
            delivery.attempts = 2;
            delivery.log = Some(vec![tried(1, "delivered"), tried(2, "delivered")]);
        }),
        ("an attempt that is not counted", "is not counted", |scene| {
            scene.arrivals[0].attempt = 2;
        }),
        ("out of order in the line", "fifo: ", |scene| {
            let line = scene.line(Target::Fifo);
            scene.arrivals.swap(line[0], line[1]);
        }),
        ("out of order for a key", "by-key: ", |scene| {
            let line = scene.line(Target::ByKey);
            scene.arrivals.swap(line[0], line[1]);
        }),
        ("again after one that is behind it", "which is behind it", |scene| {
            scene.terms.interruptions = 1;
            let line = scene.line(Target::ByKey);
            let again = scene.arrivals[line[0]].clone();
            scene.arrivals.push(again);
        }),
    ];
    for (deed, says, commit) in deeds {
        let mut scene = Scene::new();
        commit(&mut scene);
        let told = scene.check().faults.told;
        assert!(told.iter().any(|fault| fault.contains(says)), "{deed}: {told:#?}");
    }
}

#[test]
fn what_was_in_flight_may_arrive_again() {
    let mut scene = Scene::new();
    let again = scene.arrivals[0].clone();
    scene.arrivals.push(again);
    scene.terms.interruptions = 1;
    let finding = scene.check();
    assert_eq!(finding.faults.told, Vec::<String>::new());
    let most: usize = Target::ALL.into_iter().map(Target::max_in_flight).sum();
    assert_eq!((finding.repeats, finding.bound), (1, most));

    let mut scene = Scene::new();
    let mut again = scene.arrivals[0].clone();
    scene.arrivals[0].troubled = true;
    again.attempt = 2;
    scene.arrivals.push(again);
    let delivery = &mut scene.stored.deliveries[0];
    delivery.attempts = 2;
    delivery.log = Some(vec![tried(1, "retryable"), tried(2, "delivered")]);
    let finding = scene.check();
    assert_eq!(finding.faults.told, Vec::<String>::new());
    assert_eq!((finding.repeats, finding.bound), (1, 1));
}

#[test]
fn an_attempt_after_a_refusal_is_no_repeat() {
    let mut scene = Scene::new();
    let first = Arrival { taken: false, ..scene.arrivals[0].clone() };
    scene.arrivals[0].attempt = 2;
    scene.arrivals.insert(0, first);
    scene.stored.deliveries[0].attempts = 2;
    scene.stored.deliveries[0].log = None;
    let finding = scene.check();
    assert_eq!(finding.faults.told, Vec::<String>::new());
    assert_eq!(finding.repeats, 0);
}

#[test]
fn where_attempts_may_arrive_late_only_first_arrivals_have_an_order() {
    let mut scene = Scene::new();
    scene.terms = Terms { order: Order::FirstArrivals, one_node: false, interruptions: 1 };
    let line = scene.line(Target::ByKey);
    let again = scene.arrivals[line[0]].clone();
    scene.arrivals.push(again);
    assert_eq!(scene.check().faults.told, Vec::<String>::new());
    // Those of one batch have no order that a producer could know.
    scene.arrivals.swap(line[0], line[line.len() - 1]);
    let told = scene.check().faults.told;
    assert!(told.iter().any(|fault| fault.contains("which is behind it")), "{told:#?}");
}
