//! Frames come back as they were written, and nothing that comes in is worse than refused.

use proptest::prelude::*;

use super::super::{MAX_FROM_GATEWAY_BYTES, MAX_FROM_HUB_BYTES, close};
use super::*;

/// The room that a WebSocket close frame has for its reason, as far as we use it.
const MAX_REASON_BYTES: usize = 120;

fn framed(head: &str, body: &[u8]) -> Bytes {
    let length = u32::try_from(head.len()).expect("a short head").to_be_bytes();
    [&length[..], head.as_bytes(), body].concat().into()
}

fn deliver() -> Deliver {
    Deliver {
        seq: 7,
        delivery: DeliveryId::from_i64(1),
        event: EventId::from_i64(2),
        endpoint: EndpointId::from_i64(3),
        endpoint_name: Some("orders".to_owned()),
        kind: "order.created".to_owned(),
        attempt: 2,
        timeout: Duration::from_secs(15),
        headers: vec![("content-type".to_owned(), Bytes::from_static(b"application/json"))],
        body: Bytes::from_static(b"{}"),
    }
}

fn met(met: Met) -> Answer {
    Answer { seq: 7, duration: Duration::from_millis(12), met }
}

fn status(headers: Vec<(String, Bytes)>, body: Bytes) -> Answer {
    met(Met::Status { status: 200, headers, body, truncated: false })
}

#[test]
fn heads_look_as_they_are_documented() {
    let head = r#"{"kind":"deliver","seq":7,"delivery":"dlv_0000000000001","event":"evt_0000000000002","endpoint":"ep_0000000000003","endpoint_name":"orders","event_type":"order.created","attempt":2,"timeout_ms":15000,"headers":[["content-type","application/json"]]}"#;
    assert_eq!(FromGateway::Deliver(deliver()).encode(), framed(head, b"{}"));

    let welcome = Welcome { hub: HubId::from_i64(4), name: "office".to_owned() };
    let head = r#"{"kind":"welcome","hub":"hub_0000000000004","name":"office"}"#;
    assert_eq!(FromGateway::Welcome(welcome).encode(), framed(head, b""));

    let hello = Hello { agent: "postrider/0.1.0".to_owned(), capacity: 64 };
    let head = r#"{"kind":"hello","agent":"postrider/0.1.0","capacity":64}"#;
    assert_eq!(FromHub::Hello(hello).encode(), framed(head, b""));

    let answered = status(Vec::new(), Bytes::from_static(b"ok"));
    let head = r#"{"kind":"answer","seq":7,"duration_ms":12,"met":"status","status":200,"truncated":false}"#;
    assert_eq!(FromHub::Answer(answered).encode(), framed(head, b"ok"));
}

#[test]
fn every_byte_of_a_header_and_a_body_passes() {
    let every: Bytes = (0..=u8::MAX).collect();
    let mut sent = deliver();
    sent.headers = vec![
        ("x-bytes".to_owned(), every.clone()),
        ("x-bytes".to_owned(), Bytes::from_static(b"again")),
        ("x-empty".to_owned(), Bytes::new()),
        // Valid UTF-8 is bytes like any other.
        ("x-text".to_owned(), Bytes::from_static("Grüße \u{1F980}".as_bytes())),
    ];
    sent.body = every;
    let sent = FromGateway::Deliver(sent);
    assert_eq!(FromGateway::decode(sent.encode()), Ok(sent));
}

#[test]
fn unknown_fields_are_ignored_and_optional_ones_may_be_absent() {
    let head = r#"{"later":{"a":[1]},"capacity":1,"kind":"hello","agent":"x"}"#;
    let hello = Hello { agent: "x".to_owned(), capacity: 1 };
    assert_eq!(FromHub::decode(framed(head, b"")), Ok(FromHub::Hello(hello)));

    let head = r#"{"kind":"answer","seq":1,"duration_ms":0,"met":"status","status":204}"#;
    let answer = FromHub::decode(framed(head, b"")).expect("a frame");
    let FromHub::Answer(Answer { met: Met::Status { status, headers, body, truncated }, .. }) =
        answer
    else {
        panic!("{answer:?}");
    };
    assert_eq!((status, headers, body, truncated), (204, Vec::new(), Bytes::new(), false));
}

