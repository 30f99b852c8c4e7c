//! What a run found, line by line: what was wanted, and whether it holds.

use std::fmt::Write as _;

use anyhow::{Result, ensure};
use serde::Serialize;

/// One line of the table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Finding {
    pub(crate) what: String,
    pub(crate) found: String,
    pub(crate) wanted: String,
    pub(crate) weight: Weight,
    /// None where nothing is wanted.
    pub(crate) holds: Option<bool>,
}

/// What a finding says of the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Weight {
    /// Holds on every machine, however slow and busy.
    Promise,
    /// A figure of this build on this machine.
    Figure,
    /// Explains others.
    Remark,
}

impl Finding {
    pub(crate) fn promise(
        what: impl Into<String>,
        found: impl Into<String>,
        wanted: impl Into<String>,
        holds: bool,
    ) -> Self {
        let (what, found, wanted) = (what.into(), found.into(), wanted.into());
        Self { what, found, wanted, weight: Weight::Promise, holds: Some(holds) }
    }

    /// Two counts that have to be the same.
    pub(crate) fn equal(what: impl Into<String>, found: u64, wanted: u64) -> Self {
        Self::promise(what, thousands(found), thousands(wanted), found == wanted)
    }

    /// A figure that must not be larger; one that could not be taken does not hold.
    pub(crate) fn at_most(what: impl Into<String>, found: Option<f64>, most: f64) -> Self {
        Self {
            what: what.into(),
            found: found.map_or_else(|| "not measured".to_owned(), |found| format!("{found:.2}")),
            wanted: format!("≤ {most:.2}"),
            weight: Weight::Figure,
            holds: Some(found.is_some_and(|found| found <= most)),
        }
    }

    pub(crate) fn remark(what: impl Into<String>, found: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            found: found.into(),
            wanted: String::new(),
            weight: Weight::Remark,
            holds: None,
        }
    }
}

/// Which findings have to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Judged {
    All,
    /// In tests the build is not optimised and the machine is busy: figures are not looked at.
    Promises,
}

/// Fails with the findings that do not hold.
pub(crate) fn judge(findings: &[Finding], judged: Judged) -> Result<()> {
    let counts = |finding: &&Finding| match finding.weight {
        Weight::Promise => true,
        Weight::Figure => judged == Judged::All,
        Weight::Remark => false,
    };
    let broken: Vec<String> = findings
        .iter()
        .filter(counts)
        .filter(|finding| finding.holds == Some(false))
        .map(|Finding { what, found, wanted, .. }| format!("{what}: {found}, wanted {wanted}"))
        .collect();
    ensure!(broken.is_empty(), "does not hold: {}", broken.join("; "));
    Ok(())
}

/// The findings as an aligned table with a heading.
pub(crate) fn table(findings: &[Finding]) -> String {
    let mut lines = vec![["what", "found", "wanted", ""].map(str::to_owned)];
    lines.extend(findings.iter().map(|finding| {
        let verdict = match finding.holds {
            Some(true) => "holds",
            Some(false) => "DOES NOT HOLD",
            None => "",
        };
        let (what, found) = (finding.what.clone(), finding.found.clone());
        [what, found, finding.wanted.clone(), verdict.to_owned()]
    }));
    let mut widths = [0; 4];
    for line in &lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut text = String::new();
    for line in lines {
        let mut shown = String::new();
        for (cell, width) in line.iter().zip(widths) {
            let pad = " ".repeat(width - cell.chars().count() + 2);
            shown.push_str(cell);
            shown.push_str(&pad);
        }
        let _ = writeln!(text, "{}", shown.trim_end());
    }
    text
}

/// With commas between the thousands.
pub(crate) fn thousands(count: u64) -> String {
    let digits = count.to_string();
    let mut shown = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_hold_is_named_and_figures_only_where_they_are_judged() {
        let kept = Finding::equal("accepted = delivered", 5, 5);
        let broken = Finding::equal("accepted = delivered", 4, 5);
        let slow = Finding::at_most("p99, ratio", Some(9.0), 2.0);
        let unknown = Finding::at_most("memory, ratio", None, 2.0);
        let remark = Finding::remark("refused", "7");
        for (findings, all, promises) in [
            (vec![kept.clone(), remark.clone()], true, true),
            (vec![kept.clone(), slow], false, true),
            (vec![kept.clone(), unknown], false, true),
            (vec![kept, remark, broken.clone()], false, false),
        ] {
            assert_eq!(judge(&findings, Judged::All).is_ok(), all, "{findings:?}");
            assert_eq!(judge(&findings, Judged::Promises).is_ok(), promises, "{findings:?}");
        }
        let error = judge(&[broken], Judged::All).expect_err("broken").to_string();
        assert!(error.contains("accepted = delivered: 4, wanted 5"), "{error}");
    }

    #[test]
    fn the_table_is_aligned() {
        let findings = [
            Finding::equal("accepted = delivered", 1_200_000, 1_200_000),
            Finding::at_most("memory, ratio", Some(2.5), 2.0),
            Finding::remark("refused", "7"),
        ];
        let expected = "\
what                  found      wanted
accepted = delivered  1,200,000  1,200,000  holds
memory, ratio         2.50       ≤ 2.00     DOES NOT HOLD
refused               7
";
        assert_eq!(table(&findings), expected);
    }
}
