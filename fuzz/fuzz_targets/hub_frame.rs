//! Frames between hubs and gateways.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| postrider_fuzzing::hub_frame(bytes));
