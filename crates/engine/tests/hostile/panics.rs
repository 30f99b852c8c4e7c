//! Panics in any thread, except those of the tests themselves: a task that panics takes no test
//! down with it, so it has to be asked for.

use std::panic::{self, PanicHookInfo};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, Once, PoisonError};

static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());
static IN_TESTS: AtomicBool = AtomicBool::new(false);
static WATCHING: Once = Once::new();

pub(crate) fn watch() {
    WATCHING.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            note(info);
            usual(info);
        }));
    });
}

fn note(info: &PanicHookInfo<'_>) {
    let Some(place) = info.location() else { return };
    let of_a_test = place.file().split(['/', '\\']).any(|part| part == "tests");
    if of_a_test {
        IN_TESTS.store(true, Ordering::SeqCst);
    } else {
        SEEN.lock().unwrap_or_else(PoisonError::into_inner).push(info.to_string());
    }
}

pub(crate) fn assert_none() {
    let seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(seen.is_empty(), "{seen:?}");
}

/// Whether a test of this process has failed.
pub(crate) fn seen_in_tests() -> bool {
    IN_TESTS.load(Ordering::SeqCst)
}
