//! Doors for `postrider-fuzzing` to the stored forms: each reads what is stored and writes it again.
//! Nothing else calls these.

use postrider_core::endpoint::EndpointState;

use crate::error::Error;
use crate::sealing::Keyring;
use crate::stored::code::{self, Place};
use crate::stored::{headers, measures, response, sealed, words};

/// The headers of an event.
pub fn headers(stored: &[u8]) -> Result<Vec<u8>, Error> {
    headers::decode(stored).map(|read| headers::encode(&read))
}

/// The answer of a receiver.
pub fn response(stored: &[u8]) -> Result<Vec<u8>, Error> {
    response::decode(stored).map(|read| response::encode(&read))
}

/// A number as each kind of code there is.
pub fn codes(code: i64) -> [Result<i64, Error>; 4] {
    [
        Place::decode(code).map(Place::code),
        code::decode_state(code).map(code::state),
        code::decode_class(code).map(code::class),
        code::decode_reason(code).map(code::reason),
    ]
}

/// Who changed something.
pub fn actor(key: Option<i64>) -> Option<i64> {
    code::actor(code::decode_actor(key))
}

/// A text as the state of a job and as that of an endpoint.
pub fn words(text: &str) -> [Result<&'static str, Error>; 2] {
    [
        words::job_state(text).map(words::job_state_text),
        words::endpoint_state(text).map(EndpointState::as_str),
    ]
}

/// How long deliveries took.
pub fn latency(text: &str) -> Result<String, Error> {
    let latency = measures::latency(&measures::decode_text(text)?)?;
    measures::text(&measures::counts(&latency))
}

/// The secrets of an endpoint, and nothing of them.
pub fn secrets(keyring: &Keyring, stored: &[u8]) -> Result<(), Error> {
    sealed::unseal::<Vec<String>>(keyring, "endpoint", 1, stored).map(drop)
}

/// The digest of a hub's token, and nothing of it.
pub fn digest(keyring: &Keyring, stored: &[u8]) -> Result<(), Error> {
    sealed::unseal_digest(keyring, "endpoint", 1, stored).map(|_| ())
}
