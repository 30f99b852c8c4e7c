//! Where a push may go: the guard that reads a destination URL, refuses what must not be reached,
//! and hands out a [`Destination`] with everything a request needs computed beforehand.
//!
//! A URL is judged three times: as the raw text, as the parsed host, and as the resolved address
//! at dial time. Only the last one is proof; the first two turn mistakes and attacks away early,
//! with a sentence the user can act on.

mod address;
mod ports;
mod refusal;
mod resolve;
mod resolver;
mod rules;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use http::{HeaderValue, Uri};
use ipnet::IpNet;
use url::{Position, Url};

pub use refusal::Refusal;
pub use resolve::{DNS_BUDGET, MAX_ANSWERS, MAX_DIALED, MAX_LOOKUPS, ResolveError};
pub use resolver::{BadNameServers, LookupError, MAX_DNS_SERVERS, NameServers, Resolver, System};
pub use rules::{Allowance, BadAllowance, HostPattern, Rules};

use address::Opens;

/// The longest destination URL accepted, in bytes.
pub const MAX_URL_BYTES: usize = 2048;

/// The longest host name DNS can carry, and the longest of its labels.
const MAX_NAME_BYTES: usize = 253;
const MAX_LABEL_BYTES: usize = 63;

/// What the name `localhost` stands for.
const LOOPBACK: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

/// Names that mean something only inside somebody's network (RFC 6762, 6761, 8375, ICANN).
const INTERNAL_SUFFIXES: [&str; 4] = [".local", ".internal", ".localdomain", ".home.arpa"];

/// Decides which destinations may be reached.
///
/// Public addresses may, on harmless ports; what else may is said by [`Rules`].
#[derive(Debug)]
pub struct Guard {
    rules: Rules,
    lookups: resolve::Lookups,
}

/// A destination whose URL passed the guard, with the parts of a request that never change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Destination {
    origin: Arc<Origin>,
    /// `/path?query`, the request target of HTTP/1.
    target: Uri,
    /// The whole URL, the request target of HTTP/2.
    url: Uri,
    /// `host[:port]`, the `Host` header of HTTP/1.
    authority: HeaderValue,
}

/// What connections are shared by: scheme, host and port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Origin {
    pub scheme: Scheme,
    pub host: Host,
    pub port: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scheme {
    Http,
    Https,
}

/// A host as the URL wrote it: an address, or a name that DNS answers for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Host {
    Address(IpAddr),
    /// Lower-case ASCII, without a final dot.
    Name(Box<str>),
}

/// What the operator said of a host by its name.
#[derive(Debug, Clone, Copy)]
enum Standing {
    Nothing,
    Allowed,
}

impl Guard {
    /// A guard that lets through public addresses and those inside `networks`.
    pub fn new(networks: Vec<IpNet>) -> Self {
        Self::with_rules(Rules { networks, ..Rules::default() })
    }

    /// A guard that asks the system's resolver.
    pub fn with_rules(rules: Rules) -> Self {
        Self::with_resolver(rules, Arc::new(System))
    }

    pub fn with_resolver(rules: Rules, resolver: Arc<dyn Resolver>) -> Self {
        Self { rules, lookups: resolve::Lookups::through(resolver) }
    }

    /// Reads a URL and decides whether it may be a destination. Names are not resolved here.
    pub fn check_url(&self, raw: &str) -> Result<Destination, Refusal> {
        let authority = check_text(raw)?;
        let url = Url::parse(raw).map_err(|error| Refusal::Unreadable(error.to_string()))?;
        let scheme = match url.scheme() {
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            _ => return Err(Refusal::Scheme),
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(Refusal::Userinfo);
        }
        let host = match url.host() {
            Some(url::Host::Ipv4(address)) => check_spelling(authority, address.into())?,
            Some(url::Host::Ipv6(address)) => check_spelling(authority, address.into())?,
            Some(url::Host::Domain(name)) => Host::Name(check_name(name)?.into()),
            None => return Err(Refusal::Name("it is empty")),
        };
        let port = url.port_or_known_default().ok_or(Refusal::PortZero)?;
        self.check_host(&host)?;
        self.check_port(&host, port)?;
        Destination::new(&url, Origin { scheme, host, port })
    }

