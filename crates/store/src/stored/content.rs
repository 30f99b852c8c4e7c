//! Whether an event that comes again, with its key, says the same.

use serde_json::Value;

use crate::record::Event;

pub(crate) fn same_metadata(stored: Option<&str>, new: Option<&str>) -> bool {
    match (stored, new) {
        (Some(stored), Some(new)) => stored == new || same_json(stored.as_bytes(), new.as_bytes()),
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    }
}

/// A producer that sends an event again may write the same JSON with other spaces or in another
/// order.
pub(crate) fn same_body(stored: &[u8], event: &Event) -> bool {
    stored == event.body || (is_json(&event.content_type) && same_json(stored, &event.body))
}

fn same_json(one: &[u8], other: &[u8]) -> bool {
    match (serde_json::from_slice::<Value>(one), serde_json::from_slice::<Value>(other)) {
        (Ok(one), Ok(other)) => one == other,
        (Ok(_) | Err(_), Err(_)) | (Err(_), Ok(_)) => false,
    }
}

fn is_json(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence == "application/json" || essence.ends_with("+json")
}
