//! Messages for people: an event as one or two lines of text, in the JSON that a chat takes.
//!
//! What others wrote (names, errors, types) is shown, never obeyed: it cannot format, link, mention
//! anybody, break the line, or turn the text around. A message is a function of its event alone, so
//! that every attempt carries the same bytes.

use bytes::Bytes;
use postrider_core::endpoint::Format;
use postrider_core::pattern::is_reserved;
use postrider_store::record::Event;
use serde::Deserialize;

use crate::notices::NoticeKind;

/// The longest text, in characters. Each part that others wrote has a bound of its own; together
/// with our own words they stay below this.
#[cfg(test)]
const MAX_TEXT_CHARS: usize = 1_500;
const MAX_NAME_CHARS: usize = 200;
const MAX_TYPE_CHARS: usize = 260;
const MAX_ID_CHARS: usize = 40;
const MAX_DETAIL_CHARS: usize = 700;

const CUT: char = '…';
/// Nothing to see; after `@` it keeps a chat from reading a mention.
const ZERO_WIDTH_SPACE: char = '\u{200b}';

/// The body of a request that brings an event to people.
pub(crate) fn body(format: &Format, event: &Event) -> Bytes {
    let message = match format {
        Format::Slack => serde_json::json!({ "text": text(Style::Slack, event) }),
        Format::Telegram { chat_id } => {
            serde_json::json!({ "chat_id": chat_id, "text": text(Style::Plain, event) })
        }
    };
    message.to_string().into()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Style {
    /// Text in which some characters have a meaning.
    Slack,
    /// Text in which none has.
    Plain,
}

/// What a notice says, as far as a message uses it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Told {
    kind: String,
    delivery_id: Option<String>,
    event_id: Option<String>,
    endpoint_id: Option<String>,
    endpoint_name: Option<String>,
    source_id: Option<String>,
    hub_id: Option<String>,
    attempts: Option<u32>,
    reason: Option<String>,
    last_error: Option<String>,
    detail: Option<String>,
    /// Of a test.
    message: Option<String>,
}

fn text(style: Style, event: &Event) -> String {
    let mut line = Line { style, text: String::new() };
    // Only the gateway makes events of these types, so what they say is in its words.
    let told = is_reserved(&event.kind)
        .then(|| serde_json::from_slice::<Told>(&event.body).ok())
        .flatten();
    match told {
        Some(told) if told.kind.is_empty() && told.message.is_some() => {
            line.quote(&told.message.unwrap_or_default(), MAX_DETAIL_CHARS);
        }
        Some(told) if !told.kind.is_empty() => told.write(&mut line),
        Some(_) | None => {
            line.say("Event ");
            line.quote(&event.kind, MAX_TYPE_CHARS);
            line.say(" ");
            line.say(&event.id.to_string());
        }
    }
    line.text
}

impl Told {
    fn write(&self, line: &mut Line) {
        match NoticeKind::ALL.into_iter().find(|kind| kind.as_str() == self.kind) {
            Some(kind) => line.say(title(kind)),
            None => line.quote(&self.kind, MAX_TYPE_CHARS),
        }
        let mut separator = ": ";
        for (word, id) in [("delivery", &self.delivery_id), ("event", &self.event_id)] {
            if let Some(id) = id {
                line.say(&format!("{separator}{word} "));
                line.plain(id, MAX_ID_CHARS);
                separator = " of ";
            }
        }
        if let Some(id) = &self.endpoint_id {
            line.say(if self.delivery_id.is_some() { " to endpoint " } else { ": endpoint " });
            if let Some(name) = &self.endpoint_name {
                line.quote(name, MAX_NAME_CHARS);
                line.say(" ");
            }
            line.plain(id, MAX_ID_CHARS);
        }
        if let Some(id) = &self.source_id {
            line.say(": source ");
            line.plain(id, MAX_ID_CHARS);
        }
        if let Some(id) = &self.hub_id {
            line.say(": hub ");
            line.plain(id, MAX_ID_CHARS);
        }
        match self.attempts {
            Some(1) => line.say(", 1 attempt"),
            Some(attempts) => line.say(&format!(", {attempts} attempts")),
            None => {}
        }
        if let Some(reason) = &self.reason {
            line.say(", ");
            line.plain(reason, MAX_ID_CHARS);
        }
        if let Some(said) = self.last_error.as_ref().or(self.detail.as_ref()) {
            line.say("\n");
            line.quote(said, MAX_DETAIL_CHARS);
        }
    }
}

const fn title(kind: NoticeKind) -> &'static str {
    match kind {
        NoticeKind::Delivered => "Delivered",
        NoticeKind::RetryScheduled => "Attempt failed, to be tried again",
        NoticeKind::Failed => "Refused for good",
        NoticeKind::Dead => "Dead letter",
        NoticeKind::Cancelled => "Cancelled",
        NoticeKind::EndpointDisabled => "Endpoint disabled",
        NoticeKind::BreakerOpened => "Endpoint keeps failing, sending stopped",
        NoticeKind::BreakerClosed => "Endpoint answers again",
        NoticeKind::SignatureFailed => "Signature refused",
        NoticeKind::HubConnected => "Hub connected",
        NoticeKind::HubDisconnected => "Hub disconnected",
    }
}

/// A text in the making.
struct Line {
    style: Style,
    text: String,
}

impl Line {
    /// Our own words.
    fn say(&mut self, words: &str) {
        self.text.push_str(words);
    }

    /// Somebody else's words, marked as such where the style has a mark: within it, chats neither
    /// format nor link.
    fn quote(&mut self, words: &str, max_chars: usize) {
        match self.style {
            Style::Slack => {
                self.text.push('`');
                self.plain(words, max_chars - 2);
                self.text.push('`');
            }
            Style::Plain => self.plain(words, max_chars),
        }
    }

    /// Somebody else's words, made harmless; `max_chars` is what they may become.
    fn plain(&mut self, words: &str, max_chars: usize) {
        let mut room = max_chars.saturating_sub(1);
        for char in words.chars().filter(|char| !is_hostile(*char)) {
            let defused = [char, ZERO_WIDTH_SPACE];
            let written: &[char] = match (self.style, char) {
                (Style::Slack, '<') => &['&', 'l', 't', ';'],
                (Style::Slack, '>') => &['&', 'g', 't', ';'],
                (Style::Slack, '&') => &['&', 'a', 'm', 'p', ';'],
                (Style::Slack, '`') => &['\''],
                (Style::Slack, '@') => &defused,
                (Style::Slack | Style::Plain, _) => &defused[..1],
            };
            let Some(left) = room.checked_sub(written.len()) else {
                self.text.push(CUT);
                return;
            };
            room = left;
            self.text.extend(written);
        }
    }
}

/// Characters that do something else than be seen: control characters, and those that order the
/// directions of text or hide.
fn is_hostile(char: char) -> bool {
    char.is_control()
        || matches!(
            char,
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

#[cfg(test)]
mod tests;
