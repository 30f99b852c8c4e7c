//! Where a list goes on, as an opaque text.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use postrider_core::{DeliveryId, EndpointId, EventId, HubId, SourceId};
use postrider_store::ledger::Position;

use crate::problem::Problem;

/// The form of what follows; another one would get another number.
const VERSION: u8 = 1;
const EVENT: u8 = b'e';
const DELIVERY: u8 = b'd';
const ENDPOINT: u8 = b'p';
const SOURCE: u8 = b's';
const HUB: u8 = b'h';

/// A place in a list of one kind. A cursor of one list means nothing to another.
pub(crate) trait Cursor: Sized {
    fn to_text(&self) -> String;
    fn from_bytes(kind: u8, numbers: &[i64]) -> Option<Self>;

    fn parse(text: &str) -> Result<Self, Problem> {
        decode(text)
            .and_then(|(kind, numbers)| Self::from_bytes(kind, &numbers))
            .ok_or_else(|| Problem::invalid("cursor", "is not one that this list has given out"))
    }
}

impl Cursor for EventId {
    fn to_text(&self) -> String {
        encode(EVENT, &[self.as_i64()])
    }

    fn from_bytes(kind: u8, numbers: &[i64]) -> Option<Self> {
        match (kind, numbers) {
            (EVENT, &[id]) => Some(Self::from_i64(id)),
            _ => None,
        }
    }
}

impl Cursor for EndpointId {
    fn to_text(&self) -> String {
        encode(ENDPOINT, &[self.as_i64()])
    }

    fn from_bytes(kind: u8, numbers: &[i64]) -> Option<Self> {
        match (kind, numbers) {
            (ENDPOINT, &[id]) => Some(Self::from_i64(id)),
            _ => None,
        }
    }
}

impl Cursor for SourceId {
    fn to_text(&self) -> String {
        encode(SOURCE, &[self.as_i64()])
    }

    fn from_bytes(kind: u8, numbers: &[i64]) -> Option<Self> {
        match (kind, numbers) {
            (SOURCE, &[id]) => Some(Self::from_i64(id)),
            _ => None,
        }
    }
}

impl Cursor for HubId {
    fn to_text(&self) -> String {
        encode(HUB, &[self.as_i64()])
    }

    fn from_bytes(kind: u8, numbers: &[i64]) -> Option<Self> {
        match (kind, numbers) {
            (HUB, &[id]) => Some(Self::from_i64(id)),
            _ => None,
        }
    }
}

impl Cursor for Position {
    fn to_text(&self) -> String {
        encode(DELIVERY, &[self.event.as_i64(), self.delivery.as_i64()])
    }

    fn from_bytes(kind: u8, numbers: &[i64]) -> Option<Self> {
        match (kind, numbers) {
            (DELIVERY, &[event, delivery]) => Some(Self {
                event: EventId::from_i64(event),
                delivery: DeliveryId::from_i64(delivery),
            }),
            _ => None,
        }
    }
}

fn encode(kind: u8, numbers: &[i64]) -> String {
    let mut bytes = vec![VERSION, kind];
    bytes.extend(numbers.iter().flat_map(|number| number.to_be_bytes()));
    URL_SAFE_NO_PAD.encode(bytes)
}

fn decode(text: &str) -> Option<(u8, Vec<i64>)> {
    const LONGEST: usize = 2 + 2 * size_of::<i64>();
    if text.len() > 2 * LONGEST {
        return None;
    }
    let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
    let (&[VERSION, kind], numbers) = bytes.split_first_chunk::<2>()? else { return None };
    let (chunks, rest) = numbers.as_chunks::<{ size_of::<i64>() }>();
    let numbers: Vec<i64> = chunks.iter().map(|chunk| i64::from_be_bytes(*chunk)).collect();
    (rest.is_empty() && numbers.iter().all(|number| *number >= 0)).then_some((kind, numbers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_survives_its_text_form() {
        for raw in [0, 1, i64::MAX] {
            let event = EventId::from_i64(raw);
            assert_eq!(EventId::parse(&event.to_text()), Ok(event));
            let endpoint = EndpointId::from_i64(raw);
            assert_eq!(EndpointId::parse(&endpoint.to_text()), Ok(endpoint));
            let hub = HubId::from_i64(raw);
            assert_eq!(HubId::parse(&hub.to_text()), Ok(hub));
            let position = Position { event, delivery: DeliveryId::from_i64(i64::MAX - raw) };
            assert_eq!(Position::parse(&position.to_text()), Ok(position));
        }
    }

    #[test]
    fn anything_else_is_refused_by_name() {
        let other_list = EndpointId::from_i64(7).to_text();
        let other_version = URL_SAFE_NO_PAD.encode([[9, EVENT].as_slice(), &[0; 8]].concat());
        let negative = encode(EVENT, &[-1]);
        let cut = &EventId::from_i64(7).to_text()[1..];
        let long = "A".repeat(100_000);
        for text in ["", "!", "é", "AA", &other_list, &other_version, &negative, cut, &long] {
            let problem = EventId::parse(text).expect_err(text);
            assert_eq!(problem.fields(), ["cursor"], "{text}");
        }
    }
}
