//! How long work is shown: a bar on a terminal's standard error, a line now and then elsewhere.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

/// Between two pictures of the bar.
const FRAME: Duration = Duration::from_millis(100);

/// Between two lines, where there is no terminal.
const LINE: Duration = Duration::from_secs(1);

/// The widest bar.
const MAX_BAR: usize = 40;

/// Assumed of a terminal that does not tell.
const COLUMNS: u16 = 80;

/// Work of which is known how much has been done, and perhaps how much there is.
#[derive(Debug)]
pub(crate) struct Bar {
    board: Board,
    doing: &'static str,
    unit: Unit,
    started: Instant,
}

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Such as `events`.
    Things(&'static str),
    Bytes,
}

impl Bar {
    /// `doing` is a word such as `copying`.
    pub(crate) fn start(doing: &'static str, unit: Unit) -> Self {
        Self { board: Board::new(), doing, unit, started: Instant::now() }
    }

    /// Says how far it is; `of` is none where nobody knows.
    pub(crate) fn tell(&mut self, done: u64, of: Option<u64>) {
        let now = Instant::now();
        if !self.board.is_due(now, of == Some(done)) {
            return;
        }
        let rate = rate(done, now.duration_since(self.started));
        let text = match self.board.columns() {
            Some(columns) => self.picture(done, of, rate, columns),
            None => format!("{}: {}", self.doing, self.words(done, of, rate)),
        };
        self.board.write(&text);
    }

    /// Takes the bar away, so that something else can be written.
    pub(crate) fn clear(&mut self) {
        self.board.clear();
    }

    fn picture(&self, done: u64, of: Option<u64>, rate: u64, columns: usize) -> String {
        let Some(of) = of else {
            let text = format!("{} {}", self.doing, self.words(done, None, rate));
            return text.chars().take(columns.saturating_sub(1)).collect();
        };
        let percent = percent(done, of);
        let left = left(of.saturating_sub(done), rate);
        let tail = format!("{percent:>3} %  {}{left}", self.words(done, Some(of), rate));
        picture(self.doing, percent, &tail, columns)
    }

    fn words(&self, done: u64, of: Option<u64>, rate: u64) -> String {
        let amount = |number: u64| match self.unit {
            Unit::Things(_) => grouped(number),
            Unit::Bytes => size(number),
        };
        let name = match self.unit {
            Unit::Things(name) => format!(" {name}"),
            Unit::Bytes => String::new(),
        };
        let of = of.map(|of| format!(" of {}", amount(of))).unwrap_or_default();
        format!("{}{of}{name}, {}/s", amount(done), amount(rate))
    }
}

/// The line on standard error that is written again and again, or the lines.
#[derive(Debug)]
pub(crate) struct Board {
    terminal: bool,
    shown: Option<Instant>,
}

impl Board {
    pub(crate) fn new() -> Self {
        Self { terminal: std::io::stderr().is_terminal(), shown: None }
    }

    /// Whether something should be shown: not too often, but the end always.
    pub(crate) fn is_due(&mut self, now: Instant, whole: bool) -> bool {
        let pause = if self.terminal { FRAME } else { LINE };
        let due = self.shown.is_none_or(|shown| now.duration_since(shown) >= pause);
        if due || whole {
            self.shown = Some(now);
        }
        due || whole
    }

    /// How wide the terminal is; none if there is no terminal.
    pub(crate) fn columns(&self) -> Option<usize> {
        if !self.terminal {
            return None;
        }
        let size = rustix::termios::tcgetwinsize(std::io::stderr());
        let columns = size.map_or(COLUMNS, |size| size.ws_col);
        Some(if columns == 0 { COLUMNS } else { columns }.into())
    }

    pub(crate) fn write(&self, text: &str) {
        let text = if self.terminal { format!("\r\x1b[2K{text}") } else { format!("{text}\n") };
        // The work goes on whether or not anybody sees it.
        let _unseen = std::io::stderr().lock().write_all(text.as_bytes());
    }

    pub(crate) fn clear(&mut self) {
        if self.terminal && self.shown.take().is_some() {
            let _unseen = std::io::stderr().lock().write_all(b"\r\x1b[2K");
        }
    }
}

/// One line no longer than `columns`: what is done, a bar, and the rest.
pub(crate) fn picture(head: &str, percent: u64, tail: &str, columns: usize) -> String {
    // The frame of the bar, the blanks around it, and the last column, which makes some terminals
    // begin another line.
    let room = columns.saturating_sub(head.len() + tail.len() + 6).min(MAX_BAR);
    let line = if room < 4 {
        format!("{head} {tail}")
    } else {
        let parts = usize::try_from(percent).unwrap_or(0).min(100) * room / 100;
        format!("{head} [{}{}] {tail}", "#".repeat(parts), "-".repeat(room - parts))
    };
    line.chars().take(columns.saturating_sub(1)).collect()
}

