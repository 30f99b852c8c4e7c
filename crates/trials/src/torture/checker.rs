//! Whether what was acknowledged is what arrived. It knows what producers were told, what reached the
//! endpoints and what the API shows in the end, and nothing of how the gateway works.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::audit::{Delivery, Stored};
use super::ledger::{Ack, Books, Sent};
use super::route::Target;
use super::sink::Arrival;

/// The most faults that are told one by one.
const MAX_TOLD: usize = 20;

/// How much order can be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// Nothing arrives once something behind it in its line has, be it for the first time or again.
    Strict,
    /// The same for what arrives for the first time: an attempt that was given up may arrive late.
    FirstArrivals,
}

/// What a round was allowed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    pub(crate) order: Order,
    /// One node alone gives ids in the order in which it accepts.
    pub(crate) one_node: bool,
    /// How many times everything that was in flight may have gone unrecorded.
    pub(crate) interruptions: usize,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Finding {
    pub(crate) acknowledged: usize,
    /// Different events.
    pub(crate) arrived: usize,
    pub(crate) repeats: usize,
    pub(crate) bound: usize,
    /// Acknowledged, and not taken by an endpoint that wanted it.
    pub(crate) lost: usize,
    /// Requests of producers that were told to come back, or told nothing.
    pub(crate) refused: u64,
    pub(crate) unanswered: u64,
    pub(crate) faults: Faults,
}

/// What is wrong, the first of it in words.
#[derive(Debug, Clone, Default)]
pub(crate) struct Faults {
    pub(crate) count: usize,
    pub(crate) told: Vec<String>,
}

impl Faults {
    pub(crate) fn add(&mut self, what: String) {
        self.count += 1;
        if self.told.len() < MAX_TOLD {
            self.told.push(what);
        }
    }
}

pub(crate) fn check(books: &Books, arrivals: &[Arrival], stored: &Stored, terms: Terms) -> Finding {
    let mut faults = Faults::default();
    for complaint in &books.complaints {
        faults.add(complaint.clone());
    }
    for arrival in arrivals {
        check_arrival(books, arrival, &mut faults);
    }
    let events = Events::of(arrivals, &mut faults);
    let lost = check_acknowledged(books, &events, &mut faults);
    check_whole(books, &events, stored, &mut faults);
    check_batches(books, &events, &mut faults);
    for target in [Target::Fifo, Target::ByKey] {
        check_order(books, arrivals, target, terms, &mut faults);
    }
    let (mut repeats, mut bound) = (0, 0);
    for target in Target::ALL {
        let allowed = allowed_repeats(arrivals, target, terms);
        let seen = repeated(arrivals).filter(|arrival| arrival.target == target).count();
        if seen > allowed {
            let name = target.name();
            faults.add(format!("{name}: {seen} arrived again, and at most {allowed} may"));
        }
        repeats += seen;
        bound += allowed;
    }
    for delivery in &stored.deliveries {
        check_delivery(delivery, &mut faults);
    }
    check_numbers(arrivals, stored, &mut faults);
    Finding {
        acknowledged: books.acks.len(),
        arrived: events.numbers.len(),
        repeats,
        bound,
        lost,
        refused: books.refused,
        unanswered: books.unanswered,
        faults,
    }
}

/// It is something that was sent, as it was sent, to somebody who wants it, and signed.
fn check_arrival(books: &Books, arrival: &Arrival, faults: &mut Faults) {
    let Arrival { target, event, number, .. } = arrival;
    let name = target.name();
    if let Some(reason) = arrival.forged {
        faults.add(format!("{name}: {event} does not pass: {reason}"));
    }
    let Some(sent) = number.and_then(|number| sent(books, number)) else {
        faults.add(format!("{name}: {event} was never sent"));
        return;
    };
    if sent.digest != arrival.digest {
        faults.add(format!("{name}: the body of {event} is not the one that was sent"));
    }
    if sent.topic.kind() != arrival.kind || !target.wants(sent.topic) {
        faults.add(format!("{name}: {event} is of type {:?}, which it is not for", arrival.kind));
    }
    if arrival.attempt == 0 {
        faults.add(format!("{name}: {event} does not say which attempt it is"));
    }
}

fn sent(books: &Books, number: u64) -> Option<&Sent> {
    books.sent.get(usize::try_from(number).ok()?)
}

/// What arrived, by what was sent.
struct Events<'a> {
    /// The id of each number, and who took it.
    numbers: BTreeMap<u64, (&'a str, BTreeSet<Target>)>,
}

