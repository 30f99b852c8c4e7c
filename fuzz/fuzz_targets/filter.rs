//! Filter expressions, and bodies that they are evaluated on.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| postrider_fuzzing::filter(bytes));
