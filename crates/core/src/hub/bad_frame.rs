//! Why a frame is not understood, in sentences that fit into a WebSocket close reason.

use std::fmt;

use super::close;

/// How much of what came from outside a sentence repeats.
const MAX_DETAIL_BYTES: usize = 72;

/// A message that is no frame. What it says is at most 120 bytes long, the room that a close reason
/// has with a little to spare.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadFrame {
    #[error("the message ends before the length of its head")]
    NoLength,
    #[error("the head is {length} bytes long; at most {most} are allowed")]
    LongHead { length: usize, most: usize },
    #[error("the head should be {length} bytes long, but only {there} are there")]
    CutHead { length: usize, there: usize },
    #[error("the head is no JSON object")]
    NoObject,
    #[error("the head cannot be read: {0}")]
    Head(Detail),
    #[error("`{0}` is no kind of frame that is expected here")]
    UnknownKind(Detail),
    #[error("`{field}` is missing")]
    Missing { field: &'static str },
    #[error("`{field}` must be from {least} to {most}")]
    OutOfRange { field: &'static str, least: u64, most: u64 },
    #[error("`{field}` must have from 1 to {most} characters")]
    TextLength { field: &'static str, most: usize },
    #[error("the body is {length} bytes long; at most {most} are allowed")]
    LargeBody { length: usize, most: usize },
    #[error("`{kind}` has no body, but {length} bytes follow its head")]
    UnexpectedBody { kind: &'static str, length: usize },
}

impl BadFrame {
    /// The code to close the connection with.
    pub const fn close_code(&self) -> u16 {
        match self {
            Self::LongHead { .. } | Self::LargeBody { .. } => close::TOO_LARGE,
            Self::NoLength
            | Self::CutHead { .. }
            | Self::NoObject
            | Self::Head(_)
            | Self::UnknownKind(_)
            | Self::Missing { .. }
            | Self::OutOfRange { .. }
            | Self::TextLength { .. }
            | Self::UnexpectedBody { .. } => close::MALFORMED,
        }
    }
}

/// Text from outside made fit for a sentence: cut, and without control characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Detail(String);

impl Detail {
    pub(super) fn new(text: &str) -> Self {
        let clean = |char: char| if char.is_control() { ' ' } else { char };
        let mut kept = String::new();
        for char in text.chars().map(clean) {
            if kept.len() + char.len_utf8() > MAX_DETAIL_BYTES {
                kept.push('…');
                break;
            }
            kept.push(char);
        }
        Self(kept)
    }
}

impl fmt::Display for Detail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