#[test]
fn control_characters_in_texts_are_read_as_spaces() {
    let head = r#"{"kind":"hello","agent":"a\u001b[2Jb","capacity":1}"#;
    let Ok(FromHub::Hello(hello)) = FromHub::decode(framed(head, b"")) else { panic!("a hello") };
    assert_eq!(hello.agent, "a [2Jb");

    let head =
        r#"{"kind":"answer","seq":1,"duration_ms":0,"met":"network","error":"no\r\n\u0007way"}"#;
    let Ok(FromHub::Answer(answer)) = FromHub::decode(framed(head, b"")) else {
        panic!("an answer")
    };
    assert_eq!(answer.met, Met::Network { error: "no   way".to_owned() });
}

#[track_caller]
fn refuse_from_hub(message: Bytes, sentence: &str) {
    let bad = FromHub::decode(message).expect_err(sentence);
    assert_eq!(bad.to_string(), sentence);
}

#[track_caller]
fn refuse_from_gateway(message: Bytes, sentence: &str) {
    let bad = FromGateway::decode(message).expect_err(sentence);
    assert_eq!(bad.to_string(), sentence);
}

#[test]
fn malformed_frames_get_a_sentence() {
    for short in [&b""[..], b"\0", b"\0\0\0"] {
        let message = Bytes::copy_from_slice(short);
        refuse_from_hub(message, "the message ends before the length of its head");
    }
    for (message, sentence) in [
        (&b"\0\0\0\x02{"[..], "the head should be 2 bytes long, but only 1 are there"),
        (b"\0\x04\0\x01", "the head is 262145 bytes long; at most 262144 are allowed"),
        (b"\xff\xff\xff\xff{}", "the head is 4294967295 bytes long; at most 262144 are allowed"),
        (b"\0\0\0\0", "the head is no JSON object"),
        (b"\0\0\0\x02\xff\xff", "the head is no JSON object"),
        (b"\0\0\0\x0f[\"hello\",\"a\",1]", "the head is no JSON object"),
        (b"\0\0\0\x02{\xff", "the head cannot be read: key must be a string at line 1 column 2"),
    ] {
        refuse_from_hub(Bytes::copy_from_slice(message), sentence);
    }
}

