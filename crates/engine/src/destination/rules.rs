//! What an operator allows and denies beyond the defaults: networks, host names, ports.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;

use super::check_name;

/// What may be reached beside public addresses on harmless ports. The default allows nothing more.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    /// Networks that may be reached whatever they are, on any port that is not denied.
    pub networks: Vec<IpNet>,
    /// Names that may be reached although they stand for addresses that are not public, on any port
    /// that is not denied.
    pub hosts: Vec<HostPattern>,
    /// Ports that any destination may use although the defaults refuse them.
    pub allow_ports: Vec<u16>,
    /// Ports that no destination may use, allowed or not.
    pub deny_ports: Vec<u16>,
}

/// One name (`billing.internal`), or all names below one (`*.internal.example`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPattern {
    /// Lower-case ASCII, without a final dot, as a URL's host is normalised.
    name: Box<str>,
    reach: Reach,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    Exact,
    /// Every name that ends in a dot and the pattern's name, but not that name itself.
    Below,
}

/// What one `--allow-destination` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Allowance {
    Network(IpNet),
    Host(HostPattern),
}

/// Why a text is no [`Allowance`] or [`HostPattern`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadAllowance {
    #[error("`{0}` is no network: expected an address and a prefix length, such as 10.0.0.0/8")]
    Network(String),
    #[error("`{0}` is no host name: expected one such as billing.internal or *.internal.example")]
    Host(String),
    #[error("`{0}` is an address; allow it as a network")]
    Address(String),
    #[error("`{0}` would allow every name; allow 0.0.0.0/0 and ::/0 if that is meant")]
    Everything(String),
}

impl Rules {
    pub fn allow(&mut self, allowance: Allowance) {
        match allowance {
            Allowance::Network(network) => self.networks.push(network),
            Allowance::Host(host) => self.hosts.push(host),
        }
    }
}

impl HostPattern {
    /// Whether a name, normalised as in a URL, is meant.
    pub fn matches(&self, name: &str) -> bool {
        match self.reach {
            Reach::Exact => name == &*self.name,
            Reach::Below => name
                .strip_suffix(&*self.name)
                .and_then(|rest| rest.strip_suffix('.'))
                .is_some_and(|rest| !rest.is_empty()),
        }
    }
}

impl FromStr for HostPattern {
    type Err = BadAllowance;

    fn from_str(text: &str) -> Result<Self, BadAllowance> {
        let (reach, name) = match text.strip_prefix("*.") {
            Some(name) => (Reach::Below, name),
            None => (Reach::Exact, text),
        };
        if text == "*" || reach == Reach::Below && name.is_empty() {
            return Err(BadAllowance::Everything(text.to_owned()));
        }
        // Read as the host of a URL is, so that both come out in the same spelling.
        let name = match url::Host::parse(name) {
            Ok(url::Host::Domain(name)) => name,
            Ok(url::Host::Ipv4(_) | url::Host::Ipv6(_)) => {
                return Err(BadAllowance::Address(text.to_owned()));
            }
            Err(_) => return Err(BadAllowance::Host(text.to_owned())),
        };
        match check_name(&name) {
            Ok(name) => Ok(Self { name: name.into(), reach }),
            Err(_) => Err(BadAllowance::Host(text.to_owned())),
        }
    }
}

impl FromStr for Allowance {
    type Err = BadAllowance;

    fn from_str(text: &str) -> Result<Self, BadAllowance> {
        if let Ok(network) = text.parse() {
            return Ok(Self::Network(network));
        }
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self::Network(address.into()));
        }
        if text.contains(['/', ':']) {
            return Err(BadAllowance::Network(text.to_owned()));
        }
        text.parse().map(Self::Host)
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reach {
            Reach::Exact => f.write_str(&self.name),
            Reach::Below => write!(f, "*.{}", self.name),
        }
    }
}
