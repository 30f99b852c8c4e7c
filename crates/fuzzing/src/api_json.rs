//! Bodies of the API: each is taken, or refused with the name of a field and a sentence, and never
//! by a failure of the gateway. The bytes are a body, for every route that takes one.

use postrider_server::fuzzing::{Body, Refused, read};

/// What the API answers where a body cannot be used.
const INVALID: u16 = 422;
/// Outside text in an answer is cut, and an ellipsis says so.
const MAX_FIELD_CHARS: usize = 121;

pub fn api_json(json: &[u8]) {
    for body in Body::ALL {
        if let Err(Refused { status, detail, fields }) = read(body, json) {
            assert_eq!(status, INVALID, "{body:?}: {detail}");
            assert!(!detail.is_empty(), "{body:?} is refused without a reason");
            assert!(!fields.is_empty(), "{body:?}: {detail} names no field");
            for field in fields {
                let chars = field.chars().count();
                assert!((1..=MAX_FIELD_CHARS).contains(&chars), "{body:?}: {field:?}: {detail}");
            }
        }
    }
}
