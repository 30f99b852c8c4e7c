//! A child process that never outlives its owner, and what it uses of the machine.

use std::fs;
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::time::{Instant, interval};

/// Clock ticks a second in `/proc/PID/stat`; Linux shows user space no other number.
const TICKS_PER_SECOND: u64 = 100;
const POLL: Duration = Duration::from_millis(5);

/// Killed and waited for when dropped, on whatever path that happens.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Usage {
    /// Processor time since the start, of all threads.
    pub(crate) processor: Duration,
    pub(crate) resident_mebibytes: f64,
    pub(crate) peak_mebibytes: f64,
}

impl Usage {
    /// Of two processes together.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            processor: self.processor + other.processor,
            resident_mebibytes: self.resident_mebibytes + other.resident_mebibytes,
            peak_mebibytes: self.peak_mebibytes + other.peak_mebibytes,
        }
    }
}

impl Process {
    pub(crate) fn spawn(mut command: Command) -> Result<Self> {
        let program = command.get_program().to_string_lossy().into_owned();
        let child = command.spawn().with_context(|| format!("{program} could not be started"))?;
        Ok(Self { child })
    }

    pub(crate) fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    pub(crate) fn exited(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Asks it to end, and waits for that no longer than `patience`.
    pub(crate) async fn terminate(mut self, patience: Duration) -> Result<ExitStatus> {
        let asked = Command::new("sh")
            .args(["-c", "kill -TERM \"$0\"", &self.child.id().to_string()])
            .status()?;
        if !asked.success() {
            bail!("the process could not be asked to end");
        }
        let deadline = Instant::now() + patience;
        let mut poll = interval(POLL);
        while Instant::now() < deadline {
            if let Some(status) = self.exited()? {
                return Ok(status);
            }
            poll.tick().await;
        }
        bail!("the process did not end within {patience:?} of being asked")
    }

    /// None where there is no `/proc`.
    pub(crate) fn usage(&self) -> Option<Usage> {
        let folder = format!("/proc/{}", self.child.id());
        let stat = fs::read_to_string(format!("{folder}/stat")).ok()?;
        let status = fs::read_to_string(format!("{folder}/status")).ok()?;
        Some(Usage {
            processor: processor(&stat)?,
            resident_mebibytes: mebibytes(&status, "VmRSS:")?,
            peak_mebibytes: mebibytes(&status, "VmHWM:")?,
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only where the child has ended and been waited for, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The processor time of a process, of the children it has, and of those that it has waited for.
/// None where there is no `/proc`.
pub(crate) fn family_processor(parent: u32) -> Option<Duration> {
    let of_parent = fs::read_to_string(format!("/proc/{parent}/stat")).ok()?;
    let children = fs::read_dir("/proc").ok()?.flatten().filter_map(|entry| {
        entry.file_name().to_str()?.parse::<u32>().ok()?;
        // One that has ended since counts for its parent.
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        (field(&stat, PARENT)? == u64::from(parent)).then(|| processor(&stat)).flatten()
    });
    Some(processor(&of_parent)? + ended_children(&of_parent)? + children.sum::<Duration>())
}

/// Where these are among the fields of `/proc/PID/stat` that follow the name of the program: the id
/// of the parent, and the user times, each with the system time behind it.
const PARENT: usize = 1;
const OWN_TIME: usize = 11;
const TIME_OF_ENDED_CHILDREN: usize = 13;

fn processor(stat: &str) -> Option<Duration> {
    time(stat, OWN_TIME)
}

fn ended_children(stat: &str) -> Option<Duration> {
    time(stat, TIME_OF_ENDED_CHILDREN)
}

fn time(stat: &str, user: usize) -> Option<Duration> {
    let ticks = field(stat, user)? + field(stat, user + 1)?;
    Some(Duration::from_millis(ticks * 1_000 / TICKS_PER_SECOND))
}

/// The name of the program may hold anything but its last `)`.
fn field(stat: &str, index: usize) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(index)?.parse().ok()
}

fn mebibytes(status: &str, name: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kibibytes: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_read_from_proc() {
        let stat = "7 (a ) b) S 1 2 3 4 5 6 7 8 9 10 250 50 100 20 20 0 3 0 0 0 0";
        assert_eq!(processor(stat), Some(Duration::from_secs(3)));
        assert_eq!(ended_children(stat), Some(Duration::from_millis(1_200)));
        assert_eq!(field(stat, PARENT), Some(1));
        let status = "Name:\ta\nVmHWM:\t  204800 kB\nVmRSS:\t  102400 kB\n";
        assert_eq!(mebibytes(status, "VmRSS:"), Some(100.0));
        assert_eq!(mebibytes(status, "VmHWM:"), Some(200.0));
        assert_eq!(mebibytes(status, "VmSwap:"), None);
    }

    fn cat() -> Process {
        let mut command = Command::new("cat");
        command.stdin(std::process::Stdio::piped());
        Process::spawn(command).expect("cat starts")
    }

    #[test]
    fn a_dropped_process_is_gone() {
        let process = cat();
        let folder = format!("/proc/{}", process.child.id());
        assert!(fs::metadata(&folder).is_ok());
        assert!(process.usage().is_some());
        drop(process);
        assert!(fs::metadata(&folder).is_err());
    }

    #[test]
    fn a_family_has_used_what_its_children_have() {
        let mut command = Command::new("sh");
        command.args(["-c", "n=0; while [ $n -lt 100000 ]; do n=$((n + 1)); done"]);
        let mut process = Process::spawn(command).expect("sh starts");
        process.child().wait().expect("it ends");
        let used = family_processor(std::process::id()).expect("there is a /proc");
        assert!(used > Duration::ZERO);
        assert_eq!(family_processor(u32::MAX), None);
    }

    #[tokio::test]
    async fn a_process_that_is_asked_ends_by_the_signal() {
        use std::os::unix::process::ExitStatusExt;
        let status = cat().terminate(Duration::from_mins(1)).await.expect("it ends");
        assert_eq!(status.signal(), Some(15));
    }
}
