//! W3C trace context: the trace that an event belongs to, as the headers `traceparent` and
//! `tracestate` say it.
//!
//! What cannot be read is no trace. Nobody's webhook is refused for what its tracing wrote.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The header that names a trace and the span that what follows belongs to.
pub const TRACEPARENT: &str = "traceparent";
/// The header with what tracing systems add to it.
pub const TRACESTATE: &str = "tracestate";

/// The longest `tracestate` that is passed on: what the specification asks everybody to take.
pub const MAX_STATE_BYTES: usize = 512;
/// The most members of a `tracestate`.
pub const MAX_STATE_MEMBERS: usize = 32;
const MAX_STATE_KEY_BYTES: usize = 256;
const MAX_STATE_VALUE_BYTES: usize = 256;

/// The length of a `traceparent` of version 00.
const PARENT_BYTES: usize = 55;
const SAMPLED: u8 = 0b01;
const RANDOM: u8 = 0b10;

/// Names a trace.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceId([u8; 16]);

/// Names a span within a trace.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpanId([u8; 8]);

impl TraceId {
    /// None for all zeros, which name no trace.
    pub fn new(bytes: [u8; 16]) -> Option<Self> {
        (bytes != [0; 16]).then_some(Self(bytes))
    }

    /// Whether the trace is among the part `ratio` of all traces. Everybody who asks by the same ratio
    /// comes to the same answer.
    pub fn is_within(self, ratio: f64) -> bool {
        // The last seven bytes are those that the specification wants to be random.
        let chance = number(&self.0[9..]);
        #[expect(clippy::cast_precision_loss, reason = "56 bits are cut to 53, evenly")]
        let chance = chance as f64 / 2_f64.powi(56);
        chance < ratio
    }
}

impl SpanId {
    /// None for zero, which names no span.
    pub fn new(number: u64) -> Option<Self> {
        (number != 0).then_some(Self(number.to_be_bytes()))
    }

    /// One for what is known by these numbers: whoever has them finds the same id, without it having
    /// been kept.
    pub fn of(trace: TraceId, numbers: [u64; 2]) -> Self {
        let [high, low] = [&trace.0[..8], &trace.0[8..]].map(number);
        let mut mixed = 0;
        for part in [high, low, numbers[0], numbers[1]] {
            mixed = scatter(mixed ^ part);
        }
        Self(mixed.max(1).to_be_bytes())
    }
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// A step of `SplitMix64`: every bit of the answer depends on every bit of the question.
const fn scatter(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// Where in which trace something happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    id: TraceId,
    span: SpanId,
    flags: u8,
    state: Option<Arc<str>>,
}

impl Trace {
    /// A trace that begins here, and that is recorded.
    pub fn begin(id: TraceId, span: SpanId) -> Self {
        Self { id, span, flags: SAMPLED, state: None }
    }

    /// What the headers of a request say, each as often as it came. A state that is invalid is left
    /// out; a parent that is invalid, or that came twice, is no trace.
    pub fn from_headers<'a>(
        mut parents: impl Iterator<Item = &'a [u8]>,
        states: impl Iterator<Item = &'a [u8]>,
    ) -> Option<Self> {
        let (parent, None) = (parents.next()?, parents.next()) else { return None };
        let trace = Self::from_parent(parent.trim_ascii())?;
        Some(Self { state: read_state(states).map(Arc::from), ..trace })
    }

    /// Reads a `traceparent`. Of a version that is not known yet, what the specification promises to
    /// stay where it is.
    fn from_parent(text: &[u8]) -> Option<Self> {
        let (known, rest) = text.split_at_checked(PARENT_BYTES)?;
        let [version] = hex(&known[..2])?;
        let whole = match version {
            0 => rest.is_empty(),
            0xff => false,
            1.. => rest.first().is_none_or(|byte| *byte == b'-'),
        };
        let dashes = [known[2], known[35], known[52]] == [b'-'; 3];
        if !whole || !dashes {
            return None;
        }
        let id = TraceId::new(hex(&known[3..35])?)?;
        let span: [u8; 8] = hex(&known[36..52])?;
        let [flags] = hex(&known[53..])?;
        let meant = if version == 0 { SAMPLED | RANDOM } else { SAMPLED };
        Some(Self {
            id,
            span: SpanId::new(u64::from_be_bytes(span))?,
            flags: flags & meant,
            state: None,
        })
    }

