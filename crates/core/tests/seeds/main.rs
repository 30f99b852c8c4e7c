//! The six presets against the exact tables they come from: delays, states, counters, fields.

mod dispatch;
mod edge;
mod inbox;
mod router;
mod runs;
mod standard;
mod track;
