//! The ways to hand a delivery over.

pub(crate) mod http;
