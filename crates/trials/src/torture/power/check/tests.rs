//! Each check, on findings that are made up to fail it.

use super::super::super::ledger::{Ack, Books, Sent};
use super::super::super::random::Random;
use super::super::super::sink::{Clocks, Sink};
use super::super::history::{History, Promise, Push};
use super::*;

const CUT: Moment = 100;
const BOTH: [Target; 2] = [Target::Every, Target::Fifo];

fn id(number: u64) -> String {
    format!("evt_{number}")
}

/// Events 1 to 9 of one line, of which 9 was acknowledged after the cut. 1 to 3 had been sent before
/// it, and all was taken while it was recorded but 8, which is what makes the checks here strict.
async fn recording() -> Recording {
    let sent = Sent { topic: Topic::Line, key: None, digest: [7; 32], batch: None, at: 0 };
    let acks = (1..=9).map(|number| Ack { number, event: id(number), at: 0 }).collect();
    let mut books = Books::default();
    books.sent = vec![sent; 10];
    books.acks = acks;
    let promise = |number| Promise { at: if number == 9 { CUT } else { 10 }, id: id(number) };
    let promises = (1..=9).map(promise).collect();
    let push = |number, target: Target| Push {
        at: 50,
        path: format!("/{}", target.name()),
        event: id(number),
        attempt: 1,
    };
    let pushes = (1..=3).flat_map(|number| BOTH.map(|target| push(number, target))).collect();
    let history = History { promises, pushes, length: 200, ..History::default() };
    let taken = [1, 2, 3, 4, 5, 6, 7, 9];
    let taken = taken.into_iter().flat_map(|number| BOTH.map(|target| (id(number), target)));
    let sink = Sink::start(Clocks::True, &mut Random::new(1)).await.expect("a sink");
    let taken = taken.collect();
    Recording { history, books, endpoints: HashMap::new(), sink, taken }
}

fn whole() -> BTreeMap<String, Stored> {
    let kind = Topic::Line.kind();
    let stored = |number| {
        let deliveries = vec![Target::Fifo, Target::Every];
        (id(number), Stored { kind: kind.to_owned(), deliveries })
    };
    (1..=8).map(stored).collect()
}

fn arrival(number: u64, target: Target) -> Arrival {
    Arrival {
        target,
        event: id(number),
        delivery: format!("dlv_{number}_{}", target.name()),
        attempt: 1,
        number: Some(number),
        kind: Topic::Line.kind().to_owned(),
        digest: [7; 32],
        forged: None,
        taken: true,
        troubled: false,
    }
}

/// What was under way and what had not been sent.
fn arrivals() -> Vec<Arrival> {
    (3..=8).flat_map(|number| BOTH.map(|target| arrival(number, target))).collect()
}

async fn judge(stored: &BTreeMap<String, Stored>, arrivals: &[Arrival]) -> Findings {
    let recording = recording().await;
    let mut findings = Findings::default();
    let examination = Examination::new(&recording, CUT);
    examination.check_events(stored, &mut findings);
    examination.check_arrivals(stored, arrivals, &mut findings);
    findings
}

#[tokio::test]
async fn what_is_whole_and_carried_is_as_it_should_be() {
    let findings = judge(&whole(), &arrivals()).await;
    assert_eq!(findings.faults.told, [""; 0]);
    assert_eq!((findings.lost, findings.repeated), (0, 2));
    // What nobody had been told of may be there or not.
    let mut stored = whole();
    stored.insert(id(9), Stored { kind: Topic::Line.kind().to_owned(), deliveries: BOTH.into() });
    assert_eq!(judge(&stored, &arrivals()).await.faults.count, 0);
}

#[tokio::test]
async fn whatever_is_not_so_is_found() {
    type Spoil = fn(&mut BTreeMap<String, Stored>, &mut Vec<Arrival>);
    let spoiled: [(Spoil, &str); 9] = [
        (
            |stored, arrivals| {
                stored.remove("evt_1");
                arrivals.retain(|one| one.event != "evt_1");
            },
            "evt_1 was acknowledged and is lost",
        ),
        (
            |stored, _| {
                stored.entry(id(2)).or_default().deliveries.pop();
            },
            "evt_2 (line.tick) has deliveries to [Fifo]",
        ),
        (
            |stored, _| stored.entry(id(2)).or_default().deliveries.push(Target::Every),
            "evt_2 (line.tick) has deliveries to [Every, Every, Fifo]",
        ),
        (|_, arrivals| arrivals.retain(|one| one.event != "evt_8"), "evt_8 never arrived at fifo"),
        (|_, arrivals| arrivals[0].digest = [8; 32], "evt_3 arrived with another body"),
        (|_, arrivals| arrivals[0].forged = Some("it is forged"), "it is forged"),
        (|_, arrivals| arrivals.push(arrival(9, Target::Every)), "evt_9 arrived and is not stored"),
        (|_, arrivals| arrivals.push(arrival(8, Target::Every)), "evt_8 was taken twice at every"),
        (
            |_, arrivals| arrivals.insert(0, arrival(2, Target::Fifo)),
            "evt_2 arrived at fifo after evt_3",
        ),
    ];
    for (spoil, says) in spoiled {
        let (mut stored, mut arrivals) = (whole(), arrivals());
        spoil(&mut stored, &mut arrivals);
        let faults = judge(&stored, &arrivals).await.faults.told;
        assert!(faults.iter().any(|fault| fault.contains(says)), "{says}: {faults:?}");
    }
}

#[tokio::test]
async fn more_repeats_than_can_have_been_in_flight_are_too_many() {
    let mut arrivals = arrivals();
    arrivals.insert(0, arrival(2, Target::Fifo));
    let findings = judge(&whole(), &arrivals).await;
    assert_eq!(findings.repeated, 3);
    let says = "2 arrived again at fifo, and at most 1 may";
    assert!(findings.faults.told.iter().any(|fault| fault == says), "{:?}", findings.faults);
}
