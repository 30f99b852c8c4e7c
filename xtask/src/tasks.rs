//! What the tasks that crates/trials has say of themselves: in the list of all tasks, and in their own
//! help.

pub const BENCH: &str = "Measure the gateway against what the machine can do, side by side";
pub const TORTURE: &str =
    "Kill, stop, starve and cut off the real gateway under load, and count what was lost";
pub const SOAK: &str = "Keep the gateway under load for long, overload it, let a herd loose on it";
pub const SCREENSHOTS: &str =
    "Photograph the pages of the dashboard that the README shows, under docs/images/";
