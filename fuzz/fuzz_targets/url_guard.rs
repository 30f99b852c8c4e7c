//! URLs that deliveries may go to.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| postrider_fuzzing::url_guard(bytes));
