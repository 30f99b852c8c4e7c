//! Headers that belong to a connection and not to what is sent over it.

/// In lower case. Neither kept with an event nor taken from an endpoint's configuration.
pub(crate) const OF_THE_CONNECTION: [&str; 9] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];
