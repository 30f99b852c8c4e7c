//! Bodies of the API.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| postrider_fuzzing::api_json(bytes));
