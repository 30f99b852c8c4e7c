//! Answers of the gateway, cut to what a model can read.

use serde_json::Value;

/// The longest answer.
const MAX_ANSWER_CHARS: usize = 60_000;
/// The longest text in it, and how long texts are where that is still too much.
const TEXT_CHARS: [usize; 3] = [2_000, 400, 80];

/// The answer as text, or why it cannot be given.
pub(super) fn trim(answer: &Value) -> Result<String, String> {
    for longest in TEXT_CHARS {
        let mut answer = answer.clone();
        cut(&mut answer, longest);
        let text = answer.to_string();
        if text.chars().count() <= MAX_ANSWER_CHARS {
            return Ok(text);
        }
    }
    Err(format!("the answer has more than {MAX_ANSWER_CHARS} characters; ask for fewer with limit"))
}

/// Cuts every text that is too long, and says how much is missing. Answers are no deeper than
/// serde reads them.
fn cut(value: &mut Value, longest: usize) {
    match value {
        Value::String(text) => {
            if let Some((at, _)) = text.char_indices().nth(longest) {
                let missing = text[at..].chars().count();
                *text = format!("{}… ({missing} more characters)", &text[..at]);
            }
        }
        Value::Array(list) => list.iter_mut().for_each(|entry| cut(entry, longest)),
        Value::Object(fields) => fields.values_mut().for_each(|field| cut(field, longest)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn answers_are_bounded_whatever_is_in_them() {
        assert_eq!(trim(&json!({"a": "short"})), Ok(r#"{"a":"short"}"#.to_owned()));
        let long = trim(&json!({"a": "é".repeat(5_000)})).expect("it fits when it is cut");
        assert!(long.contains("… (3000 more characters)"), "{long}");
        let many = json!(vec!["x".repeat(5_000); 100]);
        let many = trim(&many).expect("it fits when it is cut shorter");
        assert!(many.chars().count() <= MAX_ANSWER_CHARS);
        let endless = json!(vec![json!({"id": 1}); 100_000]);
        assert!(trim(&endless).expect_err("too much").contains("limit"));
    }
}