impl<'a> Events<'a> {
    /// A number has one id everywhere, and one delivery for each endpoint.
    fn of(arrivals: &'a [Arrival], faults: &mut Faults) -> Self {
        let mut numbers: BTreeMap<u64, (&str, BTreeSet<Target>)> = BTreeMap::new();
        let mut deliveries: HashMap<(u64, Target), &str> = HashMap::new();
        let mut owners: HashMap<&str, (u64, Target)> = HashMap::new();
        for arrival in arrivals {
            let Arrival { target, event, delivery, .. } = arrival;
            let Some(number) = arrival.number else { continue };
            let known = numbers.entry(number).or_insert_with(|| (event, BTreeSet::new()));
            if known.0 != event {
                faults.add(format!("event {number} arrived as {} and as {event}", known.0));
            }
            if arrival.taken {
                known.1.insert(*target);
            }
            let first = *deliveries.entry((number, *target)).or_insert(delivery);
            if first != delivery {
                let name = target.name();
                faults.add(format!("{name}: {event} has the deliveries {first} and {delivery}"));
            }
            let owner = *owners.entry(delivery).or_insert((number, *target));
            if owner != (number, *target) {
                faults.add(format!("{delivery} is of the events {number} and {}", owner.0));
            }
        }
        Self { numbers }
    }
}

/// Everything acknowledged was taken by all who wanted it, under the id that was given for it.
/// Returns what was not.
fn check_acknowledged(books: &Books, events: &Events<'_>, faults: &mut Faults) -> usize {
    let mut lost = 0;
    for Ack { number, event, .. } in &books.acks {
        let Some(sent) = sent(books, *number) else { continue };
        let arrived = events.numbers.get(number);
        if let Some((id, _)) = arrived.filter(|(id, _)| id != event) {
            faults.add(format!("event {number} was acknowledged as {event} and arrived as {id}"));
        }
        for target in sent.topic.targets() {
            if !arrived.is_some_and(|(_, taken)| taken.contains(&target)) {
                lost += 1;
                let name = target.name();
                faults.add(format!("{name}: {event} (event {number}) was acknowledged and lost"));
            }
        }
    }
    lost
}

/// What was not acknowledged is there as a whole or not at all.
fn check_whole(books: &Books, events: &Events<'_>, stored: &Stored, faults: &mut Faults) {
    for (number, (event, taken)) in &events.numbers {
        let Some(sent) = sent(books, *number) else { continue };
        let wanted: BTreeSet<Target> = sent.topic.targets().collect();
        if *taken != wanted {
            faults.add(format!("{event} was taken by {taken:?}, and is for {wanted:?}"));
        }
    }
    let arrived = events.numbers.len();
    if stored.events != arrived as u64 {
        faults.add(format!("{} events are stored, and {arrived} arrived", stored.events));
    }
    let arrived: BTreeSet<(&str, Target)> = events
        .numbers
        .values()
        .flat_map(|(event, taken)| taken.iter().map(|target| (*event, *target)))
        .collect();
    let kept: BTreeSet<(&str, Target)> = stored
        .deliveries
        .iter()
        .map(|delivery| (delivery.event.as_str(), delivery.target))
        .collect();
    if kept.len() != stored.deliveries.len() {
        let twice = stored.deliveries.len() - kept.len();
        faults.add(format!("{twice} deliveries are stored beside another of the same event"));
    }
    for (event, target) in kept.symmetric_difference(&arrived) {
        let name = target.name();
        faults.add(format!("{name}: the delivery of {event} was stored or taken, but not both"));
    }
}

/// A batch is one commit.
fn check_batches(books: &Books, events: &Events<'_>, faults: &mut Faults) {
    let mut batches: BTreeMap<u64, (usize, usize)> = BTreeMap::new();
    for (number, sent) in books.sent.iter().enumerate() {
        if let Some(batch) = sent.batch {
            let (all, there) = batches.entry(batch).or_default();
            *all += 1;
            *there += usize::from(events.numbers.contains_key(&(number as u64)));
        }
    }
    for (batch, (all, there)) in batches {
        if there != 0 && there != all {
            faults.add(format!("of batch {batch} only {there} of {all} events were stored"));
        }
    }
}

