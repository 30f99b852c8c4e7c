//! The parts of `cargo xtask` that crates/trials uses, too: running cargo, finding what the machine
//! needs for the checks, and what tasks are called.

pub mod cargo;
pub mod chromium;
pub mod postgres;
pub mod tasks;
pub mod toolchain;
