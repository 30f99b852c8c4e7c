//! How a command answers: tables for people, JSON for programs, and nothing from outside that could
//! move a terminal's cursor.

use std::io::{self, Write};
use std::time::Duration;

use postrider_core::Timestamp;
use serde_json::Value;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// The longest cell of a table; more is cut with an ellipsis.
const MAX_CELL_CHARS: usize = 60;

/// The longest value of a page about one thing, which has its lines to itself.
const MAX_VALUE_CHARS: usize = 4_000;

/// Between two columns.
const GAP: &str = "  ";

#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct OutputArgs {
    /// JSON, for programs: what the API answered, one document, or one a line where there is no end
    #[arg(long)]
    json: bool,
}

/// Rows under headings, as wide as their longest cell.
#[derive(Debug)]
pub(crate) struct Table {
    headings: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

/// Whether there may be colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Style {
    colours: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Colour {
    Green,
    Yellow,
    Red,
    Grey,
    Bold,
}

impl OutputArgs {
    pub(crate) fn json(self) -> bool {
        self.json
    }

    /// The answer itself with --json, what `people` writes otherwise.
    pub(crate) fn show(
        self,
        answer: &Value,
        people: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if self.json {
            serde_json::to_writer_pretty(&mut out, answer)?;
            writeln!(out)?;
        } else {
            people(&mut out)?;
        }
        out.flush()
    }
}

impl Style {
    #[cfg(test)]
    pub(crate) const PLAIN: Self = Self { colours: false };

    /// Colours on a terminal, unless `NO_COLOR` is set to anything.
    pub(crate) fn of_stdout() -> Self {
        Self::on(&io::stdout())
    }

    /// The same for what is written beside the answer.
    pub(crate) fn of_stderr() -> Self {
        Self::on(&io::stderr())
    }

    fn on(stream: &impl io::IsTerminal) -> Self {
        // What a test writes is compared, wherever the test is run.
        let wanted = !cfg!(test) && std::env::var_os("NO_COLOR").is_none_or(|it| it.is_empty());
        Self { colours: wanted && stream.is_terminal() }
    }

    pub(crate) fn colours(self) -> bool {
        self.colours
    }

