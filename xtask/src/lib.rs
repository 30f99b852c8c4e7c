//! The parts of `cargo xtask` that other programs of this repository use, too: running cargo, and
//! finding what the machine needs for the checks.

pub mod cargo;
pub mod chromium;
pub mod postgres;
pub mod toolchain;
