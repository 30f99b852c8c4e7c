//! Expressions and events that mean harm: each ends, and within its steps.

use proptest::prelude::*;

use super::*;

/// A list of a million bytes, with as many elements as that can have.
fn long_list() -> String {
    format!("[{}1]", "1,".repeat(MAX_JSON_BYTES / 2 - 2))
}

/// An object of a million bytes: two long texts, and lists of numbers and of texts.
fn wide_object() -> String {
    let text = "ab".repeat(MAX_JSON_BYTES / 10);
    let numbers = "7,".repeat(MAX_JSON_BYTES / 10);
    let texts = "\"ab\",".repeat(MAX_JSON_BYTES / 30);
    format!(r#"{{"a":"{text}","b":"{text}","numbers":[{numbers}7],"texts":[{texts}"x"]}}"#)
}

#[test]
fn what_would_take_too_many_steps_is_stopped_and_said() {
    let (list, object) = (long_list(), wide_object());
    assert!(list.len() <= MAX_JSON_BYTES && object.len() <= MAX_JSON_BYTES);
    let doubled = |times: usize| format!("['x']{}", ".map(x, x + x)".repeat(times));
    let cases = [
        // Loops over the event, alone, nested, and over what a loop made.
        (&list, "payload.all(x, x == 1)".to_owned()),
        (&list, "payload.exists(x, x == 2) || true".to_owned()),
        (&list, "payload.map(x, [x, x]).size() == 0".to_owned()),
        (&list, "payload.filter(x, true).filter(x, true).filter(x, true) == []".to_owned()),
        (&object, "payload.texts.exists(x, payload.texts.exists(y, x + y == 'z'))".to_owned()),
        (&object, "payload.texts.exists(x, payload.a.contains(x + 'c'))".to_owned()),
        (&object, "payload.texts.exists(x, payload.a.matches('^c'))".to_owned()),
        (&object, "payload.texts.exists(x, payload.a == payload.b && x == 'z')".to_owned()),
        (&object, "payload.texts.exists(x, payload.texts == payload.texts && false)".to_owned()),
        (&object, "payload.texts.exists(x, [payload.a] == [x])".to_owned()),
        (&object, "payload.texts.exists(x, {'a': payload.numbers} == {})".to_owned()),
        (&object, "payload.texts.exists(x, {payload.a: 1} == {})".to_owned()),
        // Errors of the evaluator hold copies.
        (&object, "payload.texts.exists(x, payload[payload.a] == x)".to_owned()),
        (&object, "payload.texts.exists(x, 1 < payload.numbers)".to_owned()),
        (&object, "payload.texts.exists(x, 1 == dyn(payload.numbers) + 1)".to_owned()),
        (&object, "payload.texts.exists(x, x + payload.numbers == x)".to_owned()),
        (&object, "payload.a in payload.numbers".to_owned()),
        (&object, "payload.texts in payload.numbers".to_owned()),
        // Growth.
        (&object, format!("{} == []", doubled(27))),
        (&object, format!("{}.size() == 1", doubled(27))),
        (&object, format!("payload.a{} == ''", " + payload.a".repeat(28))),
        (&object, format!("[payload.a{}] == []", ", payload.a".repeat(300))),
        (&object, "[payload.texts].map(x, x.map(y, [x, x, x, x])) == []".to_owned()),
    ];
    for (body, expression) in cases {
        let verdict = on_body(&expression, body.as_bytes());
        assert_eq!(verdict, Err(FilterError::TooManySteps), "{}", error::shorten(&expression));
    }
}

#[test]
fn an_ordinary_filter_has_steps_enough_for_an_event_as_large_as_may_be() {
    let item = r#"{"sku":"ABC-123456","count":2,"price":12.5,"tags":["new","vip"],"note":null}"#;
    let items = vec![item; MAX_JSON_BYTES / (item.len() + 1) - 1].join(",");
    let order = format!(r#"{{"items":[{items}]}}"#);
    assert!(order.len() > MAX_JSON_BYTES - 200 && order.len() <= MAX_JSON_BYTES);
    for (expression, expected) in [
        ("payload.items.exists(i, i.sku == 'none')", false),
        ("payload.items.all(i, i.count * 2 == 4 && i.price < 20.0)", true),
        ("payload.items.filter(i, 'vip' in i.tags).size() > 1000", true),
        ("payload.items[5].sku.startsWith('ABC')", true),
        ("size(payload.items) > 10000", true),
    ] {
        assert_eq!(on_body(expression, order.as_bytes()), Ok(expected), "{expression}");
    }
    let text = wide_object();
    for (expression, expected) in [
        ("payload.a.contains('abc')", false),
        ("payload.a.matches('c+')", false),
        ("payload.a == payload.b", true),
        ("'none' in payload.texts", false),
        ("payload.texts.size() > 1000 && payload.a.size() > 100000", true),
    ] {
        assert_eq!(on_body(expression, text.as_bytes()), Ok(expected), "{expression}");
    }
}

#[test]
fn the_filters_of_an_event_share_its_steps() {
    let list = long_list();
    let subject = Subject::new(facts(&[], list.as_bytes()));
    let (greedy, modest) = ("payload.all(x, x == 1)", "event.type == 'order.created'");
    let [greedy, modest] = [greedy, modest].map(|source| Filter::compile(source).unwrap());
    for _ in 1..MAX_STEPS_PER_EVENT / MAX_STEPS {
        assert_eq!(modest.passes(&subject), Ok(true));
        assert_eq!(greedy.passes(&subject), Err(FilterError::TooManySteps));
    }
    assert_eq!(modest.passes(&subject), Ok(true));
    for filter in [&greedy, &modest] {
        assert_eq!(filter.passes(&subject), Err(FilterError::TooManyFilters));
    }
}

#[test]
fn deep_expressions_are_refused_or_evaluated_on_a_small_stack() {
    let nest = |times: usize| {
        [
            format!("{}1{} == 1", "(".repeat(times), ")".repeat(times)),
            format!("{}1{} == 1", "[".repeat(times), "][0]".repeat(times)),
            format!("{}1{} == 1", "{1:".repeat(times), "}[1]".repeat(times)),
            format!("{}true", "true ? true : ".repeat(times)),
            format!("{}true", "!-".repeat(times)),
            format!("1{} == 1", " + 1".repeat(times)),
            format!("payload{} == 1", ".a".repeat(times)),
            format!("payload{} == 1", "[0]".repeat(times)),
            format!("{}true{}", "[1].all(x, ".repeat(times), ")".repeat(times)),
            format!("{}payload{} == 1", "size(".repeat(times), ")".repeat(times)),
            format!("1{} == 1", " + (1".repeat(times) + &")".repeat(times)),
            "(".repeat(times),
            "[{(".repeat(times),
            "a?".repeat(times),
        ]
    };
    let small = 512 << 10;
    let body = format!("{}1{}", "{\"a\":".repeat(40), "}".repeat(40));
    for times in [1, 3, 8, 20, 30, 31, 32, 60, 90, 100, 250, 1300] {
        for expression in nest(times) {
            let verdict = std::thread::scope(|scope| {
                let evaluate = || match Filter::compile(&expression) {
                    Ok(filter) => {
                        let subject = Subject::new(facts(&[], body.as_bytes()));
                        assert_ne!(filter.passes(&subject), Err(FilterError::Broken));
                    }
                    Err(refusal) => assert_ne!(refusal.message, error::UNREADABLE),
                };
                std::thread::Builder::new()
                    .stack_size(small)
                    .spawn_scoped(scope, evaluate)
                    .unwrap()
                    .join()
            });
            assert!(verdict.is_ok(), "{}", error::shorten(&expression));
        }
    }
}

/// Pieces that expressions are made of, so that many a random sequence is one.
fn pieces() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "payload",
        "event",
        ".type",
        ".a",
        ".items",
        "[0]",
        "['a']",
        "[",
        "]",
        "(",
        ")",
        "{",
        "}",
        "1",
        "-1",
        "0.5",
        "1u",
        "'a'",
        "\"",
        "'",
        "b'x'",
        "r'\\'",
        "true",
        "null",
        " + ",
        " - ",
        " * ",
        " / ",
        " % ",
        " == ",
        " != ",
        " < ",
        " in ",
        " && ",
        " || ",
        "!",
        "-",
        " ? ",
        " : ",
        ", ",
        ".all(x, x)",
        ".map(x, [x])",
        ".filter(x, ",
        ".exists(x, x == 1)",
        "has(payload.a)",
        "size(",
        ".size()",
        ".contains('a')",
        ".matches('a*')",
        "int(",
        "string(",
        "type(",
        "x",
        "headers",
        "metadata.a",
        "//",
        "\n",
        "é",
        "\\",
        "@",
        "`",
        "0x",
        "1e",
        "\u{0}",
    ]);
    prop::collection::vec(piece, 1..20).prop_map(|pieces| pieces.concat())
}

