//! What a filter sees of an event. The costly parts are read when the first filter asks for them,
//! and once for all filters of the event.

use std::collections::HashMap;
use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use cel::common::types::{CelMap, CelMapKey, CelNull, CelString};
use cel::common::value::Val;
use postrider_core::SourceId;

use super::json::{self, Unreadable};
use super::meter::{MAX_STEPS, MAX_STEPS_PER_EVENT, Meter};

/// An event, as far as filters are concerned.
#[derive(Clone, Copy)]
pub struct Facts<'a> {
    /// The event's type.
    pub kind: &'a str,
    /// As received. Filters see each name once, in lower case, with its first value.
    pub headers: &'a [(String, Bytes)],
    /// A JSON object, as text.
    pub metadata: Option<&'a str>,
    pub content_type: &'a str,
    pub body: &'a [u8],
    /// The source it came in by.
    pub source: Option<SourceId>,
}

impl fmt::Debug for Facts<'_> {
    /// Without headers and body, which may carry secrets.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Facts")
            .field("kind", &self.kind)
            .field("content_type", &self.content_type)
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}

/// One event under the eyes of any number of filters.
pub struct Subject<'a> {
    facts: Facts<'a>,
    kind: CelString<'a>,
    content_type: CelString<'a>,
    source: Option<CelString<'a>>,
    headers: OnceLock<CelMap<'a>>,
    metadata: OnceLock<Read<'a>>,
    payload: OnceLock<Read<'a>>,
    /// The steps that filters may still take on this event, one after the other.
    steps_left: AtomicU64,
}

type Read<'a> = Result<Box<dyn Val + 'a>, Unreadable>;

static NULL: CelNull = CelNull;

impl<'a> Subject<'a> {
    pub fn new(facts: Facts<'a>) -> Self {
        Self {
            facts,
            kind: facts.kind.into(),
            content_type: facts.content_type.into(),
            source: facts.source.map(|id| CelString::from(id.to_string())),
            headers: OnceLock::new(),
            metadata: OnceLock::new(),
            payload: OnceLock::new(),
            steps_left: AtomicU64::new(MAX_STEPS_PER_EVENT),
        }
    }

    /// A part of the event as a value, unless it cannot be read.
    pub(super) fn part(&self, part: Part) -> Option<&(dyn Val + 'a)> {
        match part {
            Part::Kind => Some(&self.kind),
            Part::ContentType => Some(&self.content_type),
            Part::Source => match &self.source {
                Some(source) => Some(source),
                None => Some(&NULL),
            },
            Part::Headers => Some(self.headers.get_or_init(|| headers(self.facts.headers))),
            Part::Metadata => {
                let text = self.facts.metadata.unwrap_or("{}");
                let read = self.metadata.get_or_init(|| json::read(text.as_bytes()));
                read.as_deref().ok()
            }
            Part::Payload => {
                let read = self.payload.get_or_init(|| json::read(self.facts.body));
                read.as_deref().ok()
            }
        }
    }

    /// The meter for the next filter.
    pub(super) fn meter(&self) -> Meter {
        Meter::new(self.steps_left.load(Ordering::Relaxed).min(MAX_STEPS))
    }

    /// Takes account of what a filter used of its meter.
    pub(super) fn used(&self, steps: u64) {
        let left = self.steps_left.load(Ordering::Relaxed);
        self.steps_left.store(left.saturating_sub(steps), Ordering::Relaxed);
    }

    #[cfg(test)]
    pub(super) fn has_read_payload(&self) -> bool {
        self.payload.get().is_some()
    }

    /// Why a part that was asked for could not be read.
    pub(super) fn unreadable(&self, part: Part) -> Option<Unreadable> {
        let read = match part {
            Part::Kind | Part::ContentType | Part::Source | Part::Headers => return None,
            Part::Metadata => self.metadata.get(),
            Part::Payload => self.payload.get(),
        };
        read.and_then(|read| read.as_ref().err().copied())
    }
}

impl fmt::Debug for Subject<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Subject").field(&self.facts).finish()
    }
}

fn headers<'a>(received: &'a [(String, Bytes)]) -> CelMap<'a> {
    let mut map: HashMap<CelMapKey<'a>, Box<dyn Val + 'a>> = HashMap::with_capacity(received.len());
    for (name, value) in received {
        map.entry(CelMapKey::String(name.to_ascii_lowercase().into()))
            .or_insert_with(|| Box::new(CelString::from(String::from_utf8_lossy(value))));
    }
    map.into()
}

/// The parts of an event that an expression can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Kind,
    Headers,
    Metadata,
    Payload,
    ContentType,
    Source,
}

/// Each part, as a field of `event`, and as the variable that stands for it in a checked
/// expression. No expression can spell the latter, so none can hide it behind a name of its own.
const PARTS: [(Part, &str, &str); 6] = [
    (Part::Kind, "type", "@type"),
    (Part::Headers, "headers", "@headers"),
    (Part::Metadata, "metadata", "@metadata"),
    (Part::Payload, "payload", "@payload"),
    (Part::ContentType, "content_type", "@content_type"),
    (Part::Source, "source", "@source"),
];

impl Part {
    /// The part that is this field of `event`.
    pub(super) fn of_field(name: &str) -> Option<Self> {
        PARTS.iter().find(|(_, field, _)| *field == name).map(|(part, ..)| *part)
    }

    /// The part that has a name of its own beside that in `event`.
    pub(super) fn of_short_name(name: &str) -> Option<Self> {
        Self::of_field(name).filter(|part| match part {
            Self::Headers | Self::Metadata | Self::Payload => true,
            // `type` is CEL's word for something else; the other two would go unnoticed as names.
            Self::Kind | Self::ContentType | Self::Source => false,
        })
    }

    pub(super) fn of_variable(name: &str) -> Option<Self> {
        PARTS.iter().find(|(.., variable)| *variable == name).map(|(part, ..)| *part)
    }

    pub(super) fn variable(self) -> &'static str {
        PARTS.iter().find(|(part, ..)| *part == self).map_or("", |(.., variable)| *variable)
    }
}
