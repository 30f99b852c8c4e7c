//! Signed requests, under every scheme.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| postrider_fuzzing::signature(bytes));
