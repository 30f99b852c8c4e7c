//! The `postrider` binary.

use std::process::ExitCode;

/// Small allocations by many threads are most of what the gateway asks of an allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    postrider_cli::main()
}
