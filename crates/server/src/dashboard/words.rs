//! How pages write times, spans, counts, states and what came from outside.
//!
//! What is rendered as an element of its own is built of numbers and of words that are known here;
//! everything else is text, which templates escape.

use std::fmt::{self, Write as _};
use std::time::Duration;

use askama::filters::HtmlSafe;
use postrider_core::{State, Timestamp};

/// Outside text is cut here.
pub(crate) const MAX_INERT_BYTES: usize = 64 << 10;
/// Further away than this, a date says more than a number of days.
const MAX_RELATIVE: Duration = Duration::from_hours(24 * 60);
/// Between the groups of three digits: a narrow space that does not break.
const GROUP: char = '\u{202f}';

/// Something small, however often a template has borrowed it on its way here.
pub(crate) trait Plain<T: Copy> {
    fn plain(&self) -> T;
}

impl<T: Copy, U: Plain<T> + ?Sized> Plain<T> for &U {
    fn plain(&self) -> T {
        (**self).plain()
    }
}

macro_rules! plain {
    ($($kind:ty),*) => {
        $(impl Plain<$kind> for $kind {
            fn plain(&self) -> $kind {
                *self
            }
        })*
    };
}

plain!(Timestamp, Duration, State, u64, f64);

/// A moment: relative for people, exact for whoever points at it. `<time>` elements are kept up to
/// date by the page's script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Moment {
    pub(crate) at: Timestamp,
    pub(crate) now: Timestamp,
}

/// In a template: `{{ words::moment(delivery.created_at, now) }}`.
pub(crate) fn moment(at: impl Plain<Timestamp>, now: impl Plain<Timestamp>) -> Moment {
    Moment { at: at.plain(), now: now.plain() }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, now } = *self;
        write!(f, "<time datetime=\"{at}\" title=\"{}\">{}</time>", exact(at), relative(at, now))
    }
}

/// A time has nothing to escape, and neither have the words around it.
impl HtmlSafe for Moment {}

/// `2026-11-16 14:02:10.123 UTC`
pub(crate) fn exact(at: impl Plain<Timestamp>) -> String {
    at.plain().to_string().replacen('T', " ", 1).replacen('Z', " UTC", 1)
}

/// `3 min ago`, `in 20 s`: as the page's script writes it too.
pub(crate) fn relative(at: impl Plain<Timestamp>, now: impl Plain<Timestamp>) -> String {
    let (at, now) = (at.plain(), now.plain());
    let (past, future) = (now.since(at), at.since(now));
    let away = past.max(future);
    if away >= MAX_RELATIVE {
        let exact = exact(at);
        return exact.split(' ').next().unwrap_or(&exact).to_owned();
    }
    let seconds = away.as_secs();
    let (number, unit) = match seconds {
        0 => return "now".to_owned(),
        1..60 => (seconds, "s"),
        60..3_600 => (seconds / 60, "min"),
        3_600..172_800 => (seconds / 3_600, "h"),
        172_800.. => (seconds / 86_400, "d"),
    };
    if past > future { format!("{number} {unit} ago") } else { format!("in {number} {unit}") }
}

/// `340 ms`, `1.2 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`: the two largest parts.
pub(crate) fn span(of: impl Plain<Duration>) -> String {
    let of = of.plain();
    let (millis, seconds) = (of.as_millis(), of.as_secs());
    let two = |large: u64, name: &str, small: u64, part: &str| match small {
        0 => format!("{large} {name}"),
        small => format!("{large} {name} {small} {part}"),
    };
    match seconds {
        0 => format!("{millis} ms"),
        1..10 if millis % 1_000 >= 100 => format!("{seconds}.{} s", millis % 1_000 / 100),
        1..60 => format!("{seconds} s"),
        60..3_600 => two(seconds / 60, "min", seconds % 60, "s"),
        3_600..86_400 => two(seconds / 3_600, "h", seconds % 3_600 / 60, "min"),
        86_400.. => two(seconds / 86_400, "d", seconds % 86_400 / 3_600, "h"),
    }
}

/// The same of a number of milliseconds.
pub(crate) fn millis(count: impl Plain<u64>) -> String {
    span(Duration::from_millis(count.plain()))
}

/// `1 234 567`
pub(crate) fn count(number: impl Plain<u64>) -> String {
    let digits = number.plain().to_string();
    let mut text = String::with_capacity(digits.len() * 2);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(GROUP);
        }
        text.push(digit);
    }
    text
}

/// `1 delivery`, `2 deliveries`.
pub(crate) fn plural(number: impl Plain<u64>, one: &str, many: &str) -> String {
    let number = number.plain();
    format!("{} {}", count(number), if number == 1 { one } else { many })
}

