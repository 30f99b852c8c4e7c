//! Cursors, ids and query strings: a cursor that a list takes is the text that the list would write,
//! and means something to one list only. The bytes are such a text.

use std::fmt::Display;
use std::str::FromStr;

use postrider_core::{
    DeliveryId, EndpointId, EventId, HubId, JobId, KeyId, SourceId, Timestamp, Trace,
};
use postrider_engine::LeaseToken;
use postrider_server::fuzzing::{List, Refused, cursor as read_cursor, query};

pub fn cursor(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let mut taken = Vec::new();
    for list in List::ALL {
        match read_cursor(list, text) {
            Ok(written) => {
                assert_eq!(written, text, "{list:?} would not have written it");
                taken.push(list);
            }
            Err(refused) => assert_eq!(refused.fields, ["cursor"], "{list:?}: {}", refused.detail),
        }
    }
    // Tenants are listed by name, and a name can look like anything.
    taken.retain(|list| *list != List::Tenants);
    assert!(taken.len() <= 1, "{text:?} is a cursor of {taken:?}");

    if let Err(Refused { status, detail, fields }) = query(text) {
        assert_eq!(status, 422, "{detail}");
        assert!(!detail.is_empty() && !fields.is_empty(), "{detail:?}, {fields:?}");
    }
    reads_back::<EventId>(text);
    reads_back::<DeliveryId>(text);
    reads_back::<EndpointId>(text);
    reads_back::<SourceId>(text);
    reads_back::<HubId>(text);
    reads_back::<JobId>(text);
    reads_back::<KeyId>(text);
    reads_back::<LeaseToken>(text);
    reads_back::<Trace>(text);
    reads_back::<Timestamp>(text);
}

/// What a text stands for is written as a text that stands for the same.
fn reads_back<T>(text: &str)
where
    T: FromStr + Display + PartialEq,
{
    if let Ok(read) = text.parse::<T>() {
        let written = read.to_string();
        assert!(written.parse().is_ok_and(|again: T| again == read), "{text:?} and {written:?}");
    }
}
