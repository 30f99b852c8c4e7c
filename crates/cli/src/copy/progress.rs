//! How a copy under way is shown: a bar on a terminal, a line now and then elsewhere; and how long
//! each table took.

use std::time::{Duration, Instant};

use postrider_store::copy::{Phase, Progress};

use crate::progress::{Board, grouped, left, percent, picture, rate};

pub(crate) struct Meter {
    board: Board,
    started: Instant,
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
            board: Board::new(),
            started: now,
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
        if !self.board.is_due(now, progress.all_rows == progress.of_all) {
            return;
        }
        let spent = now.duration_since(self.started);
        let rate = rate(progress.all_rows.saturating_sub(self.first_rows), spent);
        self.board.write(&match self.board.columns() {
            Some(columns) => bar(progress, rate, columns),
            None => line(progress, rate),
        });
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
        self.board.clear();
    }
}

const fn doing(phase: Phase) -> &'static str {
    match phase {
        Phase::Copying => "copying",
        Phase::Checking => "checking",
    }
}

/// One line no longer than `columns`.
fn bar(progress: &Progress, rate: u64, columns: usize) -> String {
    let rest = left(progress.of_all.saturating_sub(progress.all_rows), rate);
    let head = format!("{} {:<12}", doing(progress.phase), progress.table);
    let share = percent(progress.all_rows, progress.of_all);
    let tail = format!(
        "{share:>3} %  {} of {} rows, {}/s{rest}",
        grouped(progress.all_rows),
        grouped(progress.of_all),
        grouped(rate)
    );
    picture(&head, share, &tail, columns)
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
        percent(progress.all_rows, progress.of_all),
        grouped(rate)
    )
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
        let mut meter = Meter::start(100);
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
