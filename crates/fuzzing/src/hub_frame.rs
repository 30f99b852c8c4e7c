//! Frames of hubs, both ways: what can be read is written and read again as the same, what cannot
//! is refused in a sentence that fits into the end of a connection. The bytes are a message.

use postrider_core::hub::{
    BadFrame, FromGateway, FromHub, MAX_FROM_GATEWAY_BYTES, MAX_FROM_HUB_BYTES, close,
};

/// The room that a WebSocket close frame has for its reason.
const MAX_REASON_BYTES: usize = 123;
/// Up to here nothing has to be cut when a frame is written again, however it was spelled.
const MAX_WHOLE_BYTES: usize = 32 << 10;

pub fn hub_frame(message: &[u8]) {
    match FromHub::decode(message.to_vec().into()) {
        Ok(frame) => {
            let written = frame.encode();
            assert!(written.len() <= MAX_FROM_HUB_BYTES, "{} bytes", written.len());
            let again = FromHub::decode(written);
            assert!(message.len() > MAX_WHOLE_BYTES || again == Ok(frame), "{again:?}");
        }
        Err(bad) => ends_in_a_sentence(&bad),
    }
    match FromGateway::decode(message.to_vec().into()) {
        Ok(frame) => {
            let written = frame.encode();
            assert!(written.len() <= MAX_FROM_GATEWAY_BYTES, "{} bytes", written.len());
            let again = FromGateway::decode(written);
            assert!(message.len() > MAX_WHOLE_BYTES || again == Ok(frame), "{again:?}");
        }
        Err(bad) => ends_in_a_sentence(&bad),
    }
}

fn ends_in_a_sentence(bad: &BadFrame) {
    let said = bad.to_string();
    assert!(!said.is_empty() && said.len() <= MAX_REASON_BYTES, "{said:?}");
    assert!(!said.chars().any(char::is_control), "{said:?}");
    assert!([close::MALFORMED, close::TOO_LARGE].contains(&bad.close_code()), "{bad:?}");
}