/// Sound expressions, whatever their types.
fn sound() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(vec![
        "payload",
        "payload.a",
        "payload.list",
        "event.type",
        "headers",
        "metadata",
        "1",
        "2.5",
        "3u",
        "'a'",
        "b'a'",
        "true",
        "null",
        "[]",
        "{}",
        "[1, 'a']",
        "{'a': 1}",
        "-9223372036854775808",
    ]);
    leaf.prop_map(str::to_owned).prop_recursive(4, 24, 2, |inner| {
        let operators =
            ["+", "-", "*", "/", "%", "==", "!=", "<", "<=", ">", ">=", "in", "&&", "||"];
        let around = [
            "!(_)",
            "-(_)",
            "(_)[0]",
            "(_)['a']",
            "(_).a",
            "has((_).a)",
            "size(_)",
            "(_).size()",
            "int(_)",
            "uint(_)",
            "double(_)",
            "string(_)",
            "bytes(_)",
            "bool(_)",
            "dyn(_)",
            "type(_)",
            "(_).all(x, x)",
            "(_).exists(x, x == 1)",
            "(_).map(x, x)",
            "(_).filter(x, true)",
            "(_).exists_one(x, x)",
            "(_).contains('a')",
            "(_).matches('a')",
            "[_, _]",
            "{'k': _}",
            "{_: 1}",
            "[1][_]",
            "{'a': 1}[_]",
            "true ? _ : 1",
            "(_) ? 1 : 2",
        ];
        prop_oneof![
            (inner.clone(), prop::sample::select(operators.to_vec()), inner.clone())
                .prop_map(|(left, operator, right)| format!("({left}) {operator} ({right})")),
            (prop::sample::select(around.to_vec()), inner)
                .prop_map(|(around, inner)| around.replace('_', &inner)),
        ]
    })
}

/// A panic is contained, so it has to be looked for.
fn end_well(expression: &str) -> Result<(), TestCaseError> {
    match Filter::compile(expression) {
        Err(refusal) => prop_assert_ne!(refusal.message, error::UNREADABLE),
        Ok(filter) => {
            let body = br#"{"a": {"a": [1, 2.5, "a", null]}, "list": [1, "a", true], "items": []}"#;
            let verdict = filter.passes(&Subject::new(facts(&[], body)));
            prop_assert_ne!(verdict, Err(FilterError::Broken));
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn no_text_panics(text in "\\PC{0,80}") {
        end_well(&text)?;
    }

    #[test]
    fn no_sequence_of_pieces_panics(expression in pieces()) {
        end_well(&expression)?;
    }

    #[test]
    fn no_sound_expression_panics(expression in sound()) {
        end_well(&expression)?;
    }

    #[test]
    fn no_body_panics(body in prop::collection::vec(any::<u8>(), 0..100)) {
        let verdict = on_body("payload == null || payload.exists(x, x == 1)", &body);
        prop_assert_ne!(verdict, Err(FilterError::Broken));
    }
}
