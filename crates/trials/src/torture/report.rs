//! What a run came to: a row for each kind of fault.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use super::checker::Finding;
use super::kind::Kind;

#[derive(Debug, Clone, Default)]
pub(crate) struct Row {
    rounds: usize,
    faults: usize,
    acknowledged: usize,
    arrived: usize,
    repeats: usize,
    bound: usize,
    lost: usize,
    recovery: Duration,
    skipped: Option<String>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Report {
    rows: BTreeMap<Kind, Row>,
}

/// What one round came to.
#[derive(Debug, Clone, Default)]
pub(crate) struct Played {
    /// How many times something was broken.
    pub(crate) faults: usize,
    pub(crate) finding: Finding,
    pub(crate) recovery: Duration,
}

impl Report {
    pub(crate) fn add(&mut self, kind: Kind, played: &Played) {
        let Played { faults, finding, recovery } = played;
        let row = self.rows.entry(kind).or_default();
        row.rounds += 1;
        row.faults += faults;
        row.acknowledged += finding.acknowledged;
        row.arrived += finding.arrived;
        row.repeats += finding.repeats;
        row.bound += finding.bound;
        row.lost += finding.lost;
        row.recovery = row.recovery.max(*recovery);
    }

    pub(crate) fn skip(&mut self, kind: Kind, reason: String) {
        self.rows.entry(kind).or_default().skipped = Some(reason);
    }

    /// As a table of Markdown.
    pub(crate) fn table(&self) -> String {
        let mut text = String::from(
            "| kind | rounds | faults | acknowledged | arrived | repeats | at most | lost | longest \
             recovery |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n",
        );
        let mut sum = Row::default();
        for (kind, row) in &self.rows {
            if let Some(reason) = &row.skipped {
                // A reason is a sentence of ours, but may end with the words of a program.
                let reason = reason.replace(['|', '\n'], " ");
                let _ = writeln!(text, "| {} | skipped: {reason} | | | | | | | |", kind.name());
                continue;
            }
            line(&mut text, kind.name(), row);
            sum.rounds += row.rounds;
            sum.faults += row.faults;
            sum.acknowledged += row.acknowledged;
            sum.arrived += row.arrived;
            sum.repeats += row.repeats;
            sum.bound += row.bound;
            sum.lost += row.lost;
            sum.recovery = sum.recovery.max(row.recovery);
        }
        line(&mut text, "all", &sum);
        text
    }
}

fn line(text: &mut String, name: &str, row: &Row) {
    let Row { rounds, faults, acknowledged, arrived, repeats, bound, lost, recovery, .. } = row;
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "| {name} | {rounds} | {faults} | {acknowledged} | {arrived} | {repeats} | {bound} | {lost} \
         | {:.2} s |",
        recovery.as_secs_f64()
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_of_a_kind_are_added_up_and_the_longest_recovery_is_kept() {
        let mut report = Report::default();
        let finding =
            Finding { acknowledged: 10, arrived: 11, repeats: 1, bound: 49, ..Finding::default() };
        for millis in [300, 1_500, 20] {
            let recovery = Duration::from_millis(millis);
            let finding = finding.clone();
            report.add(Kind::Kill, &Played { faults: 2, finding, recovery });
        }
        report.skip(Kind::Disk, "root | only\nhere".to_owned());
        let table = report.table();
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines[2], "| kill | 3 | 6 | 30 | 33 | 3 | 147 | 0 | 1.50 s |");
        assert_eq!(lines[3], "| disk | skipped: root   only here | | | | | | | |");
        assert_eq!(lines[4], "| all | 3 | 6 | 30 | 33 | 3 | 147 | 0 | 1.50 s |");
        let columns = |line: &&str| line.matches('|').count();
        assert!(lines.iter().all(|line| columns(line) == columns(&lines[0])), "{table}");
    }
}
