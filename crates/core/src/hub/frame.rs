//! Frames as bytes: four bytes of length, a head in JSON, and the body as it is.
//!
//! Reading ignores fields it does not know, so that a frame of this version can get more of them;
//! it refuses kinds it does not know, because leaving out a whole frame would break the turns.

use std::borrow::Cow;
use std::ops::RangeInclusive;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{
    Answer, BadFrame, Deliver, Detail, FromGateway, FromHub, Hello, LENGTH_BYTES, MAX_AGENT_CHARS,
    MAX_BODY_BYTES, MAX_CAPACITY, MAX_ERROR_CHARS, MAX_EXCERPT_BYTES, MAX_GATEWAY_HEAD_BYTES,
    MAX_HEADERS, MAX_HUB_HEAD_BYTES, MAX_SEQ, MAX_SPAN, Met, Welcome, headers,
};
use crate::id::{DeliveryId, EndpointId, EventId, HubId};

/// What an answer's headers may take of its head; the rest is for everything else in it.
const MAX_ANSWER_HEADERS_BYTES: usize = MAX_HUB_HEAD_BYTES - (16 << 10);
/// The final statuses of HTTP. One that announces another is no answer.
const STATUSES: RangeInclusive<u64> = 200..=999;
/// What stands for an error without a text.
const NO_REASON: &str = "no reason was given";
/// What stands for a hub that does not say what it is.
const NO_AGENT: &str = "unknown";

impl FromGateway {
    pub fn encode(&self) -> Bytes {
        match self {
            Self::Welcome(Welcome { hub, name }) => {
                write(&WelcomeHead { hub: *hub, name: name.into() }, &[])
            }
            Self::Deliver(deliver) => write(&DeliverHead::of(deliver), &deliver.body),
        }
    }

    pub fn decode(message: Bytes) -> Result<Self, BadFrame> {
        let frame = Raw::open(message, MAX_GATEWAY_HEAD_BYTES)?;
        match &*frame.kind()? {
            "welcome" => {
                frame.has_no_body("welcome")?;
                let WelcomeHead { hub, name } = frame.read()?;
                Ok(Self::Welcome(Welcome { hub, name: name.into_owned() }))
            }
            "deliver" => {
                frame.has_body_within(MAX_BODY_BYTES)?;
                let head: DeliverHead<'_> = frame.read()?;
                head.with(frame.body()).map(Self::Deliver)
            }
            unknown => Err(BadFrame::UnknownKind(Detail::new(unknown))),
        }
    }
}

impl FromHub {
    /// What does not fit is cut, so that every answer is one that [`FromHub::decode`] reads: one
    /// that was refused would leave its delivery to be sent again and refused again.
    pub fn encode(&self) -> Bytes {
        match self {
            Self::Hello(Hello { agent, capacity }) => {
                let agent = fit(agent, MAX_AGENT_CHARS, NO_AGENT);
                write(&HelloHead { agent, capacity: (*capacity).clamp(1, MAX_CAPACITY) }, &[])
            }
            Self::Answer(answer) => answer.encode(),
        }
    }

    pub fn decode(message: Bytes) -> Result<Self, BadFrame> {
        let frame = Raw::open(message, MAX_HUB_HEAD_BYTES)?;
        match &*frame.kind()? {
            "hello" => {
                frame.has_no_body("hello")?;
                let HelloHead { agent, capacity } = frame.read()?;
                within("capacity", capacity.into(), 1..=MAX_CAPACITY.into())?;
                let agent = text("agent", &agent, MAX_AGENT_CHARS)?;
                Ok(Self::Hello(Hello { agent, capacity }))
            }
            "answer" => {
                frame.has_body_within(MAX_EXCERPT_BYTES)?;
                let head: AnswerHead<'_> = frame.read()?;
                head.with(frame.body()).map(Self::Answer)
            }
            unknown => Err(BadFrame::UnknownKind(Detail::new(unknown))),
        }
    }
}

impl Answer {
    /// The same as that of [`FromHub::Answer`].
    pub fn encode(&self) -> Bytes {
        let (head, body) = AnswerHead::of(self);
        write(&head, body)
    }
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "kind", rename = "hello")]
struct HelloHead<'a> {
    #[serde(borrow)]
    agent: Cow<'a, str>,
    capacity: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "kind", rename = "welcome")]
