//! Pictures of gateways in all conditions, on terminals of all sizes.

use postrider_core::Timestamp;

use super::super::keys::Action;
use super::super::snapshot::{Counts, Sort};
use super::*;

const AT: Timestamp = Timestamp::from_millis(1_767_225_600_000);

fn endpoint(name: &str, state: &str, failures: u64) -> Endpoint {
    Endpoint {
        id: format!("ep_{name}"),
        name: name.to_owned(),
        state: state.to_owned(),
        breaker: Some("closed".to_owned()),
        counts: Counts { pending: 1_234, dead: 2, ..Counts::default() },
        failures,
        last_error: Some("the endpoint answered 502".to_owned()),
    }
}

fn busy() -> Seen {
    let snapshot = Snapshot {
        received: Flow { per_second: 1_234.56, minutes: (0..60).collect() },
        delivered: Flow { per_second: 0.5, minutes: vec![0; 60] },
        counts: Counts { pending: 5, in_flight: 3, retrying: 2, dead: 7, ..Counts::default() },
        oldest_waiting_at: Some(Timestamp::from_millis(AT.as_millis() - 180_000)),
        latency: [Some(12), Some(34), Some(56_789)],
        endpoints: vec![
            endpoint("fine", "active", 0),
            endpoint("billing", "active", 5),
            endpoint("away", "disabled", 1),
        ],
        ..Snapshot::idle(AT)
    };
    let gateway = "http://127.0.0.1:7070".to_owned();
    Seen { gateway, snapshot: Some(snapshot), trouble: None }
}

fn drawn(seen: &Seen, ui: &mut Ui, columns: u16, rows: u16) -> Vec<String> {
    let Ok(mut terminal) = Terminal::new(TestBackend::new(columns, rows));
    let Ok(frame) = terminal.draw(|frame| draw(frame, seen, ui));
    lines(frame.buffer)
}

#[test]
fn a_picture_says_what_there_is_to_say() {
    let shown = drawn(&busy(), &mut Ui::default(), 80, 24);
    let expected = [
        "postrider top  http://127.0.0.1:7070  2026-01-01 00:00:00",
        "waiting 10 (5 new, 2 retrying, 3 in flight)  oldest 3 min ago",
        "delivered 0  failed 0  dead 7",
        "latency p50 12 ms  p95 34 ms  p99 56 s",
    ];
    assert_eq!(shown[..4], expected);
    assert!(shown[4].starts_with("in     1234.6/s ") && shown[4].ends_with('█'), "{}", shown[4]);
    assert!(shown[5].starts_with("out       0.5/s"), "{}", shown[5]);
    assert_eq!(shown[7].split_whitespace().next(), Some("endpoint"));
    let names: Vec<_> = shown[8..11].iter().map(|row| row.split_whitespace().next()).collect();
    assert_eq!(names, [Some("away"), Some("billing"), Some("fine")]);
    assert!(shown[8].contains("disabled") && shown[8].ends_with("502"), "{}", shown[8]);
    assert!(shown[9].contains("1,234") && shown[9].contains(" 5 "), "{}", shown[9]);
    assert!(shown[23].starts_with("q quit"), "{}", shown[23]);
}

#[test]
fn every_size_of_terminal_has_a_picture() {
    let mut many = busy();
    let snapshot = many.snapshot.as_mut().expect("seen");
    snapshot.endpoints =
        (0..500).map(|n| endpoint(&format!("endpoint-{n}"), "active", n)).collect();
    snapshot.nodes = vec![Node::default(); 20];
    many.trouble = Some("the gateway does not answer".to_owned());
    for (columns, rows) in [(80, 24), (40, 12), (20, 5), (10, 3), (3, 2), (1, 1), (300, 100)] {
        for help in [false, true] {
            for sort in [Sort::Worst, Sort::Name] {
                let mut ui = Ui { help, sort, scroll: usize::MAX, paused: true };
                let shown = drawn(&many, &mut ui, columns, rows);
                assert_eq!(shown.len(), usize::from(rows));
                let first: String = "postrider top".chars().take(columns.into()).collect();
                assert!(shown[0].starts_with(first.trim_end()), "{columns}×{rows}: {shown:?}");
            }
        }
    }
    let small = drawn(&many, &mut Ui::default(), 40, 7);
    assert!(small.iter().any(|line| line.contains("does not answer")), "{small:?}");
    assert!(small.iter().any(|line| line.starts_with("waiting 10")), "{small:?}");
}