/// `, 3 min 20 s left`, where that can be told.
pub(crate) fn left(left: u64, rate: u64) -> String {
    match left.checked_div(rate) {
        Some(seconds) if left > 0 => format!(", {} left", clock(seconds)),
        Some(_) | None => String::new(),
    }
}

pub(crate) fn percent(done: u64, of: u64) -> u64 {
    let share = u128::from(done.min(of)) * 100 / u128::from(of.max(1));
    u64::try_from(share).unwrap_or(100)
}

/// How many a second.
pub(crate) fn rate(done: u64, took: Duration) -> u64 {
    let millis = took.as_millis().max(1);
    u64::try_from(u128::from(done) * 1_000 / millis).unwrap_or(u64::MAX)
}

fn clock(seconds: u64) -> String {
    match (seconds / 3_600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (hours, minutes, _) => format!("{hours} h {minutes} min"),
    }
}

/// A number as people read it: `1,234,567`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number of bytes as people read it: `12.3 MiB`.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1_024 {
        return format!("{bytes} B");
    }
    // In tenths of the unit, so that no floating point is needed for one digit behind the point.
    let mut tenths = u128::from(bytes) * 10 / 1_024;
    let mut unit = 0;
    while tenths >= 10_240 && unit + 1 < UNITS.len() {
        tenths /= 1_024;
        unit += 1;
    }
    format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_and_times_and_sizes_short() {
        let cases = [(0, "0"), (999, "999"), (1_000, "1,000"), (12_345_678, "12,345,678")];
        for (number, text) in cases {
            assert_eq!(grouped(number), text);
        }
        for (seconds, text) in [(0, "0 s"), (59, "59 s"), (61, "1 min 1 s"), (7_260, "2 h 1 min")] {
            assert_eq!(clock(seconds), text);
        }
        for (bytes, text) in [
            (0, "0 B"),
            (1_023, "1023 B"),
            (1_024, "1.0 KiB"),
            (1_048_575, "1023.9 KiB"),
            (5 << 20, "5.0 MiB"),
            (3 << 29, "1.5 GiB"),
            (u64::MAX, "16777215.9 TiB"),
        ] {
            assert_eq!(size(bytes), text);
        }
        assert_eq!(rate(50_000, Duration::from_millis(500)), 100_000);
        assert_eq!(rate(5, Duration::ZERO), 5_000);
        for (done, of, expected) in [(0, 0, 0), (1, 3, 33), (7, 7, 100), (9, 7, 100)] {
            assert_eq!(percent(done, of), expected);
        }
        assert_eq!(percent(u64::MAX, u64::MAX), 100);
    }

    #[test]
    fn a_bar_fits_its_terminal_and_grows() {
        for unit in [Unit::Bytes, Unit::Things("events")] {
            let bar = Bar { unit, ..Bar::start("copying", Unit::Bytes) };
            for columns in [0, 1, 10, 40, 79, 80, 200] {
                for (done, of) in [(0, None), (0, Some(0)), (7, Some(9)), (u64::MAX, None)] {
                    let shown = bar.picture(done, of, 12_345, columns);
                    assert!(shown.chars().count() < columns.max(1), "{columns}: {shown}");
                }
            }
            let filled = |done| {
                let shown = bar.picture(done, Some(200), 0, 200);
                shown.chars().filter(|character| *character == '#').count()
            };
            assert_eq!([0, 100, 200].map(filled), [0, 20, 40]);
        }
    }

    #[test]
    fn what_is_counted_is_named() {
        let things = Bar::start("sending", Unit::Things("events"));
        assert_eq!(things.words(5, Some(1_000), 20), "5 of 1,000 events, 20/s");
        assert_eq!(things.words(5, None, 20), "5 events, 20/s");
        let bytes = Bar::start("copying", Unit::Bytes);
        assert_eq!(bytes.words(512, Some(2_048), 1_024), "512 B of 2.0 KiB, 1.0 KiB/s");
    }

    #[test]
    fn the_end_is_always_shown() {
        let mut board = Board { terminal: false, shown: None };
        let now = Instant::now();
        assert!(board.is_due(now, false));
        assert!(!board.is_due(now, false));
        assert!(board.is_due(now, true));
        assert!(board.is_due(now + LINE, false));
    }
}