struct WelcomeHead<'a> {
    hub: HubId,
    #[serde(borrow)]
    name: Cow<'a, str>,
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "kind", rename = "deliver")]
struct DeliverHead<'a> {
    seq: u64,
    delivery: DeliveryId,
    event: EventId,
    endpoint: EndpointId,
    #[serde(skip_serializing_if = "Option::is_none")]
    endpoint_name: Option<Cow<'a, str>>,
    #[serde(borrow)]
    event_type: Cow<'a, str>,
    attempt: u32,
    timeout_ms: u64,
    #[serde(with = "headers")]
    headers: Cow<'a, [(String, Bytes)]>,
}

impl<'a> DeliverHead<'a> {
    fn of(deliver: &'a Deliver) -> Self {
        Self {
            seq: deliver.seq,
            delivery: deliver.delivery,
            event: deliver.event,
            endpoint: deliver.endpoint,
            endpoint_name: deliver.endpoint_name.as_deref().map(Cow::Borrowed),
            event_type: Cow::Borrowed(&deliver.kind),
            attempt: deliver.attempt,
            // A deadline of nothing could only be missed.
            timeout_ms: millis(deliver.timeout).max(1),
            headers: Cow::Borrowed(&deliver.headers),
        }
    }

    fn with(self, body: Bytes) -> Result<Deliver, BadFrame> {
        within("seq", self.seq, 1..=MAX_SEQ)?;
        within("attempt", self.attempt.into(), 1..=u32::MAX.into())?;
        within("timeout_ms", self.timeout_ms, 1..=millis(MAX_SPAN))?;
        Ok(Deliver {
            seq: self.seq,
            delivery: self.delivery,
            event: self.event,
            endpoint: self.endpoint,
            endpoint_name: self.endpoint_name.map(Cow::into_owned),
            kind: self.event_type.into_owned(),
            attempt: self.attempt,
            timeout: Duration::from_millis(self.timeout_ms),
            headers: self.headers.into_owned(),
            body,
        })
    }
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "kind", rename = "answer")]
struct AnswerHead<'a> {
    seq: u64,
    duration_ms: u64,
    met: Meeting,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    #[serde(default, with = "headers", skip_serializing_if = "<[_]>::is_empty")]
    headers: Cow<'a, [(String, Bytes)]>,
    #[serde(default)]
    truncated: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Cow<'a, str>>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Meeting {
    Status,
    Network,
    Timeout,
}

impl<'a> AnswerHead<'a> {
    fn of(answer: &'a Answer) -> (Self, &'a [u8]) {
        let mut head = Self {
            seq: answer.seq,
            duration_ms: millis(answer.duration),
            met: Meeting::Status,
            status: None,
            headers: Cow::Borrowed(&[]),
            truncated: false,
            error: None,
        };
        let mut kept: &[u8] = &[];
        match &answer.met {
            Met::Status { status, headers, body, truncated } => {
                kept = &body[..body.len().min(MAX_EXCERPT_BYTES)];
                head.status = Some(*status);
                head.headers = Cow::Borrowed(fitting(headers));
                head.truncated = *truncated || kept.len() < body.len();
            }
            Met::Network { error } => {
                head.met = Meeting::Network;
                head.error = Some(fit(error, MAX_ERROR_CHARS, NO_REASON));
            }
            Met::Timeout { error } => {
                head.met = Meeting::Timeout;
                head.error = Some(fit(error, MAX_ERROR_CHARS, NO_REASON));
            }
        }
        (head, kept)
    }

    fn with(self, body: Bytes) -> Result<Answer, BadFrame> {
        within("seq", self.seq, 1..=MAX_SEQ)?;
        within("duration_ms", self.duration_ms, 0..=millis(MAX_SPAN))?;
        let error = |kind| {
            if !body.is_empty() {
                return Err(BadFrame::UnexpectedBody { kind, length: body.len() });
            }
            let error = self.error.as_deref().ok_or(BadFrame::Missing { field: "error" })?;
            text("error", error, MAX_ERROR_CHARS)
        };
        let met = match self.met {
            Meeting::Status => {
                let status = self.status.ok_or(BadFrame::Missing { field: "status" })?;
                within("status", status.into(), STATUSES)?;
                let headers = self.headers.into_owned();
                Met::Status { status, headers, body, truncated: self.truncated }
            }
            Meeting::Network => Met::Network { error: error("network")? },
            Meeting::Timeout => Met::Timeout { error: error("timeout")? },
        };
        let duration = Duration::from_millis(self.duration_ms);
        Ok(Answer { seq: self.seq, duration, met })
    }
}

