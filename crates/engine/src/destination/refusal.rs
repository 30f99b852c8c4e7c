//! Why a destination is refused, in sentences that name what would allow it.

use std::net::IpAddr;

use super::MAX_URL_BYTES;

/// Why a destination is refused. No text of it repeats user information from the URL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("the URL is longer than {MAX_URL_BYTES} bytes")]
    TooLong,
    #[error("the URL contains white space, control characters or a backslash; percent-encode them")]
    Characters,
    #[error("the URL must start with https:// or http://")]
    Scheme,
    #[error("the URL must not carry a user name or password; use a header or a secret instead")]
    Userinfo,
    #[error("the URL cannot be read: {0}")]
    Unreadable(String),
    #[error("the host must be written without percent-encoding")]
    EncodedHost,
    #[error("the host is an unusual spelling of {0}; write the address in its usual form")]
    Spelling(IpAddr),
    #[error("the host name is not valid: {0}")]
    Name(&'static str),
    #[error("{0} names this machine; `--allow-destination 127.0.0.0/8` would allow it")]
    LocalName(Box<str>),
    #[error(
        "{0} can only be a name inside a private network; use a full public name, or allow it with \
         `--allow-destination {0}`"
    )]
    InternalName(Box<str>),
    #[error(
        "{0} is a name for {1}, which is {2}; `--allow-destination` with that network would allow it"
    )]
    NameOfAddress(Box<str>, IpAddr, &'static str),
    #[error("port 0 cannot be connected to")]
    PortZero,
    #[error(
        "port {0} is not allowed; use 80, 443 or a port from 1024 up, or allow it with \
         `--allow-port {0}`"
    )]
    Port(u16),
    #[error(
        "port {0} is not allowed, because it is that of {1}; `--allow-port {0}` would allow it"
    )]
    ServicePort(u16, &'static str),
    #[error("port {0} is not allowed, because the gateway was started with `--deny-port {0}`")]
    DeniedPort(u16),
    #[error("{0} is {1}; `--allow-destination` with its network would allow it")]
    Address(IpAddr, &'static str),
}
