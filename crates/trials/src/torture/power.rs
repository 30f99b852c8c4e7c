//! Power loss, made up for a file system that keeps nothing but what was synced: the gateway is
//! recorded call by call under load, its files are put together again as a disk might hold them at
//! some moment, and the real binary is started on them.
//!
//! Reading order: `trace` reads what strace wrote, `history` makes of it what was done to the files
//! and who was told what, `disk` is what is left of that, `record` and `check` run the gateway.

mod check;
mod disk;
mod history;
mod record;
mod trace;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use xtask::toolchain;

use super::random::Random;
use super::report::Played;
use super::round::Plan;
use disk::{Disk, Survival};
use history::{FileId, History, Moment, Subject};
use record::Recording;

/// What one power loss came to.
#[derive(Debug, Clone)]
struct PowerLoss {
    /// When it was and what it left, for people.
    what: String,
    /// Events that producers had been told were accepted.
    acknowledged: usize,
    /// Events that were there afterwards.
    stored: usize,
    /// Deliveries that had been taken before and arrived again…
    repeated: usize,
    /// …of which there may be so many.
    bound: usize,
    /// Acknowledged events that were not there.
    lost: usize,
    /// From the start to the moment when nothing waited any more.
    recovery: Duration,
    /// All that was wrong, lost events included. None is as it should be.
    faults: Vec<String>,
    /// Where the files are that it was started on, if anything was wrong.
    kept: Option<PathBuf>,
}

/// Finds strace and sees that it may trace; installs it where that needs no question: as root, with
/// apt.
pub(crate) fn require() -> Result<()> {
    if !toolchain::answers(Command::new("strace").arg("--version")) {
        toolchain::install(
            &["strace"],
            "strace is needed to record what reaches the disk: install strace (Debian), or what \
             your system calls it",
        )?;
    }
    ensure!(
        toolchain::answers(Command::new("strace").args(["-o", "/dev/null", "true"])),
        "strace may not trace here: a container needs the capability SYS_PTRACE for that"
    );
    Ok(())
}

/// A round: one recording, and `cuts` power losses.
pub(crate) async fn play(plan: &Plan, round: u64, cuts: usize, folder: &Path) -> Result<Played> {
    let seed = Random::of_round(plan.seed, round).next();
    let mut played = Played::default();
    for result in cut(plan, seed, cuts, folder).await? {
        let finding = &mut played.finding;
        played.faults += 1;
        played.recovery = played.recovery.max(result.recovery);
        finding.acknowledged += result.acknowledged;
        // Whatever is stored has arrived, before or after, or is among the faults.
        finding.arrived += result.stored;
        finding.repeats += result.repeated;
        finding.bound += result.bound;
        finding.lost += result.lost;
        finding.faults.count += result.faults.len();
        let kept = result.kept.unwrap_or_default();
        let told = |fault| format!("{}: {fault} ({})", result.what, kept.display());
        finding.faults.told.extend(result.faults.into_iter().map(told));
    }
    Ok(played)
}

/// Records once, and takes the power away `count` times. Before that it is taken away where the disk
/// forgets what it said it had: if nothing is missed then, the check itself is broken, and this
/// fails.
async fn cut(plan: &Plan, seed: u64, count: usize, work: &Path) -> Result<Vec<PowerLoss>> {
    let recording = Recording::make(plan, work, &mut Random::new(seed)).await?;
    let bench = Bench { recording: &recording, work, binary: &plan.binary };
    let control = bench.control().await?;
    let history = &recording.history;
    println!(
        "  power: {} calls, {} writes and other changes of {} MiB, {} syncs; on a disk that lies {} \
         of {} acknowledged events are missed",
        history.length,
        history.changes.len(),
        history.written() >> 20,
        history.syncs.len(),
        control.lost,
        control.acknowledged
    );
    let mut results = Vec::with_capacity(count);
    for round in 0..count {
        // The same seed draws the same fates, but no two recordings are the same: that is why what
        // was found is kept when anything is wrong.
        let mut random = Random::of_round(seed, round as u64);
        let cut = draw_cut(&recording.history, &mut random);
        let survival = Survival::draw(&mut random);
        let loss = Loss { cut, disk: Disk::Honest, survival };
        results.push(bench.lose(&format!("cut-{round}"), loss, &mut random).await?);
    }
    Ok(results)
}

#[derive(Debug, Clone, Copy)]
struct Loss {
    cut: Moment,
    disk: Disk,
    survival: Survival,
}

struct Bench<'a> {
    recording: &'a Recording,
    work: &'a Path,
    binary: &'a Path,
}

