//! The stored forms that all backends share: what a code, a sealed secret or a header is on disk, and
//! what does not depend on how it is asked for.

pub(crate) mod code;
pub(crate) mod content;
pub(crate) mod groups;
pub(crate) mod headers;
pub(crate) mod hot;
pub(crate) mod measures;
pub(crate) mod pages;
pub(crate) mod response;
pub(crate) mod sealed;
pub(crate) mod words;
