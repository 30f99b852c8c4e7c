//! Filters: any expression is refused by a sentence or evaluated within its steps, on any body. The
//! bytes are an expression, an empty line, and a body.

use postrider_engine::filter::{
    Facts, Filter, FilterError, MAX_SOURCE_BYTES, MAX_STEPS, MAX_STEPS_PER_EVENT, Subject,
};
use postrider_store::record::Headers;

/// What stands for a body where none is given.
const BODY: &[u8] =
    br#"{"a":{"a":[1,2.5,"a",null]},"b":"text","list":[1,"a",true],"items":[{"a":1}]}"#;
/// What a contained panic of the parser is told as. A panic is contained, so it has to be looked for.
const UNREADABLE: &str = "the filter cannot be read";
/// A sentence repeats a piece of the expression, never all of it.
const MAX_SENTENCE_BYTES: usize = 1_000;
/// How many evaluations that go too far use up the steps of an event.
const GREEDY: u64 = MAX_STEPS_PER_EVENT / MAX_STEPS;

pub fn filter(bytes: &[u8]) {
    let (expression, body) = crate::halves(bytes);
    let Ok(expression) = std::str::from_utf8(expression) else { return };
    let body = if body.is_empty() { BODY } else { body };
    let filter = match Filter::compile(expression) {
        Ok(filter) => filter,
        Err(refusal) => {
            assert_ne!(refusal.message, UNREADABLE, "a panic of the parser");
            assert!(is_a_sentence(&refusal.to_string()), "{refusal:?}");
            if let Some((line, column)) = refusal.position {
                assert!(line > 0 && line <= expression.split('\n').count(), "{refusal:?}");
                assert!(column > 0, "{refusal:?}");
            }
            return;
        }
    };
    assert!(expression.len() <= MAX_SOURCE_BYTES, "{} bytes", expression.len());
    let headers: Headers = vec![("X-Header".to_owned(), b"value".to_vec().into())];
    let subject = Subject::new(Facts {
        kind: "order.created",
        headers: &headers,
        metadata: Some(r#"{"a":"b"}"#),
        content_type: "application/json",
        body,
        source: None,
    });
    let verdict = filter.passes(&subject);
    check(&verdict);
    if verdict == Err(FilterError::TooManySteps) {
        // Each time costs as much, so the event's steps are used up and the next gets none.
        for _ in 1..GREEDY {
            let verdict = filter.passes(&subject);
            let ended = [Err(FilterError::TooManySteps), Err(FilterError::TooManyFilters)];
            assert!(ended.contains(&verdict), "{verdict:?}");
        }
        assert_eq!(filter.passes(&subject), Err(FilterError::TooManyFilters));
    }
}

fn check(verdict: &Result<bool, FilterError>) {
    let Err(error) = verdict else { return };
    assert_ne!(*error, FilterError::Broken, "a panic, or an error that is not known");
    assert_ne!(*error, FilterError::TooManyFilters, "the first filter of an event");
    assert!(is_a_sentence(&error.to_string()), "{error:?}");
}

fn is_a_sentence(text: &str) -> bool {
    !text.is_empty() && text.len() <= MAX_SENTENCE_BYTES
}