impl Bench<'_> {
    /// On a disk that lies, what was acknowledged is lost, and the check says so.
    async fn control(&self) -> Result<PowerLoss> {
        let promises = &self.recording.history.promises;
        let mut events = promises.iter().filter(|told| told.id.starts_with("evt_"));
        let first = events.next().context("nothing was acknowledged")?.at;
        let last = events.next_back().context("too little was acknowledged")?.at;
        let loss = Loss { cut: last + 1, disk: Disk::LiesFrom(first), survival: Survival::Nothing };
        let found = self.lose("control", loss, &mut Random::new(0)).await?;
        ensure!(
            found.lost > 0,
            "the check finds nothing lost on a disk that forgets what it has synced: {found:?}"
        );
        if let Some(folder) = &found.kept {
            remove(folder)?;
        }
        Ok(found)
    }

    async fn lose(&self, name: &str, loss: Loss, random: &mut Random) -> Result<PowerLoss> {
        let Loss { cut, disk, survival } = loss;
        let history = &self.recording.history;
        let folder = self.work.join(name);
        let files = disk::after_power_loss(history, cut, disk, survival, random);
        disk::write(&files, &folder)?;
        let found = check::examine(self.binary, &folder, self.recording, cut).await;
        let kept = if found.faults.count > 0 {
            // As it was when the power had gone: what the gateway made of it is no evidence.
            let evidence = self.work.join(format!("{name}-found"));
            disk::write(&files, &evidence)?;
            Some(evidence)
        } else {
            fs::remove_file(folder.with_extension("log"))?;
            None
        };
        remove(&folder)?;
        let mut faults = found.faults.told;
        if found.faults.count > faults.len() {
            faults.push(format!("and {} more", found.faults.count - faults.len()));
        }
        Ok(PowerLoss {
            what: format!("call {cut} of {}, left: {survival:?}", history.length),
            acknowledged: found.acknowledged,
            stored: found.stored,
            repeated: found.repeated,
            bound: check::most_repeated(),
            lost: found.lost,
            recovery: found.recovery,
            faults,
            kept,
        })
    }
}

fn remove(folder: &Path) -> Result<()> {
    fs::remove_dir_all(folder).with_context(|| format!("{} stays", folder.display()))
}

/// Any moment at all, but mostly while there was load, and often right behind an acknowledgement.
fn draw_cut(history: &History, random: &mut Random) -> Moment {
    let promises = &history.promises;
    let (Some(first), Some(last)) = (promises.first(), promises.last()) else {
        return random.index(history.length + 1);
    };
    match random.below(10) {
        // While it made its database.
        0 => random.index(first.at + 1),
        // While the last was delivered, and while it stopped.
        1 => last.at + 1 + random.index(history.length - last.at),
        2..5 => promises[random.index(promises.len())].at + 1,
        5 | 6 => draw_cut_by_file(history, random).unwrap_or(last.at),
        _ => first.at + random.index(last.at - first.at + 1),
    }
}

/// Behind a change of some file. Most changes are to the log, but each file gets its turn here, and
/// so the moments do at which the log is copied into the database.
fn draw_cut_by_file(history: &History, random: &mut Random) -> Option<Moment> {
    let mut moments: BTreeMap<FileId, Vec<Moment>> = BTreeMap::new();
    for change in &history.changes {
        match change.subject {
            Subject::File(file) => moments.entry(file).or_default().push(change.begun + 1),
            Subject::Names => {}
        }
    }
    let chosen = random.index(moments.len());
    let moments = moments.into_values().nth(chosen)?;
    moments.get(random.index(moments.len())).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use history::{Change, Deed, Promise};

    #[test]
    fn cuts_fall_anywhere_and_often_behind_a_promise() {
        let promise = |at: usize| Promise { at, id: format!("evt_{at}") };
        let promises = vec![promise(40), promise(50), promise(60)];
        let resize = |file: FileId, at: Moment| Change {
            subject: Subject::File(file),
            begun: at,
            ended: Some(at),
            deed: Deed::Resize(0),
        };
        // One file that is changed all the time, and one that is changed once.
        let mut changes: Vec<Change> = (0..100).map(|at| resize(0, at)).collect();
        changes.push(resize(1, 70));
        let history = History { changes, promises, length: 100, ..History::default() };
        let mut random = Random::new(3);
        let cuts: Vec<Moment> = (0..2_000).map(|_| draw_cut(&history, &mut random)).collect();
        assert!(cuts.iter().all(|cut| *cut <= 100));
        for wanted in [0, 30, 41, 51, 61, 100] {
            assert!(cuts.contains(&wanted), "{wanted}");
        }
        assert!(cuts.iter().filter(|cut| [41, 51, 61].contains(cut)).count() > 400);
        assert!(cuts.iter().filter(|cut| **cut == 71).count() > 100);
    }
}
