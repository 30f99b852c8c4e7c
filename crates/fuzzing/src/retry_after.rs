//! `Retry-After`: a wait is never shorter than asked for, never beyond its bounds, and what is no
//! wait is none. The bytes are the header's value.

use std::time::Duration;

use postrider_core::delivery::Transition;
use postrider_core::policy::{Preset, Presets};
use postrider_core::retry_after::{MAX_HINT, parse};
use postrider_core::{Class, Delivery, Happening, Jitter, Outcome, State, Timestamp, step};

/// Clocks, sensible and not: 2026-01-01, 1994-11-06 (the date of RFC 9110) and what no clock shows.
const CLOCKS: [i64; 6] =
    [1_767_225_600_000, 1_767_225_600_123, 784_111_777_000, 0, i64::MIN, i64::MAX];
/// The most that is waited for where a policy has no age.
const MAX_WITHOUT_AGE: Duration = Duration::from_hours(24);

pub fn retry_after(value: &[u8]) {
    for now in CLOCKS {
        let hint = parse(value, now);
        assert_eq!(hint, parse(value, now), "the same value is the same wait");
        if let Some(hint) = hint {
            assert!((Duration::from_secs(1)..=MAX_HINT).contains(&hint), "{hint:?}");
            assert_eq!(hint.subsec_nanos(), 0, "{hint:?} is no whole number of seconds");
            ends_when_asked(value, now, hint);
        }
        if let Some(seconds) = digits(value) {
            let wanted = Some(Duration::from_secs(seconds).min(MAX_HINT));
            assert_eq!(hint, wanted.filter(|wait| !wait.is_zero()), "a number of seconds");
        }
    }
    schedules_no_earlier(value);
}

/// The wait that is left shrinks with time, to a second just before the end and to none at it. A
/// number says how long, whatever the time, and is left out.
fn ends_when_asked(value: &[u8], now: i64, hint: Duration) {
    if digits(value).is_some() || hint == MAX_HINT {
        return;
    }
    let at = |seconds: u64| i64::try_from(seconds * 1_000).ok().and_then(|ms| now.checked_add(ms));
    let seconds = hint.as_secs();
    if let Some(last) = at(seconds - 1) {
        assert_eq!(parse(value, last), Some(Duration::from_secs(1)), "a second before its end");
    }
    if let Some(end) = at(seconds) {
        assert_eq!(parse(value, end), None, "at its end");
    }
}

/// What a whole number means, read another way than the code reads it.
fn digits(value: &[u8]) -> Option<u64> {
    /// More digits than any hint has.
    const MANY: usize = 12;
    let text = std::str::from_utf8(value).ok()?.trim_matches([' ', '\t']);
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    match text.trim_start_matches('0') {
        "" => Some(0),
        digits if digits.len() > MANY => Some(u64::MAX),
        digits => digits.parse().ok(),
    }
}

/// Under every preset, at every jitter: the next attempt is not before the wait is over, unless the
/// policy's age ends first; and there is a next attempt, or the delivery has ended.
fn schedules_no_earlier(value: &[u8]) {
    let now = Timestamp::from_millis(CLOCKS[1]);
    let Some(hint) = parse(value, now.as_millis()) else { return };
    let failed =
        Outcome::Failed { class: Class::RateLimited, retry_after: Some(hint), disable: false };
    let (attempts, deferrals) = (0, 0);
    let delivery = Delivery { state: State::InFlight, attempts, deferrals, due: now, born: now };
    let presets = Presets::default();
    for preset in Preset::ALL {
        let policy = presets.policy(preset);
        for jitter in [Jitter::EARLIEST, Jitter::MIDDLE, Jitter::LATEST] {
            let moved = step(&delivery, Happening::Finish(failed), &policy, now, jitter);
            let Transition::Moves(next) = moved else { panic!("{moved:?} under {preset:?}") };
            let most = policy.max_age().unwrap_or(MAX_WITHOUT_AGE);
            let earliest = now.plus(hint.min(most));
            let due = next.due.unwrap_or_else(|| panic!("{next:?} under {preset:?}"));
            assert!(due >= earliest, "{due} is before {earliest} under {preset:?}");
            assert!(due <= now.plus(most), "{due} is too late under {preset:?}");
            assert_eq!(next.attempts, 0, "a wait that was asked for is no attempt");
            let held = next.hold_endpoint_until;
            assert!(held.is_some_and(|held| held >= due), "{held:?} ends before {due}");
        }
    }
}
