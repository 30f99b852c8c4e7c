//! Cursors, ids and query strings.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| postrider_fuzzing::cursor(bytes));
