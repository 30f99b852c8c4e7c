//! Filters against tables of expressions and events.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod hostile;

use bytes::Bytes;
use postrider_core::SourceId;

use super::*;

const PAYLOAD: &str = r#"{
    "amount": 101, "price": 100.5, "big": 18446744073709551615, "negative": -3, "whole": 2.0,
    "currency": "EUR", "name": "Jos\u00e9", "empty": "", "paid": true, "nothing": null,
    "tags": ["new", "vip"], "numbers": [1, 2, 3],
    "customer": {"id": "c_1", "address": {"country": "DE"}},
    "items": [{"sku": "a", "count": 2}, {"sku": "b", "count": 5, "gift": true}]
}"#;

fn headers() -> Vec<(String, Bytes)> {
    [
        ("X-GitHub-Event", &b"push"[..]),
        ("x-github-event", b"second"),
        ("x-odd", b"caf\xe9"),
        ("host", b"hooks.example.com"),
    ]
    .map(|(name, value)| (name.to_owned(), Bytes::from_static(value)))
    .to_vec()
}

fn facts<'a>(headers: &'a [(String, Bytes)], body: &'a [u8]) -> Facts<'a> {
    Facts {
        kind: "order.created",
        headers,
        metadata: Some(r#"{"region": "eu", "priority": 3}"#),
        content_type: "application/json",
        body,
        source: Some(SourceId::from_i64(7)),
    }
}

fn verdict(expression: &str, facts: Facts<'_>) -> Result<bool, FilterError> {
    let filter =
        Filter::compile(expression).unwrap_or_else(|error| panic!("{expression}: {error}"));
    filter.passes(&Subject::new(facts))
}

/// The verdict on the order above, an error as its text.
fn on_order(expression: &str) -> Result<bool, String> {
    verdict(expression, facts(&headers(), PAYLOAD.as_bytes())).map_err(|error| error.to_string())
}

fn on_body(expression: &str, body: &[u8]) -> Result<bool, FilterError> {
    verdict(expression, facts(&[], body))
}

fn refusal(expression: &str) -> String {
    Filter::compile(expression).unwrap_err().to_string()
}

#[test]
fn an_event_passes_where_the_expression_is_true() {
    let cases = [
        ("true", true),
        ("false", false),
        // The event.
        ("event.type == 'order.created'", true),
        ("'order.created' == event.type", true),
        ("event.type != 'order.created'", false),
        ("event.type.startsWith('order.')", true),
        ("event.type in ['order.created', 'order.paid']", true),
        ("event.type in ['order.paid']", false),
        ("event.content_type == 'application/json'", true),
        ("event.source.startsWith('src_')", true),
        ("has(event.source) && has(event.payload)", true),
        // Headers.
        ("event.headers['x-github-event'] == 'push'", true),
        ("headers['X-GitHub-Event'] == 'push'", true),
        ("'X-GitHub-Event' in headers", true),
        ("'x-gitlab-event' in headers", false),
        ("headers.host.endsWith('.example.com')", true),
        ("has(headers.Host) && !has(headers.origin)", true),
        ("headers['x-odd'].startsWith('caf')", true),
        // Metadata.
        ("event.metadata.region == 'eu'", true),
        ("metadata.priority >= 3", true),
        ("has(metadata.tier)", false),
        // The payload.
        ("payload.currency == 'EUR' && payload.paid", true),
        ("event.payload.customer.address.country == 'DE'", true),
        ("payload['customer']['id'] == 'c_1'", true),
        ("payload.name == 'José' && payload.name.size() == 4", true),
        ("payload.name.matches('^Jos.$')", true),
        ("payload.currency.matches('[a-z]')", false),
        ("matches(payload.currency, '(?i)eur')", true),
        ("payload.nothing == null", true),
        ("payload.amount == null", false),
        ("has(payload.nothing)", true),
        ("has(payload.missing)", false),
        ("has(payload.customer.address) && payload.customer.address.country in ['DE', 'AT']", true),
        ("'vip' in payload.tags", true),
        ("'old' in payload.tags", false),
        ("3 in payload.numbers && !(4 in payload.numbers)", true),
        ("'customer' in payload", true),
        ("payload.tags[1] == 'vip'", true),
        ("payload.numbers[payload.whole] == 3", true),
        ("payload.tags == ['new', 'vip']", true),
        ("['new', 'vip'] == payload.tags", true),
        ("payload.customer.address == {'country': 'DE'}", true),
        (
            "size(payload.items) == 2 && payload.tags.size() == 2 && size(payload.currency) == 3",
            true,
        ),
        // Loops.
        ("payload.items.exists(item, item.count > 4)", true),
        ("payload.items.all(item, item.count > 4)", false),
        ("payload.items.exists(item, has(item.gift) && item.gift)", true),
        ("payload.items.exists_one(item, item.sku == 'a')", true),
        ("payload.items.filter(item, item.count > 1).size() == 2", true),
        ("'b' in payload.items.map(item, item.sku)", true),
        ("payload.items.map(item, item.count > 2, item.sku) == ['b']", true),
        ("payload.customer.exists(field, field == 'id')", true),
        ("payload.items.exists(i, payload.tags.exists(t, i.sku == 'b' && t == 'vip'))", true),
        ("[].all(nothing, false)", true),
        // A variable of a loop hides the name outside, and only there.
        ("payload.tags.exists(payload, payload == 'vip') && payload.paid", true),
        ("payload.items.exists(event, event.sku == 'b')", true),
        ("payload.tags.exists(payload, event.payload.paid)", true),
        // Types.
        ("type(payload.tags) == list && type(payload.amount) == int", true),
        ("int('12') == 12 && string(12) == '12' && double('1.5') == 1.5", true),
        ("payload.amount > 100 ? payload.paid : false", true),
        // What is not needed does not matter.
        ("payload.paid || payload.missing", true),
        ("payload.missing || payload.paid", true),
        ("!payload.paid && payload.missing", false),
        ("payload.items.exists(item, item.gift)", true),
    ];
    for (expression, expected) in cases {
        assert_eq!(on_order(expression), Ok(expected), "{expression}");
    }
}

#[test]
fn numbers_compare_by_value_whatever_they_are_written_as() {
    let cases = [
        ("payload.amount > 100", true),
        ("payload.amount > 100.5", true),
        ("payload.amount == 101.0", true),
        ("payload.price > 100", true),
        ("100 < payload.price", true),
        ("payload.price > 101", false),
        ("payload.price == 100.5", true),
        ("payload.whole == 2", true),
        ("2 == payload.whole", true),
        ("payload.whole in [1, 2]", true),
        ("payload.negative < 0", true),
        ("-payload.negative == 3", true),
        ("payload.big > 100", true),
        ("payload.big == 18446744073709551615u", true),
        ("payload.amount + 1 == 102", true),
        ("payload.price * 2.0 == 201.0", true),
        ("double(payload.amount) / 2.0 == 50.5", true),
        ("payload.amount % 10 == 1 && payload.amount / 10 == 10", true),
    ];
    for (expression, expected) in cases {
        assert_eq!(on_order(expression), Ok(expected), "{expression}");
    }
}

#[test]
fn an_expression_that_does_not_fit_the_event_is_an_error_and_says_why() {
    let cases = [
        ("payload.amount", "the filter comes to an int, not to true or false"),
        ("payload.missing", "there is no field missing; has() tells whether there is"),
        ("payload.customer.name == 'x'", "there is no field name; has() tells whether there is"),
        ("payload['missing'] == 1", "there is no field missing; has() tells whether there is"),
        ("headers['x-none'] == ''", "there is no field x-none; has() tells whether there is"),
        ("metadata.tier == 1", "there is no field tier; has() tells whether there is"),
        (
            "payload[payload.currency] == 1",
            "there is no field of the name that the filter computes",
        ),
        ("payload.amount.cents == 1", "an int has no fields"),
        ("payload.nothing.x == 1", "null has no fields"),
        ("payload.nothing.x.y == 1", "null has no fields"),
        ("payload.tags[2] == 'x'", "a list has no element at the index that the filter asks for"),
        ("payload.tags[-1] == 'x'", "a list has no element at the index that the filter asks for"),
        ("payload.tags[payload.price] == 'x'", "an index does not work on a list and a double"),
        ("payload.tags[-9e18 * 2.0] == 'x'", "an index does not work on a list and a double"),
        ("payload.tags[0.0 / 0.0] == 'x'", "an index does not work on a list and a double"),
        ("payload.tags['x'] == 'x'", "an index does not work on a list and a string"),
        ("payload.currency > 3", "> does not work on a string and an int"),
        ("payload.currency + 3 == 'x'", "+ does not work on a string and an int"),
        ("payload.price + 1 > 0", "+ does not work on a double and an int"),
        ("payload.amount in payload.amount", "in does not work on an int and an int"),
        ("payload.tags in payload", "in does not work on a list and a map"),
        ("payload.amount.contains('1')", "contains does not work on an int and a string"),
        ("payload.amount.matches('1')", "matches does not work on an int and a string"),
        ("!payload.amount", "! does not work on an int"),
        ("payload.amount && true", "&& does not work on an int and a bool"),
        ("payload.amount ? true : false", "a condition does not work on an int"),
        ("payload.amount.exists(x, true)", "a loop does not work on an int"),
        ("payload.amount / 0 == 1", "the filter divides by zero"),
        ("payload.amount % 0 == 1", "the filter divides by zero"),
        ("payload.amount * 9223372036854775807 == 1", "a number grows too large"),
        ("int(payload.currency) == 1", "int() cannot convert what it is given"),
        ("{payload.tags: 1} == {}", "a key of a map does not work on a list"),
        ("{'a': 1, 'a': 2} == {}", "a map does not work on the same key twice"),
        (
            "payload.items.all(item, item.gift)",
            "there is no field gift; has() tells whether there is",
        ),
    ];
    for (expression, expected) in cases {
        assert_eq!(on_order(expression), Err(expected.to_owned()), "{expression}");
    }
}

#[test]
fn an_expression_that_could_never_work_is_refused_with_its_place() {
    let long = format!("true{}", " ".repeat(MAX_SOURCE_BYTES));
    let brackets = format!("{}1{}", "(".repeat(MAX_BRACKETS + 1), ")".repeat(MAX_BRACKETS + 1));
    let loops = "[1].all(a, [1].all(b, [1].all(c, [1].all(d, true))))";
    let sums = format!("{}1 > 0", "1 + ".repeat(MAX_DEPTH + 1));
    let patterns = ["event.type.matches('x')"; MAX_PATTERNS + 1].join(" && ");
    let known = "there are event, payload, headers and metadata";
    let cases = [
        ("", "the filter is empty; leave it out to get every event"),
        (" \n", "the filter is empty; leave it out to get every event"),
        (&long, "the filter is longer than 4096 bytes"),
        (&brackets, "the filter has more than 256 brackets and question marks"),
        ("paylod.x == 1", &format!("line 1, column 1: paylod is not known; {known}")),
        ("true &&\n  x", &format!("line 2, column 3: x is not known; {known}")),
        ("'é' == )", "line 1, column 8: the filter cannot be read: mismatched input ')'"),
        ("'é' == x", &format!("line 1, column 8: x is not known; {known}")),
        (".payload == 1", &format!("line 1, column 2: .payload is not known; {known}")),
        ("type == 'x'", "line 1, column 1: write event.type"),
        ("source == 'x'", "line 1, column 1: write event.source"),
        ("event == 1", "line 1, column 1: event is used by its fields, such as event.type"),
        (
            "event['type'] == ''",
            "line 1, column 1: event is used by its fields, such as event.type",
        ),
        (
            "event.body == ''",
            "line 1, column 6: event has no field body; it has type, headers, metadata, payload, \
             content_type and source",
        ),
        (
            "payload.x.lower() == ''",
            "line 1, column 16: lower() is not known, or not with these arguments",
        ),
        ("size() == 1", "line 1, column 5: size() is not known, or not with these arguments"),
        ("payload.all(x)", "line 1, column 12: all() is not known, or not with these arguments"),
        (
            "timestamp('x') == 1",
            "line 1, column 10: timestamp() is not known, or not with these arguments",
        ),
        ("Message{a: 1} == 1", "line 1, column 8: a filter makes no messages; use a map"),
        ("payload.x[0.5] == 1", "line 1, column 11: an index is a whole number"),
        (loops, "line 1, column 41: loops are nested more than 3 deep"),
        (&sums, "line 1, column 3: the filter is nested more than 32 levels deep"),
        (
            "event.type.matches(event.source)",
            "line 1, column 25: matches() takes a pattern in quotation marks",
        ),
        (
            "event.type.matches('(')",
            "line 1, column 20: the pattern is not a regular expression that filters know",
        ),
        (
            "event.type.matches('[ab]*a[ab]{20}')",
            "line 1, column 20: the pattern is too large; repeat less, or write [a-z] for \\w",
        ),
        (&patterns, "line 1, column 236: there are more than 8 patterns"),
    ];
    let wrong: Vec<_> = cases
        .into_iter()
        .map(|(expression, expected)| (expression, refusal(expression), expected))
        .filter(|(_, refusal, expected)| refusal != expected)
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_syntax_error_is_one_short_line_with_its_place() {
    for expression in [
        "payload.",
        "payload.x ==",
        "1 +* 2",
        "(",
        "[1, 2",
        "'open",
        "a b",
        "payload.?x",
        "a ? b",
        "@meter == 1",
        "payload.x = 1",
        "if x",
        "\u{0}",
        "`x` == 1",
        "{'a'}",
        "x.all(1, true)",
        "has(payload)",
    ] {
        let error = Filter::compile(expression).unwrap_err();
        assert!(error.position.is_some(), "{expression}: {error}");
        let text = error.to_string();
        assert!(!text.contains('\n') && text.chars().count() < 140, "{expression}: {text}");
    }
}

#[test]
fn a_body_that_is_not_json_is_null() {
    for body in [&b""[..], b"hello", b"{\"a\":", b"{} {}", b"\xff\xfe", b"[1e999]", b"\"\\ud800\""]
    {
        assert_eq!(on_body("payload == null", body), Ok(true), "{body:?}");
        assert_eq!(on_body("has(event.payload)", body), Ok(false), "{body:?}");
        assert_eq!(on_body("payload.x == 1", body), Err(FilterError::NoFields("null".into())));
    }
    for (body, expression) in [
        (&b"3"[..], "payload == 3"),
        (b" \"x\" ", "payload == 'x'"),
        (b"[1]", "payload[0] == 1"),
        (b"{\"a\":1,\"a\":2}", "payload.a == 2"),
        (b"{\"\":1}", "payload[''] == 1"),
        (b"{\"a-b\":1}", "payload['a-b'] == 1"),
    ] {
        assert_eq!(on_body(expression, body), Ok(true), "{expression}");
    }
}

#[test]
fn what_an_event_does_not_have_is_null_or_empty() {
    let bare = Facts {
        kind: "x",
        headers: &[],
        metadata: None,
        content_type: "text/plain",
        body: b"",
        source: None,
    };
    for expression in [
        "event.source == null",
        "!has(event.source)",
        "metadata == {}",
        "headers == {}",
        "!has(metadata.x)",
        "event.payload == null",
    ] {
        assert_eq!(verdict(expression, bare), Ok(true), "{expression}");
    }
}

#[test]
fn json_beyond_the_bounds_is_an_error_only_for_filters_that_look_at_it() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let sized = |bytes: usize| format!("\"{}\"", "x".repeat(bytes - 2));
    for (body, expected) in [
        (nested(MAX_JSON_DEPTH), Ok(true)),
        (nested(MAX_JSON_DEPTH + 1), Err(FilterError::TooDeep)),
        (nested(100_000), Err(FilterError::TooDeep)),
        (sized(MAX_JSON_BYTES), Ok(true)),
        (sized(MAX_JSON_BYTES + 1), Err(FilterError::TooLarge)),
    ] {
        assert_eq!(on_body("payload != null", body.as_bytes()), expected);
        let elsewhere = "event.type == 'order.paid' && payload.x == 1";
        assert_eq!(on_body(elsewhere, body.as_bytes()), Ok(false));
    }
}

#[test]
fn several_filters_share_one_reading_of_an_event() {
    let headers = headers();
    let subject = Subject::new(facts(&headers, PAYLOAD.as_bytes()));
    let filter = |expression| Filter::compile(expression).unwrap();
    assert_eq!(filter("event.type == 'x' && payload.paid").passes(&subject), Ok(false));
    assert!(!subject.has_read_payload(), "the type alone decides");
    for expression in ["payload.paid", "payload.amount == 101", "headers.host != ''"] {
        assert_eq!(filter(expression).passes(&subject), Ok(true));
        assert!(subject.has_read_payload());
    }
}

#[test]
fn a_filter_is_shared_between_threads_and_events() {
    let filter = std::sync::Arc::new(Filter::compile("payload.n % 2 == 0").unwrap());
    std::thread::scope(|scope| {
        for n in 0..4 {
            let filter = std::sync::Arc::clone(&filter);
            scope.spawn(move || {
                let body = format!("{{\"n\":{n}}}");
                let subject = Subject::new(facts(&[], body.as_bytes()));
                assert_eq!(filter.passes(&subject), Ok(n % 2 == 0));
            });
        }
    });
}

#[test]
fn neither_errors_nor_debug_output_repeat_what_is_in_an_event() {
    let body = r#"{"s3cret": "s3cret", "list": ["s3cret"], "text": "s3cret"}"#;
    let headers = vec![("authorization".to_owned(), Bytes::from_static(b"s3cret"))];
    let facts = Facts { body: body.as_bytes(), ..facts(&headers, b"") };
    for expression in [
        "payload.text",
        "payload[payload.text + 'x']",
        "headers[payload.text] == ''",
        "payload.text > 1",
        "1 > payload.text",
        "payload.text + 1 == ''",
        "payload.list + 1 == ''",
        "1 + payload.list == 1",
        "payload.text.x == 1",
        "payload.list[payload.text] == 1",
        "int(payload.text) == 1",
        "bool(payload.text)",
        "payload.text ? true : false",
        "payload.text && true",
        "payload.text.all(x, true)",
        "{payload: 1} == {}",
        "{payload.text: 1, payload.text: 2} == {}",
        "-payload.text == 1",
        "payload.map(x, payload[x]).exists(x, x.y)",
        "payload in payload",
    ] {
        let error = verdict(expression, facts).unwrap_err();
        let text = format!("{error} {error:?}");
        assert!(!text.contains("s3cret") && text.len() < 200, "{expression}: {text}");
    }
    let subject = Subject::new(facts);
    assert!(!format!("{subject:?} {facts:?}").contains("s3cret"));
}

#[test]
fn a_long_name_is_shortened_in_messages() {
    let name = "n".repeat(1000);
    assert!(refusal(&name).chars().count() < 150);
    assert!(on_order(&format!("payload.{name}")).unwrap_err().chars().count() < 150);
    assert!(on_order(&format!("payload['{name}']")).unwrap_err().chars().count() < 150);
    assert!(refusal(&format!("{name}(1)")).chars().count() < 150);
}