    pub const fn id(&self) -> TraceId {
        self.id
    }

    /// The span that what follows belongs to.
    pub const fn span(&self) -> SpanId {
        self.span
    }

    /// Whoever began it wants it recorded.
    pub const fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// As `traceparent` says it, in its lowest eight bits.
    pub const fn flags(&self) -> u8 {
        self.flags
    }

    pub fn state(&self) -> Option<&str> {
        self.state.as_deref()
    }

    /// The same trace within another span.
    #[must_use]
    pub fn child(&self, span: SpanId) -> Self {
        Self { span, ..self.clone() }
    }

    /// As the header says it.
    pub fn parent(&self) -> String {
        format!("00-{}-{}-{:02x}", self.id, self.span, self.flags)
    }
}

/// Joins the headers of this name. None, if there is nothing in them, or anything wrong with them.
fn read_state<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Option<String> {
    let mut state = String::new();
    let mut keys: Vec<&str> = Vec::new();
    for line in lines {
        for member in line.split(|byte| *byte == b',') {
            let member = std::str::from_utf8(member).ok()?.trim_matches([' ', '\t']);
            if member.is_empty() {
                continue;
            }
            let (key, value) = member.split_once('=')?;
            let sound = is_key(key) && is_value(value);
            if !sound || keys.contains(&key) || keys.len() == MAX_STATE_MEMBERS {
                return None;
            }
            keys.push(key);
            if !state.is_empty() {
                state.push(',');
            }
            state.push_str(member);
            if state.len() > MAX_STATE_BYTES {
                return None;
            }
        }
    }
    (!state.is_empty()).then_some(state)
}

fn is_key(text: &str) -> bool {
    let first = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    (1..=MAX_STATE_KEY_BYTES).contains(&text.len())
        && text.bytes().next().is_some_and(first)
        && text.bytes().all(|byte| first(byte) || b"_-*/@".contains(&byte))
}

fn is_value(text: &str) -> bool {
    (1..=MAX_STATE_VALUE_BYTES).contains(&text.len())
        && text.bytes().all(|byte| matches!(byte, b' '..=b'~') && !b",=".contains(&byte))
}

/// Lower case only, as the specification wants it.
fn hex<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    let (pairs, []) = digits.as_chunks::<2>() else { return None };
    if pairs.len() != N {
        return None;
    }
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(bytes)
}

/// The text is no trace context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected a W3C trace context: a traceparent, and a tracestate after a space")]
pub struct NoTrace;

/// As it is stored: the parent, and after a space the state if there is one.
impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{}-{}-{:02x}", self.id, self.span, self.flags)?;
        match &self.state {
            Some(state) => write!(f, " {state}"),
            None => Ok(()),
        }
    }
}

impl FromStr for Trace {
    type Err = NoTrace;

    fn from_str(text: &str) -> Result<Self, NoTrace> {
        let (parent, state) = match text.split_once(' ') {
            None => (text, None),
            Some((parent, state)) => (parent, Some(state)),
        };
        let trace = Self::from_parent(parent.as_bytes()).ok_or(NoTrace)?;
        let state = match state {
            None => None,
            Some(text) => Some(read_state([text.as_bytes()].into_iter()).ok_or(NoTrace)?),
        };
        Ok(Self { state: state.map(Arc::from), ..trace })
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", u64::from_be_bytes(self.0))
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl serde::Serialize for TraceId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl serde::Serialize for SpanId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests;
