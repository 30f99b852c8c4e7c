//! Notes what panics in the product's own tasks, which would otherwise end without a word.

use std::cell::RefCell;
use std::panic;

/// More of them in one world tell nothing new.
const MAX_KEPT: usize = 5;

thread_local! {
    static SEEN: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// From now on panics are noted, each for the world of its own thread, and still reported as before.
pub(crate) fn watch() {
    let report = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        SEEN.with_borrow_mut(|seen| {
            if seen.len() < MAX_KEPT {
                seen.push(info.to_string().replace('\n', " "));
            }
        });
        report(info);
    }));
}

/// What panicked in this thread since this was last asked.
pub(crate) fn take() -> Vec<String> {
    SEEN.take()
}
