//! The engine as a library, on virtual time: what a program that embeds it can rely on.

mod handlers;
mod queue;
mod restart;
mod runs;