/// `640 B`, `1.2 KiB`, `3.0 MiB`.
pub(crate) fn bytes(number: impl Plain<u64>) -> String {
    let number = number.plain();
    let (unit, name) = match number {
        0..1_024 => return format!("{number} B"),
        1_024..1_048_576 => (1_024, "KiB"),
        1_048_576..1_073_741_824 => (1_048_576, "MiB"),
        1_073_741_824.. => (1_073_741_824, "GiB"),
    };
    format!("{}.{} {name}", number / unit, number % unit * 10 / unit)
}

/// `99.98 %` of a share between 0 and 1; never rounded up to all.
pub(crate) fn percent(share: impl Plain<f64>) -> String {
    let share = share.plain().clamp(0.0, 1.0);
    if share >= 1.0 {
        return "100 %".to_owned();
    }
    format!("{:.2} %", (share * 10_000.0).floor() / 100.0)
}

/// A state as a badge: its word, and a colour that the word does not need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Badge {
    state: State,
}

pub(crate) fn badge(state: impl Plain<State>) -> Badge {
    Badge { state: state.plain() }
}

impl fmt::Display for Badge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.as_str();
        write!(f, "<span class=\"badge state-{state}\">{}</span>", state.replace('_', " "))
    }
}

/// The words of states have nothing to escape.
impl HtmlSafe for Badge {}

/// Text from outside, made harmless to look at: characters that steer a terminal or the order of
/// writing are shown as what they are, and there is no more of it than a page can bear. It is still
/// text, which the template escapes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Inert {
    text: String,
    bytes: usize,
    shown: usize,
}

pub(crate) fn inert(outside: impl AsRef<[u8]>) -> Inert {
    inert_to(outside, MAX_INERT_BYTES)
}

/// The same, cut earlier: for a cell of a table.
pub(crate) fn inert_to(outside: impl AsRef<[u8]>, max_bytes: usize) -> Inert {
    let all = outside.as_ref();
    let mut shown = all.len().min(max_bytes);
    // Not in the middle of a character.
    while shown < all.len() && shown > 0 && max_bytes - shown < 4 && is_continuation(all[shown]) {
        shown -= 1;
    }
    let mut text = String::with_capacity(shown);
    for chunk in all[..shown].utf8_chunks() {
        for c in chunk.valid().chars() {
            push_visibly(&mut text, c);
        }
        for byte in chunk.invalid() {
            // Writing to a String cannot fail.
            let _ = write!(text, "\\x{byte:02X}");
        }
    }
    Inert { text, bytes: all.len(), shown }
}

/// The same as one short line of at most so many characters.
pub(crate) fn line(outside: impl AsRef<[u8]>, max_chars: usize) -> String {
    // A character has at most four bytes, and one more shows that there is more.
    let inert = inert_to(outside, max_chars.saturating_mul(4).saturating_add(4));
    let mut chars = inert.text.chars().map(|c| if c == '\n' || c == '\t' { ' ' } else { c });
    let mut line: String = chars.by_ref().take(max_chars).collect();
    if chars.next().is_some() || inert.is_cut() {
        line.push('…');
    }
    line
}

impl Inert {
    pub(crate) fn is_cut(&self) -> bool {
        self.shown < self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// What to say below it where it is cut.
    pub(crate) fn note(&self) -> String {
        format!("the first {} of {}", bytes(self.shown as u64), bytes(self.bytes as u64))
    }
}

impl fmt::Display for Inert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

const fn is_continuation(byte: u8) -> bool {
    byte & 0b1100_0000 == 0b1000_0000
}

fn push_visibly(text: &mut String, c: char) {
    match c {
        '\n' | '\t' => text.push(c),
        // A line that ends as on Windows ends all the same.
        '\r' => text.push('\u{240d}'),
        '\0'..='\u{1f}' => {
            // The pictures of control characters stand in their order.
            text.push(char::from_u32(0x2400 + u32::from(c)).unwrap_or(char::REPLACEMENT_CHARACTER));
        }
        '\u{7f}' => text.push('\u{2421}'),
        c if is_invisible(c) => {
            let _ = write!(text, "\\u{{{:04X}}}", u32::from(c));
        }
        c => text.push(c),
    }
}

/// What would change how other characters are shown, or cannot be seen where it matters: C1 controls,
/// what sets the direction of writing, spaces without width, tags and variation selectors.
const fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{80}'..='\u{9f}'
        | '\u{ad}'
        | '\u{61c}'
        | '\u{180e}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{feff}'
        | '\u{fff0}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_123);

