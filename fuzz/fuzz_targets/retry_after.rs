//! The header `Retry-After`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| postrider_fuzzing::retry_after(bytes));
