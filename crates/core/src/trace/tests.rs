//! Contexts of traces: what is understood, what is not, and what is passed on.

use proptest::prelude::*;

use super::*;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const SPAN: &str = "b7ad6b7169203331";

fn parent(text: &str) -> Option<Trace> {
    Trace::from_headers([text.as_bytes()].into_iter(), std::iter::empty())
}

fn with_state(lines: &[&str]) -> Option<String> {
    let text = format!("00-{TRACE}-{SPAN}-01");
    let lines = lines.iter().map(|line| line.as_bytes());
    let trace = Trace::from_headers([text.as_bytes()].into_iter(), lines);
    trace.expect("the parent is valid").state().map(str::to_owned)
}

#[test]
fn a_parent_is_read_and_written_as_the_specification_says() {
    for (text, expected) in [
        (format!("00-{TRACE}-{SPAN}-01"), format!("00-{TRACE}-{SPAN}-01")),
        (format!("00-{TRACE}-{SPAN}-00"), format!("00-{TRACE}-{SPAN}-00")),
        (format!(" 00-{TRACE}-{SPAN}-01\t"), format!("00-{TRACE}-{SPAN}-01")),
        // What the second level of the specification adds is passed on, what is not known is not.
        (format!("00-{TRACE}-{SPAN}-03"), format!("00-{TRACE}-{SPAN}-03")),
        (format!("00-{TRACE}-{SPAN}-ff"), format!("00-{TRACE}-{SPAN}-03")),
        // Later versions: what comes after the flags is for those who know it.
        (format!("01-{TRACE}-{SPAN}-03"), format!("00-{TRACE}-{SPAN}-01")),
        (format!("cc-{TRACE}-{SPAN}-01-what-comes"), format!("00-{TRACE}-{SPAN}-01")),
        (format!("cc-{TRACE}-{SPAN}-00-"), format!("00-{TRACE}-{SPAN}-00")),
    ] {
        let trace = parent(&text).unwrap_or_else(|| panic!("{text} is valid"));
        assert_eq!(trace.parent(), expected, "{text}");
        assert_eq!(trace.to_string(), expected, "{text}");
        assert_eq!((trace.id().to_string(), trace.span().to_string()), (TRACE.into(), SPAN.into()));
        assert_eq!(trace.is_sampled(), !expected.ends_with("00"), "{text}");
    }
}

#[test]
fn a_malformed_parent_is_no_trace() {
    for text in [
        String::new(),
        "00".into(),
        format!("00-{TRACE}-{SPAN}"),
        format!("00-{TRACE}-{SPAN}-"),
        format!("00-{TRACE}-{SPAN}-1"),
        format!("00-{TRACE}-{SPAN}-011"),
        format!("00-{TRACE}-{SPAN}-01-"),
        format!("00-{TRACE}-{SPAN}-01-more"),
        format!("ff-{TRACE}-{SPAN}-01"),
        format!("01-{TRACE}-{SPAN}-01more"),
        format!("0-{TRACE}-{SPAN}-001"),
        format!("00_{TRACE}_{SPAN}_01"),
        format!("00-{}-{SPAN}-01", TRACE.to_uppercase()),
        format!("00-{TRACE}-{}-01", SPAN.to_uppercase()),
        format!("0A-{TRACE}-{SPAN}-01"),
        format!("00-{TRACE}-{SPAN}-0A"),
        format!("00-{}-{SPAN}-01", "0".repeat(32)),
        format!("00-{TRACE}-{}-01", "0".repeat(16)),
        format!("00-{TRACE}-{}g-01", &SPAN[1..]),
        format!("00-{TRACE}-{}é-01", &SPAN[2..]),
        format!("00-{SPAN}-{TRACE}-01"),
        format!("00-{TRACE}-{SPAN}-01,00-{TRACE}-{SPAN}-01"),
    ] {
        assert_eq!(parent(&text), None, "{text:?}");
    }
}

#[test]
fn two_parents_are_none() {
    let text = format!("00-{TRACE}-{SPAN}-01");
    let twice = [text.as_bytes(), text.as_bytes()].into_iter();
    assert_eq!(Trace::from_headers(twice, std::iter::empty()), None);
}

