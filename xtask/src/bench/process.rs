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

/// User and system time. The name of the program comes before them and may hold anything but its
/// last `)`.
fn processor(stat: &str) -> Option<Duration> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(Duration::from_millis((user + system) * 1_000 / TICKS_PER_SECOND))
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
        let stat = "7 (a ) b) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20 0 3 0 0 0 0";
        assert_eq!(processor(stat), Some(Duration::from_secs(3)));
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

    #[tokio::test]
    async fn a_process_that_is_asked_ends_by_the_signal() {
        use std::os::unix::process::ExitStatusExt;
        let status = cat().terminate(Duration::from_mins(1)).await.expect("it ends");
        assert_eq!(status.signal(), Some(15));
    }
}
