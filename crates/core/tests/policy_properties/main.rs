//! What holds for every policy that can exist, and which ones cannot.

mod any;
mod delay;
mod plan;
mod spec;
mod step;