    #[test]
    fn a_moment_is_relative_with_the_exact_time_beside_it() {
        let shown = moment(NOW.minus(Duration::from_secs(200)), NOW).to_string();
        assert_eq!(
            shown,
            "<time datetime=\"2027-01-15T07:56:40.123Z\" title=\"2027-01-15 07:56:40.123 UTC\">3 min \
             ago</time>"
        );
    }

    #[test]
    fn how_far_away_a_moment_is_takes_one_unit() {
        for (seconds, past, future) in [
            (0, "now", "now"),
            (1, "1 s ago", "in 1 s"),
            (59, "59 s ago", "in 59 s"),
            (60, "1 min ago", "in 1 min"),
            (3_599, "59 min ago", "in 59 min"),
            (3_600, "1 h ago", "in 1 h"),
            (172_799, "47 h ago", "in 47 h"),
            (172_800, "2 d ago", "in 2 d"),
            (59 * 86_400, "59 d ago", "in 59 d"),
            (60 * 86_400, "2026-11-16", "2027-03-16"),
        ] {
            let away = Duration::from_secs(seconds);
            assert_eq!(relative(NOW.minus(away), NOW), past);
            assert_eq!(relative(NOW.plus(away), NOW), future);
        }
    }

    #[test]
    fn spans_have_their_two_largest_parts() {
        for (millis, text) in [
            (0, "0 ms"),
            (999, "999 ms"),
            (1_000, "1 s"),
            (1_250, "1.2 s"),
            (59_999, "59 s"),
            (200_000, "3 min 20 s"),
            (3_600_000, "1 h"),
            (7_500_000, "2 h 5 min"),
            (86_400_000 * 3 + 3_600_000 * 4, "3 d 4 h"),
        ] {
            assert_eq!(span(Duration::from_millis(millis)), text);
        }
    }

    #[test]
    fn numbers_are_readable() {
        assert_eq!(count(999), "999");
        assert_eq!(count(1_000), "1\u{202f}000");
        assert_eq!(count(1_234_567), "1\u{202f}234\u{202f}567");
        assert_eq!(plural(1, "delivery", "deliveries"), "1 delivery");
        assert_eq!(plural(0, "delivery", "deliveries"), "0 deliveries");
        assert_eq!(bytes(1_023), "1023 B");
        assert_eq!(bytes(1_280), "1.2 KiB");
        assert_eq!(bytes(64 << 20), "64.0 MiB");
        assert_eq!(percent(1.0), "100 %");
        assert_eq!(percent(0.99999), "99.99 %");
        assert_eq!(percent(0.5), "50.00 %");
    }

    #[test]
    fn a_badge_has_the_word_of_its_state() {
        assert_eq!(
            badge(State::InFlight).to_string(),
            "<span class=\"badge state-in_flight\">in flight</span>"
        );
    }

    #[test]
    fn outside_text_steers_nothing() {
        for (outside, shown) in [
            (&b"plain\n\ttext"[..], "plain\n\ttext"),
            (b"\x1b[31mred", "\u{241b}[31mred"),
            (b"a\rb\0c\x7f", "a\u{240d}b\u{2400}c\u{2421}"),
            (b"\xff\xfe ok \xc3", "\\xFF\\xFE ok \\xC3"),
            ("a\u{202e}b\u{200b}c\u{feff}".as_bytes(), "a\\u{202E}b\\u{200B}c\\u{FEFF}"),
            ("\u{9b}31m".as_bytes(), "\\u{009B}31m"),
            ("<b>ü €".as_bytes(), "<b>ü €"),
        ] {
            assert_eq!(inert(outside).as_str(), shown);
        }
    }

    #[test]
    fn long_text_is_cut_between_characters_and_says_so() {
        let long = "€".repeat(MAX_INERT_BYTES);
        let cut = inert(&long);
        assert!(cut.is_cut());
        assert!(cut.as_str().chars().all(|c| c == '€'), "cut within a character");
        assert!(cut.as_str().len() > MAX_INERT_BYTES - 4);
        assert_eq!(cut.note(), "the first 63.9 KiB of 192.0 KiB");
        let whole = inert("a".repeat(MAX_INERT_BYTES));
        assert!(!whole.is_cut());
        assert!(inert("").is_empty());
    }

    #[test]
    fn a_line_is_one_and_short() {
        assert_eq!(line("two\nlines", 20), "two lines");
        assert_eq!(line("abcdef", 3), "abc…");
        assert_eq!(line("abc", 3), "abc");
        assert_eq!(line("€€€€", 3), "€€€…");
        assert_eq!(line("a".repeat(1 << 20), 3), "aaa…");
    }
}
