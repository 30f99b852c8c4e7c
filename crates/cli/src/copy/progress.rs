//! How a copy under way is shown: a bar on a terminal, a line now and then elsewhere; and how long
//! each table took.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use postrider_store::copy::{Phase, Progress};

/// Between two pictures of the bar.
const FRAME: Duration = Duration::from_millis(100);

/// Between two lines, where there is no terminal.
const LINE: Duration = Duration::from_secs(1);

/// The widest bar.
const MAX_BAR: usize = 40;

/// Assumed of a terminal that does not tell.
const COLUMNS: u16 = 80;

pub(crate) struct Meter {
    terminal: bool,
    started: Instant,
    shown: Option<Instant>,
    /// When the last word came, and how many rows there were then.
    last: (Instant, u64),
    /// How many there were when this phase began.
    first_rows: u64,
    phase: Phase,
    /// How many rows have been copied, by this run and those before it.
    pub(crate) copied: u64,
    pub(crate) times: Vec<Time>,
    pub(crate) checking: Duration,
}

/// What was copied of a table by this run, and how long it took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Time {
    pub(crate) table: &'static str,
    pub(crate) rows: u64,
    pub(crate) took: Duration,
}

impl Meter {
    /// `rows` are there already.
    pub(crate) fn start(rows: u64) -> Self {
        let now = Instant::now();
        Self {
            terminal: std::io::stderr().is_terminal(),
            started: now,
            shown: None,
            last: (now, rows),
            first_rows: rows,
            phase: Phase::Copying,
            copied: rows,
            times: Vec::new(),
            checking: Duration::ZERO,
        }
    }

    pub(crate) fn tell(&mut self, progress: &Progress) {
        let now = Instant::now();
        self.note(progress, now);
        let pause = if self.terminal { FRAME } else { LINE };
        let whole = progress.all_rows == progress.of_all;
        let due = self.shown.is_none_or(|shown| now.duration_since(shown) >= pause);
        if !due && !whole {
            return;
        }
        self.shown = Some(now);
        let spent = now.duration_since(self.started);
        let rate = rate(progress.all_rows.saturating_sub(self.first_rows), spent);
        let text = if self.terminal {
            format!("\r\x1b[2K{}", bar(progress, rate, columns()))
        } else {
            format!("{}\n", line(progress, rate))
        };
        // A copy goes on whether or not anybody sees it.
        let _unseen = std::io::stderr().lock().write_all(text.as_bytes());
    }

    fn note(&mut self, progress: &Progress, now: Instant) {
        if self.phase != progress.phase {
            // The bar begins anew, and so does the pace.
            self.clear();
            (self.phase, self.started, self.first_rows) = (progress.phase, self.last.0, 0);
            self.last.1 = 0;
        }
        let took = now.duration_since(self.last.0);
        let rows = progress.all_rows.saturating_sub(self.last.1);
        match progress.phase {
            Phase::Checking => self.checking += took,
            Phase::Copying => {
                self.copied = progress.all_rows;
                match self.times.last_mut() {
                    Some(time) if time.table == progress.table => {
                        time.rows += rows;
                        time.took += took;
                    }
                    Some(_) | None => self.times.push(Time { table: progress.table, rows, took }),
                }
            }
        }
        self.last = (now, progress.all_rows);
    }

    /// Takes the bar away, so that something else can be written.
    pub(crate) fn clear(&mut self) {
        if self.terminal && self.shown.take().is_some() {
            let _unseen = std::io::stderr().lock().write_all(b"\r\x1b[2K");
        }
    }
}

fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stderr());
    size.map_or(COLUMNS, |size| if size.ws_col == 0 { COLUMNS } else { size.ws_col }).into()
}

const fn doing(phase: Phase) -> &'static str {
    match phase {
        Phase::Copying => "copying",
        Phase::Checking => "checking",
    }
}

fn percent(progress: &Progress) -> u64 {
    progress.all_rows.min(progress.of_all) * 100 / progress.of_all.max(1)
}