#[test]
fn bad_heads_from_a_hub_get_a_sentence() {
    for (head, sentence) in [
        ("{}", "the head cannot be read: missing field `kind` at line 1 column 2"),
        (
            r#"{"kind":"hello"} x"#,
            "the head cannot be read: trailing characters at line 1 column 18",
        ),
        (r#"{"kind":"bye"}"#, "`bye` is no kind of frame that is expected here"),
        (r#"{"kind":"deliver"}"#, "`deliver` is no kind of frame that is expected here"),
        (r#"{"kind":"a\u001bb"}"#, "`a b` is no kind of frame that is expected here"),
        (
            r#"{"kind":"hello","agent":"a"}"#,
            "the head cannot be read: missing field `capacity` at line 1 column 28",
        ),
        (
            r#"{"kind":"hello","agent":"a","capacity":-1}"#,
            "the head cannot be read: invalid value: integer `-1`, expected u32 at line 1 column 41",
        ),
        (r#"{"kind":"hello","agent":"a","capacity":0}"#, "`capacity` must be from 1 to 1000"),
        (r#"{"kind":"hello","agent":"a","capacity":1001}"#, "`capacity` must be from 1 to 1000"),
        (
            r#"{"kind":"hello","agent":"","capacity":1}"#,
            "`agent` must have from 1 to 200 characters",
        ),
        (r#"{"kind":"answer","seq":0,"duration_ms":0,"met":"status","status":200}"#, SEQ),
        (
            r#"{"kind":"answer","seq":9007199254740992,"duration_ms":0,"met":"status","status":200}"#,
            SEQ,
        ),
        (
            r#"{"kind":"answer","seq":1,"duration_ms":86400001,"met":"status","status":200}"#,
            "`duration_ms` must be from 0 to 86400000",
        ),
        (r#"{"kind":"answer","seq":1,"duration_ms":0,"met":"status"}"#, "`status` is missing"),
        (
            r#"{"kind":"answer","seq":1,"duration_ms":0,"met":"status","status":199}"#,
            "`status` must be from 200 to 999",
        ),
        (
            r#"{"kind":"answer","seq":1,"duration_ms":0,"met":"status","status":1000}"#,
            "`status` must be from 200 to 999",
        ),
        (
            r#"{"kind":"answer","seq":1,"duration_ms":0,"met":"luck"}"#,
            "the head cannot be read: unknown variant `luck`, expected one of `status`, `network`, `timeout` a…",
        ),
        (r#"{"kind":"answer","seq":1,"duration_ms":0,"met":"network"}"#, "`error` is missing"),
        (
            r#"{"kind":"answer","seq":1,"duration_ms":0,"met":"timeout","error":""}"#,
            "`error` must have from 1 to 2000 characters",
        ),
        (
            r#"{"kind":"answer","seq":1,"duration_ms":0,"met":"status","status":200,"headers":[["X-Upper",""]]}"#,
            "the head cannot be read: a header's name must be a lower-case HTTP field name at line 1 column 91",
        ),
        (
            r#"{"kind":"answer","seq":1,"duration_ms":0,"met":"status","status":200,"headers":[["x","Ā"]]}"#,
            "the head cannot be read: a header's value has a character above U+00FF at line 1 column 89",
        ),
    ] {
        refuse_from_hub(framed(head, b""), sentence);
    }
}

const SEQ: &str = "`seq` must be from 1 to 9007199254740991";

#[test]
fn what_is_one_too_many_is_refused() {
    let hello = |agent: &str| format!(r#"{{"kind":"hello","agent":"{agent}","capacity":1}}"#);
    let longest = "ü".repeat(MAX_AGENT_CHARS);
    FromHub::decode(framed(&hello(&longest), b"")).expect("as long as it may be");
    refuse_from_hub(
        framed(&hello(&(longest + "x")), b""),
        "`agent` must have from 1 to 200 characters",
    );

    let answer = |headers: &str| {
        format!(
            r#"{{"kind":"answer","seq":1,"duration_ms":0,"met":"status","status":200,"headers":[{headers}]}}"#
        )
    };
    let most = vec![r#"["a",""]"#; MAX_HEADERS].join(",");
    FromHub::decode(framed(&answer(&most), b"")).expect("as many as there may be");
    let bad = FromHub::decode(framed(&answer(&(most + r#",["a",""]"#)), b"")).expect_err("more");
    assert!(bad.to_string().contains("more than 256 headers"), "{bad}");

    let largest = vec![0; MAX_EXCERPT_BYTES];
    FromHub::decode(framed(&answer(""), &largest)).expect("as large as it may be");
    refuse_from_hub(
        framed(&answer(""), &[&largest[..], b"x"].concat()),
        "the body is 16385 bytes long; at most 16384 are allowed",
    );
}

#[test]
fn a_body_where_none_belongs_is_refused() {
    refuse_from_hub(
        framed(r#"{"kind":"hello","agent":"a","capacity":1}"#, b"x"),
        "`hello` has no body, but 1 bytes follow its head",
    );
    refuse_from_hub(
        framed(r#"{"kind":"answer","seq":1,"duration_ms":0,"met":"timeout","error":"e"}"#, b"xy"),
        "`timeout` has no body, but 2 bytes follow its head",
    );
    refuse_from_gateway(
        framed(r#"{"kind":"welcome","hub":"hub_0000000000004","name":"n"}"#, b"x"),
        "`welcome` has no body, but 1 bytes follow its head",
    );
}

#[test]
fn bad_heads_from_a_gateway_get_a_sentence() {
    let deliver = |change: (&str, &str)| {
        let written = FromGateway::Deliver(deliver()).encode();
        let head = std::str::from_utf8(&written[LENGTH_BYTES..written.len() - 2]).expect("text");
        assert!(head.contains(change.0), "{head}");
        framed(&head.replace(change.0, change.1), b"")
    };
    for (change, sentence) in [
        ((r#""seq":7"#, r#""seq":0"#), SEQ),
        ((r#""attempt":2"#, r#""attempt":0"#), "`attempt` must be from 1 to 4294967295"),
        ((r#""timeout_ms":15000"#, r#""timeout_ms":0"#), SPAN),
        ((r#""timeout_ms":15000"#, r#""timeout_ms":86400001"#), SPAN),
        ((r#""deliver""#, r#""hello""#), "`hello` is no kind of frame that is expected here"),
        (
            ("evt_0000000000002", "dlv_0000000000002"),
            "the head cannot be read: expected an id like evt_0000000000000 at line 1 column 84",
        ),
    ] {
        refuse_from_gateway(deliver(change), sentence);
    }
}

const SPAN: &str = "`timeout_ms` must be from 1 to 86400000";

#[test]
fn what_is_too_large_is_told_from_what_is_malformed() {
    for (message, code) in [
        (Bytes::from_static(b"\xff\xff\xff\xff{}"), close::TOO_LARGE),
        (Bytes::from_static(b"\0\0\0\x02{}"), close::MALFORMED),
        (Bytes::new(), close::MALFORMED),
    ] {
        let bad = FromGateway::decode(message).expect_err("no frame");
        assert_eq!(bad.close_code(), code, "{bad}");
    }
}

#[test]
fn an_answer_is_made_to_fit() {
    let huge = Bytes::from(vec![b'"'; MAX_HUB_HEAD_BYTES]);
    let many = vec![("x".to_owned(), Bytes::from_static(b"y")); MAX_HEADERS + 1];
    let excerpt = Bytes::from(vec![0; MAX_EXCERPT_BYTES + 1]);
    for (answer, expected) in [
        (status(vec![("a".to_owned(), huge)], Bytes::new()), status(Vec::new(), Bytes::new())),
        (status(many.clone(), Bytes::new()), status(many[1..].to_vec(), Bytes::new())),
        (
            status(Vec::new(), excerpt.clone()),
            met(Met::Status {
                status: 200,
                headers: Vec::new(),
                body: excerpt.slice(1..),
                truncated: true,
            }),
        ),
        (
            met(Met::Network { error: "ü".repeat(MAX_ERROR_CHARS + 1) }),
            met(Met::Network { error: "ü".repeat(MAX_ERROR_CHARS) }),
        ),
        (
            met(Met::Timeout { error: String::new() }),
            met(Met::Timeout { error: NO_REASON.to_owned() }),
        ),
        (
            Answer { duration: Duration::MAX, ..status(Vec::new(), Bytes::new()) },
            Answer { duration: MAX_SPAN, ..status(Vec::new(), Bytes::new()) },
        ),
    ] {
        let decoded = FromHub::decode(FromHub::Answer(answer).encode()).expect("a frame");
        assert_eq!(decoded, FromHub::Answer(expected));
    }
}

#[test]
fn the_longest_wait_is_written_for_a_longer_one() {
    let endless = Deliver { timeout: Duration::MAX, ..deliver() };
    let Ok(FromGateway::Deliver(read)) =
        FromGateway::decode(FromGateway::Deliver(endless).encode())
    else {
        panic!("a delivery")
    };
    assert_eq!(read.timeout, MAX_SPAN);
}

fn name() -> impl Strategy<Value = String> {
    "[a-z0-9!#$%&'*+.^_`|~-]{1,20}"
}

fn header_list() -> impl Strategy<Value = Vec<(String, Bytes)>> {
    let value = prop::collection::vec(any::<u8>(), 0..40).prop_map(Bytes::from);
    prop::collection::vec((name(), value), 0..12)
}

fn content() -> impl Strategy<Value = Bytes> {
    prop::collection::vec(any::<u8>(), 0..200).prop_map(Bytes::from)
}

fn span() -> impl Strategy<Value = Duration> {
    (1..=86_400_000_u64).prop_map(Duration::from_millis)
}

fn id() -> impl Strategy<Value = i64> {
    0..=i64::MAX
}

fn any_from_gateway() -> impl Strategy<Value = FromGateway> {
    let welcome = (id(), any::<String>())
        .prop_map(|(hub, name)| FromGateway::Welcome(Welcome { hub: HubId::from_i64(hub), name }));
    let deliver = (
        (1..=MAX_SEQ, id(), id(), id()),
        (any::<Option<String>>(), any::<String>(), 1..=u32::MAX, span()),
        header_list(),
        content(),
    )
        .prop_map(
            |((seq, delivery, event, endpoint), (named, kind, attempt, timeout), headers, body)| {
                FromGateway::Deliver(Deliver {
                    seq,
                    delivery: DeliveryId::from_i64(delivery),
                    event: EventId::from_i64(event),
                    endpoint: EndpointId::from_i64(endpoint),
                    endpoint_name: named,
                    kind,
                    attempt,
                    timeout,
                    headers,
                    body,
                })
            },
        );
    prop_oneof![1 => welcome, 4 => deliver]
}

fn any_from_hub() -> impl Strategy<Value = FromHub> {
    let words = || "[^\\p{Cc}]{1,60}";
    let hello = (words(), 1..=MAX_CAPACITY)
        .prop_map(|(agent, capacity)| FromHub::Hello(Hello { agent, capacity }));
    let met = prop_oneof![
        (200..=999_u16, header_list(), content(), any::<bool>()).prop_map(
            |(status, headers, body, truncated)| Met::Status { status, headers, body, truncated }
        ),
        words().prop_map(|error| Met::Network { error }),
        words().prop_map(|error| Met::Timeout { error }),
    ];
    let answer = (1..=MAX_SEQ, span(), met)
        .prop_map(|(seq, duration, met)| FromHub::Answer(Answer { seq, duration, met }));
    prop_oneof![1 => hello, 4 => answer]
}

/// Arbitrary bytes rarely get past the length; what is damaged in a few places often does.
fn damaged(frame: impl Strategy<Value = Bytes>) -> impl Strategy<Value = Bytes> {
    let damage = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
    (frame, damage, 0..3_usize).prop_map(|(frame, damage, cut)| {
        let mut bytes = frame.to_vec();
        for (place, byte) in damage {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        bytes.truncate(bytes.len() - cut);
        bytes.into()
    })
}

fn anything() -> impl Strategy<Value = Bytes> {
    prop_oneof![
        content(),
        damaged(any_from_gateway().prop_map(|frame| frame.encode())),
        damaged(any_from_hub().prop_map(|frame| frame.encode())),
    ]
}

proptest! {
    #[test]
    fn frames_come_back_as_they_were_written(
        from_gateway in any_from_gateway(),
        from_hub in any_from_hub(),
    ) {
        let message = from_gateway.encode();
        prop_assert!(message.len() <= MAX_FROM_GATEWAY_BYTES);
        prop_assert_eq!(FromGateway::decode(message), Ok(from_gateway));
        let message = from_hub.encode();
        prop_assert!(message.len() <= MAX_FROM_HUB_BYTES);
        prop_assert_eq!(FromHub::decode(message), Ok(from_hub));
    }

    #[test]
    fn whatever_comes_in_is_read_or_refused_in_a_sentence_that_fits(message in anything()) {
        for refused in [
            FromGateway::decode(message.clone()).err(),
            FromHub::decode(message).err(),
        ] {
            let Some(bad) = refused else { continue };
            let sentence = bad.to_string();
            prop_assert!(sentence.len() <= MAX_REASON_BYTES, "{}", sentence);
            prop_assert!(!sentence.contains(char::is_control), "{}", sentence);
        }
    }

    #[test]
    fn what_is_read_is_written_as_what_is_read_again(message in anything()) {
        if let Ok(frame) = FromHub::decode(message.clone()) {
            prop_assert_eq!(FromHub::decode(frame.encode()), Ok(frame));
        }
        if let Ok(frame) = FromGateway::decode(message) {
            prop_assert_eq!(FromGateway::decode(frame.encode()), Ok(frame));
        }
    }
}