    /// Decides whether an address may be dialled that no name stands for.
    pub fn check_address(&self, address: IpAddr) -> Result<(), Refusal> {
        self.judge(address, Standing::Nothing)
    }

    fn judge(&self, address: IpAddr, standing: Standing) -> Result<(), Refusal> {
        if self.allows(address) {
            return Ok(());
        }
        // A v4-mapped address and a NAT64 address reach the IPv4 host they carry, so they are
        // judged as that host.
        let reached = address.to_canonical();
        let reached = address::nat64(reached).map_or(reached, IpAddr::from);
        let Some(class) = address::class(reached) else { return Ok(()) };
        match (class.opens, standing) {
            (Opens::ByName, Standing::Allowed) => Ok(()),
            (Opens::ByName | Opens::ByNetwork, Standing::Nothing)
            | (Opens::ByNetwork, Standing::Allowed) => Err(Refusal::Address(address, class.what)),
        }
    }

    /// Whether an address is inside an allowed network. Allowing the translation prefix itself does
    /// not allow what is reached through it.
    fn allows(&self, address: IpAddr) -> bool {
        let inside =
            |address: IpAddr| self.rules.networks.iter().any(|network| network.contains(&address));
        let canonical = address.to_canonical();
        match address::nat64(canonical) {
            Some(translated) => inside(translated.into()),
            None => inside(canonical) || inside(address),
        }
    }

    fn standing(&self, host: &Host) -> Standing {
        match host {
            Host::Name(name) if self.rules.hosts.iter().any(|pattern| pattern.matches(name)) => {
                Standing::Allowed
            }
            Host::Name(_) | Host::Address(_) => Standing::Nothing,
        }
    }

    fn check_host(&self, host: &Host) -> Result<(), Refusal> {
        let name = match host {
            Host::Address(address) => return self.check_address(*address),
            Host::Name(name) => name,
        };
        match self.standing(host) {
            Standing::Allowed => return Ok(()),
            Standing::Nothing => {}
        }
        if is_local(name) {
            return if self.allows_loopback() {
                Ok(())
            } else {
                Err(Refusal::LocalName(name.clone()))
            };
        }
        let internal =
            !name.contains('.') || INTERNAL_SUFFIXES.iter().any(|suffix| name.ends_with(suffix));
        if internal && !self.rules.networks.iter().any(reaches_beyond_loopback) {
            return Err(Refusal::InternalName(name.clone()));
        }
        // `127.0.0.1.nip.io` and its like resolve to the address they spell.
        for spelled in address::spelled_in(name) {
            if let Err(Refusal::Address(address, class)) = self.check_address(spelled.into()) {
                return Err(Refusal::NameOfAddress(name.clone(), address, class));
            }
        }
        Ok(())
    }

    /// Judges the port: any that is not denied where the operator allowed the host, else by the
    /// table of ports.
    fn check_port(&self, host: &Host, port: u16) -> Result<(), Refusal> {
        if self.rules.deny_ports.contains(&port) {
            return Err(Refusal::DeniedPort(port));
        }
        let host_allowed = match host {
            Host::Address(address) => self.allows(*address),
            Host::Name(name) => match self.standing(host) {
                Standing::Allowed => true,
                Standing::Nothing if is_local(name) => self.allows_loopback(),
                // What it stands for is not known here: only a rule for all addresses covers it.
                Standing::Nothing => self.allows_every_address(),
            },
        };
        match port {
            1.. if host_allowed => Ok(()),
            _ => ports::check(port, &self.rules.allow_ports),
        }
    }

    fn allows_loopback(&self) -> bool {
        LOOPBACK.into_iter().any(|address| self.allows(address))
    }

    fn allows_every_address(&self) -> bool {
        let whole = |network: &IpNet| network.prefix_len() == 0;
        let v4 = |network: &IpNet| whole(network) && network.addr().is_ipv4();
        let v6 = |network: &IpNet| whole(network) && network.addr().is_ipv6();
        self.rules.networks.iter().any(v4) && self.rules.networks.iter().any(v6)
    }
}

