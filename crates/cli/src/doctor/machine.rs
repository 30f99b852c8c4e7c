//! The machine: its clock, and how many files it lets a process open.

use std::fs;
use std::time::{Duration, UNIX_EPOCH};

use postrider_core::Timestamp;
use postrider_engine::ports::{Clock as _, SystemClock};
use rustix::process::{Resource, getrlimit};

use super::check::Check;
use crate::output;
use crate::stores::Place;

/// No clock that is right shows less: 2026-01-01.
const EARLIEST: Timestamp = Timestamp::from_millis(1_767_225_600_000);

/// How far a file may have been written in the future: clocks of file servers differ a little.
const AHEAD: Duration = Duration::from_mins(1);

/// Clocks that differ by more than this are worth a look, and by more than that, trouble: receivers
/// refuse signatures of another time.
const APART: Duration = Duration::from_secs(3);
const FAR_APART: Duration = Duration::from_mins(1);

/// Files that are open whatever is in flight: the store's, the listener's, and connections that wait.
const OTHER_FILES: u64 = 256;
/// Without so many a gateway cannot work at all.
const FEWEST_FILES: u64 = 128;

/// Whether the time can be right.
pub(super) fn clock(place: &Place) -> Check {
    let written = match place {
        Place::File(path) => fs::metadata(path).and_then(|found| found.modified()).ok(),
        Place::Server(_) => None,
    };
    let written = written.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let written = written.and_then(|since| i64::try_from(since.as_millis()).ok());
    judge_clock(SystemClock.now(), written.map(Timestamp::from_millis))
}

fn judge_clock(now: Timestamp, written: Option<Timestamp>) -> Check {
    let shown = output::clock(now);
    let advice = "set the clock, and let chrony or systemd-timesyncd keep it: retries, signatures and \
                  retention go by it";
    if now < EARLIEST {
        return Check::fail("clock", format!("it is {shown} here, which cannot be"), advice);
    }
    match written {
        Some(written) if written > now.plus(AHEAD) => {
            let then = output::clock(written);
            let says = format!("it is {shown} here, but the database was written at {then}");
            Check::fail("clock", says, advice)
        }
        Some(_) | None => Check::ok("clock", format!("it is {shown} UTC here")),
    }
}

/// Whether another clock, which was asked between `before` and `after`, shows the same.
pub(super) fn compare_clocks(
    name: &'static str,
    whose: &str,
    other: Timestamp,
    before: Timestamp,
    after: Timestamp,
) -> Check {
    let (ahead, behind) = (other.since(after), before.since(other));
    let apart = ahead.max(behind);
    let seconds = apart.as_secs_f64();
    let direction = if behind.is_zero() { "ahead of" } else { "behind" };
    let says = format!("{whose} is {seconds:.1} s {direction} this machine's");
    let advice = "let chrony or systemd-timesyncd keep both clocks";
    if apart > FAR_APART {
        Check::fail(name, says, advice)
    } else if apart > APART {
        Check::warn(name, says, advice)
    } else {
        Check::ok(name, format!("{whose} agrees with this machine's"))
    }
}

/// Whether everything that can be in flight can have a connection.
pub(super) fn file_limit(max_in_flight: usize) -> Check {
    let limit = getrlimit(Resource::Nofile);
    judge_limit(limit.current, limit.maximum, u64::try_from(max_in_flight).unwrap_or(u64::MAX))
}

fn judge_limit(current: Option<u64>, maximum: Option<u64>, max_in_flight: u64) -> Check {
    const NAME: &str = "file limit";
    // None is no limit.
    let Some(limit) = current else { return Check::ok(NAME, "a process may open any number") };
    // One for the way out and one for the way in.
    let wanted = max_in_flight.saturating_mul(2).saturating_add(OTHER_FILES);
    if limit >= wanted {
        return Check::ok(NAME, format!("a process may open {limit} files here"));
    }
    let says = format!(
        "a process may open {limit} files here, and {max_in_flight} attempts at once may need {wanted}"
    );
    let most = maximum.map_or_else(String::new, |most| format!(" (at most {most} here)"));
    let advice = format!(
        "raise it with LimitNOFILE={wanted} in the unit or `ulimit -n {wanted}`{most}, or lower \
         --max-in-flight"
    );
    if limit < FEWEST_FILES {
        Check::fail(NAME, says, advice)
    } else {
        Check::warn(NAME, says, advice)
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::Status;
    use super::*;

    #[test]
    fn a_clock_is_wrong_if_it_cannot_be_right() {
        let second = Duration::from_secs(1);
        let now = EARLIEST.plus(Duration::from_hours(1));
        for (now, written, expected) in [
            (now, None, Status::Ok),
            (now, Some(now), Status::Ok),
            (now, Some(now.plus(AHEAD)), Status::Ok),
            (now, Some(now.plus(AHEAD).plus(second)), Status::Fail),
            (EARLIEST.minus(second), None, Status::Fail),
            (Timestamp::from_millis(0), None, Status::Fail),
        ] {
            assert_eq!(judge_clock(now, written).status, expected, "{now} {written:?}");
        }
    }

    #[test]
    fn clocks_are_compared_in_both_directions() {
        let now = EARLIEST;
        let after = now.plus(Duration::from_secs(1));
        for (other, expected, word) in [
            (now, Status::Ok, "agrees"),
            (now.minus(APART), Status::Ok, "agrees"),
            (now.minus(APART * 2), Status::Warn, "behind"),
            (after.plus(APART * 2), Status::Warn, "ahead"),
            (now.minus(FAR_APART * 2), Status::Fail, "behind"),
            (after.plus(FAR_APART * 2), Status::Fail, "ahead"),
        ] {
            let check = compare_clocks("clock", "the other clock", other, now, after);
            assert_eq!(check.status, expected, "{other}");
            assert!(check.says.contains(word), "{}", check.says);
        }
    }

    #[test]
    fn files_have_to_suffice_for_what_is_in_flight() {
        for (current, in_flight, expected) in [
            (None, 1_000_000, Status::Ok),
            (Some(65_536), 1_024, Status::Ok),
            (Some(1_024), 1_024, Status::Warn),
            (Some(1_024), 100, Status::Ok),
            (Some(64), 1_024, Status::Fail),
            (Some(64), u64::MAX, Status::Fail),
        ] {
            let check = judge_limit(current, Some(65_536), in_flight);
            assert_eq!(check.status, expected, "{current:?} for {in_flight}");
        }
    }
}