/// Each line of an endpoint goes in the order in which its events were accepted.
fn check_order(
    books: &Books,
    arrivals: &[Arrival],
    target: Target,
    terms: Terms,
    faults: &mut Faults,
) {
    let answered: HashMap<u64, u64> = books.acks.iter().map(|ack| (ack.number, ack.at)).collect();
    let mut lines: BTreeMap<Option<u64>, Line<'_>> = BTreeMap::new();
    for arrival in arrivals.iter().filter(|arrival| arrival.target == target) {
        let Some(number) = arrival.number else { continue };
        let Some(sent) = sent(books, number) else { continue };
        let line = lines.entry(sent.key).or_default();
        let answered = answered.get(&number).copied();
        if let Err(before) = line.advance(&arrival.event, sent.at, answered, terms) {
            let (name, event) = (target.name(), &arrival.event);
            faults.add(format!("{name}: {event} arrived after {before}, which is behind it"));
        }
    }
}

#[derive(Default)]
struct Line<'a> {
    met: HashMap<&'a str, usize>,
    /// The one that is furthest behind of those that arrived.
    last: Option<&'a str>,
    /// When the latest of them was sent.
    last_sent: u64,
}

impl<'a> Line<'a> {
    /// The next arrival; the one that should have been behind it, if there was such a one.
    fn advance(
        &mut self,
        event: &'a str,
        sent: u64,
        answered: Option<u64>,
        terms: Terms,
    ) -> Result<(), &'a str> {
        if let Some(place) = self.met.get(event) {
            let is_last = place + 1 == self.met.len();
            return match self.last {
                Some(last) if !is_last && terms.order == Order::Strict => Err(last),
                Some(_) | None => Ok(()),
            };
        }
        let before = self.last.unwrap_or_default();
        let accepted_first = answered.is_some_and(|answered| answered < self.last_sent);
        self.met.insert(event, self.met.len());
        self.last = Some(event);
        self.last_sent = self.last_sent.max(sent);
        let numbered_first = terms.one_node && event < before;
        if accepted_first || numbered_first { Err(before) } else { Ok(()) }
    }
}

/// Arrivals that had been there before: the same attempt, or one after a yes.
pub(crate) fn repeated(arrivals: &[Arrival]) -> impl Iterator<Item = &Arrival> {
    let mut attempts: HashSet<(&str, u32)> = HashSet::new();
    let mut taken: HashSet<&str> = HashSet::new();
    arrivals.iter().filter(move |arrival| {
        let delivery = arrival.delivery.as_str();
        let again = taken.contains(delivery) || !attempts.insert((delivery, arrival.attempt));
        if arrival.taken {
            taken.insert(delivery);
        }
        again
    })
}

/// All that can have been in flight at each interruption, and whatever arrived while answers may have
/// been lost on their way.
fn allowed_repeats(arrivals: &[Arrival], target: Target, terms: Terms) -> usize {
    let troubled =
        arrivals.iter().filter(|arrival| arrival.target == target && arrival.troubled).count();
    terms.interruptions * target.max_in_flight() + troubled
}

/// It has ended well, and its attempts are numbered without a gap.
fn check_delivery(delivery: &Delivery, faults: &mut Faults) {
    let Delivery { id, state, attempts, .. } = delivery;
    if state != "delivered" {
        faults.add(format!("{id} is {state}"));
    }
    let Some(log) = &delivery.log else { return };
    let contiguous = log.iter().zip(1..).all(|(tried, number)| tried.number == number);
    if !contiguous || log.len() as u64 != *attempts {
        let numbers: Vec<u64> = log.iter().map(|tried| tried.number).collect();
        faults.add(format!("{id} has {attempts} attempts, and they are {numbers:?}"));
    }
    let successes = log.iter().filter(|tried| tried.outcome == "delivered").count();
    let ended = log.last().is_some_and(|tried| tried.outcome == "delivered");
    if successes != 1 || !ended {
        faults.add(format!("{id} went on after it was delivered, or never was: {log:?}"));
    }
}

/// No attempt arrived that is not among those counted.
fn check_numbers(arrivals: &[Arrival], stored: &Stored, faults: &mut Faults) {
    let counted: HashMap<&str, u64> = stored
        .deliveries
        .iter()
        .map(|delivery| (delivery.id.as_str(), delivery.attempts))
        .collect();
    for Arrival { delivery, attempt, .. } in arrivals {
        if counted.get(delivery.as_str()).is_none_or(|counted| u64::from(*attempt) > *counted) {
            faults.add(format!("attempt {attempt} of {delivery} arrived, and is not counted"));
        }
    }
}

#[cfg(test)]
mod tests;
