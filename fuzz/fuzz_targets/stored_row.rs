//! What is read from a database.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| postrider_fuzzing::stored_row(bytes));
