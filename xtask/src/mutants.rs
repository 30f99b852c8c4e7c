//! Breaks the rules of the product on purpose, one at a time, in a copy of the repository, and sees whether
//! the simulation's checker of that rule complains. A checker that never complained proves nothing.

mod list;
mod run;
mod tree;

use std::time::Duration;

use anyhow::{Result, bail, ensure};

use list::{MUTANTS, Mutant};
use run::{Fate, Living};
use tree::Tree;

/// Breaks one rule after the other in a copy of the repository, and lives through worlds until the
/// checker of that rule complains
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Only these, by name
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    only: Vec<String>,

    /// Name them, and break nothing
    #[arg(long)]
    list: bool,

    /// Worlds that each is given to be found out
    #[arg(long, default_value_t = 1000, value_name = "N")]
    seeds: u64,

    /// Do not first live through the same worlds with nothing broken
    #[arg(long)]
    no_control: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let chosen = choose(&arguments.only)?;
    if arguments.list {
        for mutant in chosen {
            println!("{:<22} {:<16} {}", mutant.name, mutant.checker, mutant.breaks);
        }
        return Ok(());
    }
    let tree = Tree::copy()?;
    // All edits before any build: one that fits no longer is seen at once.
    for mutant in &chosen {
        tree.try_edits(mutant)?;
    }
    let mut rows = Vec::new();
    let mut failed = 0;
    if !arguments.no_control {
        let (fate, took) = run::live(&tree, None, arguments.seeds)?;
        failed += u32::from(fate != Fate::Survived);
        rows.push(Row { name: "(nothing broken)", checker: "", outcome: fate.of_none(), took });
        println!("{}", rows[rows.len() - 1]);
    }
    for mutant in chosen {
        let (fate, took) = run::live(&tree, Some(mutant), arguments.seeds)?;
        failed += u32::from(!fate.is_caught());
        let outcome = fate.of_mutant(arguments.seeds);
        rows.push(Row { name: mutant.name, checker: mutant.checker, outcome, took });
        println!("{}", rows[rows.len() - 1]);
    }
    println!("\n{:<22} {:<16} {:<34} build and run", "broken rule", "checker", "found");
    for row in &rows {
        println!("{row}");
    }
    ensure!(failed == 0, "{failed} of {} are not as they should be", rows.len());
    Ok(())
}

fn choose(only: &[String]) -> Result<Vec<&'static Mutant>> {
    if let Some(unknown) = only.iter().find(|name| MUTANTS.iter().all(|one| one.name != **name)) {
        bail!("there is no mutant `{unknown}`; `cargo xtask mutants-sim --list` names them");
    }
    let wanted = |mutant: &&Mutant| only.is_empty() || only.iter().any(|name| name == mutant.name);
    Ok(MUTANTS.iter().filter(wanted).collect())
}

/// A line of the table.
struct Row {
    name: &'static str,
    checker: &'static str,
    outcome: String,
    took: Living,
}

impl std::fmt::Display for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let seconds = |span: Duration| format!("{:.0} s", span.as_secs_f64());
        let (built, ran) = (seconds(self.took.building), seconds(self.took.running));
        write!(f, "{:<22} {:<16} {:<34} {built} + {ran}", self.name, self.checker, self.outcome)
    }
}