#[test]
fn scrolling_ends_where_the_endpoints_do() {
    let mut seen = busy();
    let endpoints = (0..30).map(|n| endpoint(&format!("e{n:02}"), "active", 0)).collect();
    seen.snapshot.as_mut().expect("seen").endpoints = endpoints;
    let mut ui = Ui { sort: Sort::Name, ..Ui::default() };
    let first = |ui: &mut Ui| drawn(&seen, ui, 80, 20)[8].chars().take(3).collect::<String>();
    assert_eq!(first(&mut ui), "e00");
    assert!(ui.take(Action::Down(5)).is_continue());
    assert_eq!(first(&mut ui), "e05");
    assert!(ui.take(Action::Down(1_000)).is_continue());
    let last = drawn(&seen, &mut ui, 80, 20);
    assert!(last[18].starts_with("e29"), "{last:#?}");
    assert!(ui.take(Action::Up(1)).is_continue());
    assert_ne!(first(&mut ui), "e00", "it does not have to be scrolled back from nowhere");
}

#[test]
fn what_came_from_outside_is_text() {
    let mut seen = busy();
    let snapshot = seen.snapshot.as_mut().expect("seen");
    let hostile = "\x1b[2J\x1b]0;owned\x07\r\n\u{202e}evil";
    snapshot.endpoints = vec![Endpoint {
        name: hostile.to_owned(),
        last_error: Some(hostile.to_owned()),
        state: hostile.to_owned(),
        ..endpoint("x", "active", 1)
    }];
    let node = Node { name: hostile.to_owned(), ..Node::default() };
    snapshot.nodes = vec![node.clone(), node];
    seen.gateway = hostile.to_owned();
    for trouble in [None, Some(hostile.to_owned())] {
        seen.trouble = trouble;
        for text in [text(&seen), drawn(&seen, &mut Ui::default(), 80, 24).concat()] {
            let plain = |char: char| !char.is_control() || char == '\n';
            assert!(text.chars().all(plain) && !text.contains('\u{202e}'), "{text:?}");
        }
    }
}

#[test]
fn wide_names_do_not_push_the_numbers_away() {
    let mut seen = busy();
    let endpoints = vec![endpoint("語".repeat(40).as_str(), "active", 0)];
    seen.snapshot.as_mut().expect("seen").endpoints = endpoints;
    let shown = drawn(&seen, &mut Ui::default(), 80, 24);
    assert!(shown[8].contains(" active ") && shown[8].contains("1,234"), "{}", shown[8]);
}

#[test]
fn a_gateway_that_is_away_leaves_the_last_picture() {
    let mut seen = busy();
    seen.trouble = Some("the gateway at http://127.0.0.1:7070 does not answer".to_owned());
    let shown = drawn(&seen, &mut Ui::default(), 80, 24);
    assert!(shown[1].contains("does not answer") && shown[2].starts_with("waiting 10"));
    let never = Seen { gateway: "http://a".to_owned(), ..Seen::default() };
    let shown = drawn(&never, &mut Ui::default(), 80, 24);
    assert!(shown[1].contains("asking the gateway"), "{}", shown[1]);
}

#[test]
fn nodes_are_shown_where_there_are_several() {
    let mut seen = busy();
    let snapshot = seen.snapshot.as_mut().expect("seen");
    let live = Node { name: "a".into(), live: true, lanes: 8, in_flight: 3, lag_seconds: 1.5 };
    snapshot.nodes = vec![live.clone()];
    assert!(!text(&seen).contains("node a"));
    let gone = Node { name: "b".into(), ..Node::default() };
    seen.snapshot.as_mut().expect("seen").nodes = vec![live, gone];
    let shown = text(&seen);
    assert!(shown.contains("node a  live  8 lanes  3 in flight  lag 1.5 s"), "{shown}");
    assert!(shown.contains("node b  gone"), "{shown}");
}

#[test]
fn the_text_has_every_endpoint_and_no_keys() {
    let shown = text(&busy());
    for part in ["away", "billing", "fine", "1,234"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(!shown.contains("q quit") && shown.ends_with('\n') && !shown.ends_with("\n\n"));
}
