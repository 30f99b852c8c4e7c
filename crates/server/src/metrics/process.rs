//! What the system knows of this process, where it says so: the files of Linux under `/proc`.

use std::fs;

/// As of now.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Process {
    pub(super) cpu_seconds: f64,
    pub(super) open_fds: u64,
    pub(super) max_fds: u64,
    pub(super) virtual_bytes: u64,
    pub(super) resident_bytes: u64,
    pub(super) started_at: f64,
}

/// What the system counts in.
#[derive(Debug, Clone, Copy)]
struct Units {
    ticks_per_second: u64,
    page_bytes: u64,
}

/// None where there are no such files.
pub(super) fn read() -> Option<Process> {
    let units = Units {
        ticks_per_second: rustix::param::clock_ticks_per_second(),
        page_bytes: rustix::param::page_size() as u64,
    };
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let machine = fs::read_to_string("/proc/stat").ok()?;
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    // The folder that is being read is one of them.
    let open_fds = fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1) as u64;
    parse(&stat, &machine, &limits, open_fds, units)
}

#[allow(clippy::cast_precision_loss, reason = "seconds, of which nobody needs more than 53 bits")]
fn parse(stat: &str, machine: &str, limits: &str, open_fds: u64, units: Units) -> Option<Process> {
    // The name of the program, in brackets, may have anything in it; fields are counted behind it.
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    // As the manual counts them, the state being the third.
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    let seconds = |ticks: u64| ticks as f64 / units.ticks_per_second.max(1) as f64;
    let booted = machine.lines().find_map(|line| line.strip_prefix("btime "))?;
    let booted: u64 = booted.trim().parse().ok()?;
    let max_fds = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    let max_fds = max_fds.split_whitespace().next()?;
    Some(Process {
        cpu_seconds: seconds(field(14)? + field(15)?),
        open_fds,
        max_fds: max_fds.parse().unwrap_or(u64::MAX),
        virtual_bytes: field(23)?,
        resident_bytes: field(24)?.saturating_mul(units.page_bytes),
        started_at: booted as f64 + seconds(field(22)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "42 (a) b) S 1 42 42 0 -1 4194560 900 0 0 0 150 50 0 0 20 0 8 0 1000 \
                        123456789 2048 18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 1 0 0";
    const MACHINE: &str = "cpu  1 2 3\nbtime 1700000000\nprocesses 5\n";
    const LIMITS: &str = "Limit Soft Hard Units\nMax open files            1024      4096  files\n";
    const UNITS: Units = Units { ticks_per_second: 100, page_bytes: 4096 };

    #[test]
    fn the_files_are_read_as_the_manual_says() {
        let process = parse(STAT, MACHINE, LIMITS, 12, UNITS);
        let expected = Process {
            cpu_seconds: 2.0,
            open_fds: 12,
            max_fds: 1024,
            virtual_bytes: 123_456_789,
            resident_bytes: 2048 * 4096,
            started_at: 1_700_000_010.0,
        };
        assert_eq!(process, Some(expected));
    }

    #[test]
    fn files_that_say_something_else_are_not_believed() {
        for (stat, machine, limits) in [
            ("", MACHINE, LIMITS),
            ("42 (a) S 1 2", MACHINE, LIMITS),
            (STAT, "cpu 1", LIMITS),
            (STAT, MACHINE, ""),
        ] {
            assert_eq!(parse(stat, machine, limits, 1, UNITS), None, "{stat} {machine} {limits}");
        }
    }
}