impl Destination {
    fn new(url: &Url, origin: Origin) -> Result<Self, Refusal> {
        let unreadable = |what: &str| Refusal::Unreadable(format!("invalid {what}"));
        let target = Uri::try_from(&url[Position::BeforePath..Position::AfterQuery])
            .map_err(|_| unreadable("path or query"))?;
        let authority = HeaderValue::from_str(&url[Position::BeforeHost..Position::AfterPort])
            .map_err(|_| unreadable("host"))?;
        // The fragment is the reader's business and never goes over the wire.
        let url = Uri::try_from(&url[..Position::AfterQuery]).map_err(|_| unreadable("URL"))?;
        Ok(Self { origin: Arc::new(origin), target, url, authority })
    }

    pub fn origin(&self) -> &Arc<Origin> {
        &self.origin
    }

    /// The request target of HTTP/1: path and query.
    pub fn target(&self) -> &Uri {
        &self.target
    }

    /// The normalised URL, without its fragment; also the request target of HTTP/2.
    pub fn url(&self) -> &Uri {
        &self.url
    }

    /// The value of the `Host` header.
    pub fn authority(&self) -> &HeaderValue {
        &self.authority
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.url.fmt(f)
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Name(name) => f.write_str(name),
        }
    }
}

/// Judges the raw text, which the parser would repair silently, and finds `user@host:port` in it.
fn check_text(raw: &str) -> Result<&str, Refusal> {
    if raw.len() > MAX_URL_BYTES {
        return Err(Refusal::TooLong);
    }
    if raw.chars().any(|c| c.is_control() || c.is_whitespace() || c == '\\') {
        return Err(Refusal::Characters);
    }
    let (scheme, rest) = raw.split_once("://").ok_or(Refusal::Scheme)?;
    if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
        return Err(Refusal::Scheme);
    }
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let authority = &rest[..end];
    if authority.contains('@') {
        return Err(Refusal::Userinfo);
    }
    if authority.contains('%') {
        return Err(Refusal::EncodedHost);
    }
    if authority.is_empty() {
        return Err(Refusal::Name("it is empty"));
    }
    Ok(authority)
}

/// Octal, hexadecimal, shortened and full-width spellings are read differently by different
/// programs, so only the one usual spelling of an address is taken.
fn check_spelling(authority: &str, address: IpAddr) -> Result<Host, Refusal> {
    let written = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    if written.eq_ignore_ascii_case(&address.to_string()) {
        Ok(Host::Address(address))
    } else {
        Err(Refusal::Spelling(address))
    }
}

fn check_name(name: &str) -> Result<&str, Refusal> {
    if name.len() > MAX_NAME_BYTES {
        return Err(Refusal::Name("it is longer than 253 characters"));
    }
    for label in name.split('.') {
        if label.is_empty() {
            return Err(Refusal::Name("a part between the dots is empty"));
        }
        if label.len() > MAX_LABEL_BYTES {
            return Err(Refusal::Name("a part is longer than 63 characters"));
        }
        if label.starts_with('-') || label.ends_with('-') {
            return Err(Refusal::Name("a part begins or ends with a hyphen"));
        }
        if !label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_') {
            return Err(Refusal::Name("it has characters other than letters, digits, - and _"));
        }
    }
    Ok(name)
}

fn is_local(name: &str) -> bool {
    name == "localhost" || name.ends_with(".localhost")
}

/// Allowing loopback alone says nothing about private names; any other network does.
fn reaches_beyond_loopback(network: &IpNet) -> bool {
    const NETWORKS: [IpNet; 2] = [
        IpNet::new_assert(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)), 8),
        IpNet::new_assert(IpAddr::V6(Ipv6Addr::LOCALHOST), 128),
    ];
    !NETWORKS.iter().any(|loopback| loopback.contains(network))
}

#[cfg(test)]
pub(crate) mod tests;