    pub(crate) fn paint(self, colour: Colour, text: &str) -> String {
        let code = match colour {
            Colour::Green => "32",
            Colour::Yellow => "33",
            Colour::Red => "31",
            Colour::Grey => "2",
            Colour::Bold => "1",
        };
        if self.colours { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

impl Table {
    pub(crate) fn new(headings: &[&'static str]) -> Self {
        Self { headings: headings.to_vec(), rows: Vec::new() }
    }

    /// A cell for each heading; they are made inert.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().map(|cell| inert(&cell)).collect());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub(crate) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        self.write_in(Style::of_stdout(), out)
    }

    fn write_in(&self, style: Style, out: &mut dyn Write) -> io::Result<()> {
        let widths: Vec<usize> = (self.headings.iter().enumerate())
            .map(|(column, heading)| {
                let cells = self.rows.iter().filter_map(|row| row.get(column));
                cells.map(|cell| cell.width()).fold(heading.width(), usize::max)
            })
            .collect();
        let bold = self.headings.iter().map(|heading| (*heading, Some(Colour::Bold)));
        write_line(out, style, &widths, bold)?;
        for row in &self.rows {
            let cells = row.iter().zip(&self.headings);
            let painted = cells.map(|(cell, heading)| (cell.as_str(), colour_of(heading, cell)));
            write_line(out, style, &widths, painted)?;
        }
        Ok(())
    }
}

fn write_line<'a>(
    out: &mut dyn Write,
    style: Style,
    widths: &[usize],
    cells: impl Iterator<Item = (&'a str, Option<Colour>)>,
) -> io::Result<()> {
    // Spaces are owed until something stands behind them, so that no line ends in any.
    let mut owed = String::new();
    for ((text, colour), width) in cells.zip(widths) {
        if !text.is_empty() {
            let painted =
                colour.map_or_else(|| text.to_owned(), |colour| style.paint(colour, text));
            write!(out, "{owed}{painted}")?;
            owed.clear();
        }
        owed.push_str(&" ".repeat(width.saturating_sub(text.width())));
        owed.push_str(GAP);
    }
    writeln!(out)
}

/// What is said under these headings are words of ours, some of which are good news and some bad.
fn colour_of(heading: &str, cell: &str) -> Option<Colour> {
    if !matches!(heading, "state" | "status") {
        return None;
    }
    match cell {
        "active" | "delivered" | "completed" | "connected" | "live" | "done" => Some(Colour::Green),
        "paused" | "retrying" | "rate limited" | "running" => Some(Colour::Yellow),
        "disabled" | "failed" | "dead" | "revoked" | "expired" | "gone" => Some(Colour::Red),
        "cancelled" | "offline" | "deleted" => Some(Colour::Grey),
        _ => None,
    }
}

/// What there is to know of one thing: a name and a value a line, the values aligned and made inert.
pub(crate) fn pairs<'a>(
    out: &mut dyn Write,
    pairs: impl IntoIterator<Item = (&'a str, String)>,
) -> io::Result<()> {
    let pairs: Vec<_> = pairs.into_iter().collect();
    let width = pairs.iter().map(|(name, _)| name.width()).max().unwrap_or(0);
    let style = Style::of_stdout();
    for (name, value) in pairs {
        let value = inert_to(&value, MAX_VALUE_CHARS);
        let cells = [(name, Some(Colour::Grey)), (value.as_str(), None)];
        write_line(out, style, &[width, 0], cells.into_iter())?;
    }
    Ok(())
}

/// A value of the API as a cell: text without its quotes, nothing for null, the rest as JSON.
pub(crate) fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(list) => list.iter().map(cell).collect::<Vec<_>>().join(", "),
        Value::Bool(_) | Value::Number(_) | Value::Object(_) => value.to_string(),
    }
}

/// A time of the API for people: `2026-11-16 14:02:10 (3 min ago)`, in UTC. What is no time stays as
/// it is, and is empty where there is none.
pub(crate) fn moment(time: &Value, now: Timestamp) -> String {
    let text = cell(time);
    let Ok(at) = text.parse::<Timestamp>() else { return text };
    format!("{} ({})", clock(at), relative(at, now))
}

/// `2026-11-16 14:02:10`, in UTC.
pub(crate) fn clock(at: Timestamp) -> String {
    let text = at.to_string().replace('T', " ");
    text.split('.').next().unwrap_or_default().to_owned()
}

/// `3 min ago`, or `in 3 min`.
pub(crate) fn relative(at: Timestamp, now: Timestamp) -> String {
    let (past, ahead) = (now.since(at), at.since(now));
    if past.max(ahead) < Duration::from_secs(1) {
        "just now".to_owned()
    } else if ahead.is_zero() {
        format!("{} ago", rough(past))
    } else {
        format!("in {}", rough(ahead))
    }
}

/// A span by its largest unit alone.
fn rough(span: Duration) -> String {
    const MINUTE: u64 = 60;
    const HOUR: u64 = 60 * MINUTE;
    const DAY: u64 = 24 * HOUR;
    match span.as_secs() {
        seconds @ 0..MINUTE => format!("{seconds} s"),
        seconds @ MINUTE..HOUR => format!("{} min", seconds / MINUTE),
        seconds @ HOUR..DAY => format!("{} h", seconds / HOUR),
        seconds @ DAY.. => format!("{} d", seconds / DAY),
    }
}

/// Whether what went wrong is that nobody reads any further, which is no news: `… | head`. What
/// another program broke off has a story around it.
pub(crate) fn is_unread(error: &anyhow::Error) -> bool {
    let bare = error.chain().count() == 1;
    let broken = |error: &io::Error| error.kind() == io::ErrorKind::BrokenPipe;
    bare && error.downcast_ref().is_some_and(broken)
}

/// Text from outside on one line: controls made visible, cut where a cell ends.
pub(crate) fn inert(text: &str) -> String {
    inert_to(text, MAX_CELL_CHARS)
}

/// The same, cut after so many characters.
pub(crate) fn inert_to(text: &str, max_chars: usize) -> String {
    let mut shown = String::new();
    let mut length = 0;
    for char in text.chars() {
        let written =
            if obeyed(char) { char.escape_unicode().to_string() } else { char.to_string() };
        length += written.chars().count();
        if length > max_chars {
            shown.push('…');
            break;
        }
        shown.push_str(&written);
    }
    shown
}

/// Whether a terminal would do something at this character but show it: controls, what turns the
/// direction of text around, breaks of lines, tags, and what takes no room and so hides.
fn obeyed(char: char) -> bool {
    let of_direction = matches!(char, '\u{61c}' | '\u{200e}' | '\u{200f}'
        | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let of_lines = matches!(char, '\u{2028}' | '\u{2029}');
    let hidden = matches!(char, '\u{ad}' | '\u{180e}' | '\u{200b}'..='\u{200d}'
        | '\u{2060}'..='\u{2064}' | '\u{206a}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e007f}');
    char.is_control() || of_direction || of_lines || hidden || char.width().is_none()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn written(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> String {
        let mut out = Vec::new();
        write(&mut out).expect("memory can be written to");
        String::from_utf8(out).expect("text")
    }

    fn sample() -> Table {
        let mut table = Table::new(&["id", "name", "state"]);
        table.row(["ep_1", "日本", "active"].map(str::to_owned));
        table.row(["ep_20", "e\u{301}te", ""].map(str::to_owned));
        table
    }

    #[test]
    fn columns_are_as_wide_as_they_look_and_no_line_ends_in_a_space() {
        let expected = "id     name  state\nep_1   日本  active\nep_20  e\u{301}te\n";
        assert_eq!(written(|out| sample().write(out)), expected);
    }

    #[test]
    fn colours_add_nothing_to_the_width() {
        let shown = written(|out| sample().write_in(Style { colours: true }, out));
        assert!(shown.contains("\x1b[1mstate\x1b[0m\n"), "{shown:?}");
        assert!(shown.contains("ep_1   日本  \x1b[32mactive\x1b[0m\n"), "{shown:?}");
        let mut plain = shown;
        for code in ["\x1b[0m", "\x1b[1m", "\x1b[32m"] {
            plain = plain.replace(code, "");
        }
        assert_eq!(plain, written(|out| sample().write_in(Style { colours: false }, out)));
    }

    #[test]
    fn text_from_outside_moves_nothing() {
        for (text, shown) in [
            ("plain – ünïcode 日本", "plain – ünïcode 日本"),
            ("a\nb", "a\\u{a}b"),
            ("\x1b[2Jgone", "\\u{1b}[2Jgone"),
            ("\u{9b}31m", "\\u{9b}31m"),
            ("a\u{202e}b", "a\\u{202e}b"),
            ("a\u{2066}b\u{200b}c\u{feff}", "a\\u{2066}b\\u{200b}c\\u{feff}"),
            ("a\u{2028}b\u{e0041}", "a\\u{2028}b\\u{e0041}"),
        ] {
            assert_eq!(inert(text), shown);
        }
        for long in ["x".repeat(500), "\x1b".repeat(500), "日".repeat(500)] {
            let shown = inert(&long);
            assert!(shown.chars().count() <= MAX_CELL_CHARS + 1, "{shown}");
            assert!(shown.ends_with('…'), "{shown}");
        }
        assert_eq!(inert(&"x".repeat(MAX_CELL_CHARS)), "x".repeat(MAX_CELL_CHARS));
        let shown = written(|out| pairs(out, [("name", "a\nstate  active\x1b[A".to_owned())]));
        assert_eq!(shown, "name  a\\u{a}state  active\\u{1b}[A\n");
    }

    #[test]
    fn a_page_about_one_thing_is_aligned() {
        let shown = written(|out| {
            pairs(
                out,
                [("id", "ep_1"), ("created", "now"), ("name", "")].map(|(n, v)| (n, v.to_owned())),
            )
        });
        assert_eq!(shown, "id       ep_1\ncreated  now\nname\n");
    }

    #[test]
    fn a_time_says_how_far_away_it_is() {
        let now: Timestamp = "2026-11-16T14:05:10Z".parse().expect("a time");
        for (time, shown) in [
            (json!("2026-11-16T14:02:10.123Z"), "2026-11-16 14:02:10 (2 min ago)"),
            (json!("2026-11-16T14:05:10.400Z"), "2026-11-16 14:05:10 (just now)"),
            (json!("2026-11-16T14:05:40Z"), "2026-11-16 14:05:40 (in 30 s)"),
            (json!("2026-11-16T12:00:00Z"), "2026-11-16 12:00:00 (2 h ago)"),
            (json!("2026-11-01T00:00:00Z"), "2026-11-01 00:00:00 (15 d ago)"),
            (json!("soon"), "soon"),
            (json!(null), ""),
        ] {
            assert_eq!(moment(&time, now), shown);
        }
    }

    #[test]
    fn a_cell_is_text_without_quotes() {
        for (value, shown) in [
            (json!("a"), "a"),
            (json!(null), ""),
            (json!(["a", 1]), "a, 1"),
            (json!({ "a": true }), r#"{"a":true}"#),
        ] {
            assert_eq!(cell(&value), shown);
        }
    }
}