/// One line no longer than `columns`.
fn bar(progress: &Progress, rate: u64, columns: usize) -> String {
    let left = progress.of_all.saturating_sub(progress.all_rows);
    let left = match left.checked_div(rate) {
        Some(seconds) if left > 0 => format!(", {} left", clock(seconds)),
        Some(_) | None => String::new(),
    };
    let head = format!("{} {:<12}", doing(progress.phase), progress.table);
    let tail = format!(
        "{:>3} %  {} of {} rows, {}/s{left}",
        percent(progress),
        grouped(progress.all_rows),
        grouped(progress.of_all),
        grouped(rate)
    );
    // The frame of the bar, the blanks around it, and the last column, which makes some terminals
    // begin another line.
    let room = columns.saturating_sub(head.len() + tail.len() + 6).min(MAX_BAR);
    let line = if room < 4 {
        format!("{head} {tail}")
    } else {
        let parts = usize::try_from(percent(progress)).unwrap_or(0) * room / 100;
        format!("{head} [{}{}] {tail}", "#".repeat(parts), "-".repeat(room - parts))
    };
    line.chars().take(columns.saturating_sub(1)).collect()
}

fn line(progress: &Progress, rate: u64) -> String {
    format!(
        "{} {}: {} of {} rows; of all tables {} of {} ({} %), {}/s",
        doing(progress.phase),
        progress.table,
        grouped(progress.rows),
        grouped(progress.of),
        grouped(progress.all_rows),
        grouped(progress.of_all),
        percent(progress),
        grouped(rate)
    )
}

/// Rows a second.
pub(crate) fn rate(rows: u64, took: Duration) -> u64 {
    let millis = took.as_millis().max(1);
    u64::try_from(u128::from(rows) * 1_000 / millis).unwrap_or(u64::MAX)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(table: &'static str, rows: u64, all_rows: u64) -> Progress {
        Progress {
            phase: Phase::Copying,
            table,
            rows,
            of: 1_000,
            all_rows,
            of_all: 2_000_000,
            bytes: 0,
        }
    }

    #[test]
    fn numbers_are_grouped_and_times_short() {
        let cases = [(0, "0"), (999, "999"), (1_000, "1,000"), (12_345_678, "12,345,678")];
        for (number, text) in cases {
            assert_eq!(grouped(number), text);
        }
        for (seconds, text) in [(0, "0 s"), (59, "59 s"), (61, "1 min 1 s"), (7_260, "2 h 1 min")] {
            assert_eq!(clock(seconds), text);
        }
        assert_eq!(rate(50_000, Duration::from_millis(500)), 100_000);
        assert_eq!(rate(5, Duration::ZERO), 5_000);
    }

    #[test]
    fn a_bar_fits_its_terminal_and_grows() {
        for columns in [0, 1, 10, 40, 79, 80, 200] {
            for all_rows in [0, 1, 1_000_000, 2_000_000, u64::MAX / 200] {
                let shown = bar(&progress("idempotency", 5, all_rows), 12_345, columns);
                assert!(shown.chars().count() < columns.max(1), "{columns}: {shown}");
            }
        }
        let filled = |all_rows| {
            let shown = bar(&progress("events", 5, all_rows), 0, 200);
            shown.chars().filter(|character| *character == '#').count()
        };
        assert_eq!([0, 1_000_000, 2_000_000].map(filled), [0, 20, 40]);
    }

    #[test]
    fn what_a_run_copied_is_told_apart_from_what_was_there() {
        let mut meter = Meter { terminal: false, ..Meter::start(100) };
        for (table, all_rows) in [("events", 150), ("events", 170), ("finished", 171)] {
            meter.note(&progress(table, 1, all_rows), Instant::now());
        }
        let checking = Progress { phase: Phase::Checking, ..progress("tenants", 1, 1) };
        meter.note(&checking, Instant::now());
        let times: Vec<_> = meter.times.iter().map(|time| (time.table, time.rows)).collect();
        assert_eq!(times, [("events", 70), ("finished", 1)]);
        assert_eq!(meter.copied, 171);
    }
}