/// As many of the first headers as an answer has room for.
fn fitting(all: &[(String, Bytes)]) -> &[(String, Bytes)] {
    let mut taken = 0;
    let misfit = |(name, value): &(String, Bytes)| {
        taken += headers::room(name, value);
        taken > MAX_ANSWER_HEADERS_BYTES || !headers::is_name(name)
    };
    let first = &all[..all.len().min(MAX_HEADERS)];
    first.iter().position(misfit).map_or(first, |end| &first[..end])
}

/// A message that has been taken apart, but not read.
struct Raw {
    message: Bytes,
    body_at: usize,
}

impl Raw {
    fn open(message: Bytes, most: usize) -> Result<Self, BadFrame> {
        let (length, rest) = message.split_first_chunk().ok_or(BadFrame::NoLength)?;
        // A length beyond what the machine can count is beyond what is allowed as well.
        let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
        if length > most {
            return Err(BadFrame::LongHead { length, most });
        }
        if length > rest.len() {
            return Err(BadFrame::CutHead { length, there: rest.len() });
        }
        // Or else a list of the right length would be read as well, field by field.
        if !rest[..length].trim_ascii_start().starts_with(b"{") {
            return Err(BadFrame::NoObject);
        }
        Ok(Self { message, body_at: LENGTH_BYTES + length })
    }

    fn kind(&self) -> Result<Cow<'_, str>, BadFrame> {
        #[derive(Deserialize)]
        struct Kind<'a> {
            #[serde(borrow)]
            kind: Cow<'a, str>,
        }
        self.read::<Kind<'_>>().map(|head| head.kind)
    }

    fn read<'a, T: Deserialize<'a>>(&'a self) -> Result<T, BadFrame> {
        serde_json::from_slice(&self.message[LENGTH_BYTES..self.body_at])
            .map_err(|error| BadFrame::Head(Detail::new(&error.to_string())))
    }

    fn has_no_body(&self, kind: &'static str) -> Result<(), BadFrame> {
        match self.message.len() - self.body_at {
            0 => Ok(()),
            length => Err(BadFrame::UnexpectedBody { kind, length }),
        }
    }

    fn has_body_within(&self, most: usize) -> Result<(), BadFrame> {
        let length = self.message.len() - self.body_at;
        if length <= most { Ok(()) } else { Err(BadFrame::LargeBody { length, most }) }
    }

    /// Shares the memory of the message.
    fn body(&self) -> Bytes {
        self.message.slice(self.body_at..)
    }
}

fn write(head: &impl Serialize, body: &[u8]) -> Bytes {
    /// What most heads fit into.
    const USUAL_HEAD_BYTES: usize = 1 << 10;
    let mut message = Vec::with_capacity(LENGTH_BYTES + USUAL_HEAD_BYTES + body.len());
    message.extend_from_slice(&[0; LENGTH_BYTES]);
    serde_json::to_writer(&mut message, head).expect("a head is plain data, and memory takes it");
    // A head that is longer than a length can say is refused by whoever reads it, like every other
    // that is too long.
    let length = u32::try_from(message.len() - LENGTH_BYTES).unwrap_or(u32::MAX);
    message[..LENGTH_BYTES].copy_from_slice(&length.to_be_bytes());
    message.extend_from_slice(body);
    message.into()
}

fn within(field: &'static str, value: u64, range: RangeInclusive<u64>) -> Result<(), BadFrame> {
    if range.contains(&value) {
        return Ok(());
    }
    Err(BadFrame::OutOfRange { field, least: *range.start(), most: *range.end() })
}

/// Text for people to read: control characters come as spaces, so that no terminal obeys them.
fn text(field: &'static str, text: &str, most: usize) -> Result<String, BadFrame> {
    if text.is_empty() || text.chars().nth(most).is_some() {
        return Err(BadFrame::TextLength { field, most });
    }
    Ok(text.replace(char::is_control, " "))
}

fn fit<'a>(text: &'a str, most: usize, instead: &'static str) -> Cow<'a, str> {
    if text.is_empty() {
        return instead.into();
    }
    let end = text.char_indices().nth(most).map_or(text.len(), |(end, _)| end);
    text[..end].into()
}

/// Whole milliseconds, at most [`MAX_SPAN`].
fn millis(span: Duration) -> u64 {
    span.min(MAX_SPAN).as_millis().try_into().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