#[test]
fn a_state_is_passed_on_or_left_out_whole() {
    let member = |number: usize| format!("k{number}=v");
    let members = |count: usize| (0..count).map(member).collect::<Vec<_>>().join(",");
    let long = |bytes: usize| {
        let rest = bytes - "a=,b=".len() - 256;
        format!("a={},b={}", "v".repeat(256), "w".repeat(rest))
    };
    let key = |bytes: usize| format!("{}=1", "k".repeat(bytes));
    for (lines, expected) in [
        (vec!["rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"], true),
        (vec!["fw529a3039@dt=FfAAAQ"], true),
        (vec!["0a_-*/=!\"#$%&'()*+-./:;<>?@[]^_`{|}~"], true),
        (vec![members(MAX_STATE_MEMBERS).as_str()], true),
        (vec![long(MAX_STATE_BYTES).as_str()], true),
        (vec![key(256).as_str()], true),
        (vec![members(MAX_STATE_MEMBERS + 1).as_str()], false),
        (vec![long(MAX_STATE_BYTES + 1).as_str()], false),
        (vec![key(257).as_str()], false),
        (vec![""], false),
        (vec!["a"], false),
        (vec!["a="], false),
        (vec!["=1"], false),
        (vec!["A=1"], false),
        (vec!["a b=1"], false),
        (vec!["a=1=2"], false),
        (vec!["a=é"], false),
        (vec!["a=\u{1}"], false),
        (vec!["a=1,a=2"], false),
        (vec!["a=1", "a=2"], false),
        (vec!["good=1,Bad=2"], false),
    ] {
        let kept = with_state(&lines);
        assert_eq!(kept, expected.then(|| lines[0].to_owned()), "{lines:?}");
    }
    for (lines, expected) in
        [(vec!["a=1", "b=2"], "a=1,b=2"), (vec![" a=1 ,\t, b=two words,,"], "a=1,b=two words")]
    {
        assert_eq!(with_state(&lines).as_deref(), Some(expected), "{lines:?}");
    }
}

#[test]
fn a_child_is_another_span_of_the_same_trace() {
    let text = format!("00-{TRACE}-{SPAN}-01 a=1");
    let trace: Trace = text.parse().expect("valid");
    let span = SpanId::new(7).expect("not zero");
    assert_eq!(trace.child(span).to_string(), format!("00-{TRACE}-0000000000000007-01 a=1"));
    assert_eq!(SpanId::new(0), None);
    assert_eq!(TraceId::new([0; 16]), None);
}

#[test]
fn a_span_is_found_again_by_its_numbers_and_no_other_is() {
    let trace = TraceId::new([7; 16]).expect("not zero");
    let other = TraceId::new([8; 16]).expect("not zero");
    let span = SpanId::of(trace, [5, 1]);
    assert_eq!(SpanId::of(trace, [5, 1]), span);
    for different in
        [SpanId::of(trace, [5, 2]), SpanId::of(trace, [1, 5]), SpanId::of(other, [5, 1])]
    {
        assert_ne!(different, span);
    }
}

#[test]
fn what_is_stored_is_read_or_refused() {
    for text in ["", "00", &format!("00-{TRACE}-{SPAN}-01 "), &format!("00-{TRACE}-{SPAN}-01 A=1")]
    {
        assert_eq!(text.parse::<Trace>(), Err(NoTrace), "{text:?}");
    }
}

#[test]
fn a_ratio_takes_its_part_of_all_traces() {
    let ids = (0_u64..4_096).map(|number| {
        let bytes = [[9; 8], scatter(number).to_be_bytes()].concat();
        TraceId::new(bytes.try_into().expect("16 bytes")).expect("not zero")
    });
    let ids: Vec<TraceId> = ids.collect();
    let taken = |ratio: f64| ids.iter().filter(|id| id.is_within(ratio)).count();
    assert_eq!((taken(0.0), taken(1.0)), (0, ids.len()));
    let quarter = taken(0.25);
    assert!((900..1_150).contains(&quarter), "{quarter} of 4096");
    // Who is taken by a small ratio is taken by every larger one.
    assert!(ids.iter().all(|id| !id.is_within(0.25) || id.is_within(0.5)));
}

fn any_trace() -> impl Strategy<Value = Trace> {
    let state = proptest::option::of("[a-z][a-z0-9@/]{0,8}=[!-+.-<>-~]{1,9}");
    (1_u128.., 1_u64.., 0_u8..4, state).prop_map(|(id, span, flags, state)| Trace {
        id: TraceId(id.to_be_bytes()),
        span: SpanId(span.to_be_bytes()),
        flags,
        state: state.map(Arc::from),
    })
}

proptest! {
    #[test]
    fn whatever_is_written_is_read_again(trace in any_trace()) {
        prop_assert_eq!(trace.to_string().parse::<Trace>(), Ok(trace.clone()));
        let parent = trace.parent();
        let state = trace.state().map(str::as_bytes);
        let read = Trace::from_headers([parent.as_bytes()].into_iter(), state.into_iter());
        prop_assert_eq!(read, Some(trace));
    }

    #[test]
    fn any_bytes_are_read_or_ignored(
        parent in proptest::collection::vec(any::<u8>(), 0..80),
        state in proptest::collection::vec(any::<u8>(), 0..80),
    ) {
        let read = Trace::from_headers([&parent[..]].into_iter(), [&state[..]].into_iter());
        if let Some(read) = read {
            prop_assert_eq!(read.to_string().parse::<Trace>(), Ok(read));
        }
    }

    #[test]
    fn one_changed_byte_is_read_or_ignored(at in 0..PARENT_BYTES, byte in any::<u8>()) {
        let mut text = format!("00-{TRACE}-{SPAN}-01").into_bytes();
        text[at] = byte;
        let read = Trace::from_headers([&text[..]].into_iter(), std::iter::empty());
        if let Some(read) = read {
            prop_assert_eq!(read.to_string().parse::<Trace>(), Ok(read));
        }
    }
}
