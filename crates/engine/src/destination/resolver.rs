//! Who answers for names: the port that the guard asks through, and its two implementations, the
//! system's resolver and name servers of the operator's choice.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use futures_util::future::BoxFuture;
use hickory_resolver::TokioResolver;
use hickory_resolver::config::{
    ConnectionConfig, LookupIpStrategy, NameServerConfig, ResolveHosts, ResolverConfig,
    ResolverOpts,
};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::Name;

use super::resolve::{DNS_BUDGET, MAX_ANSWERS, MAX_LOOKUPS};

/// How many name servers may be configured.
pub const MAX_DNS_SERVERS: usize = 8;

/// How long one question may go unanswered before it is asked once more. Both tries fit into the
/// budget, so that a server that never answers for one address family does not hide the other.
const TRY_FOR: Duration = Duration::from_millis(750);
const TRIES_AGAIN: usize = 1;
/// Two questions, one per address family, for each lookup under way.
const MAX_QUESTIONS: usize = 2 * MAX_LOOKUPS;

/// Finds the addresses of names. It judges nothing.
pub trait Resolver: fmt::Debug + Send + Sync {
    /// The addresses of a name: lower-case ASCII, taken as fully qualified. More than
    /// [`MAX_ANSWERS`] need not be returned whole.
    fn addresses<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Vec<IpAddr>, LookupError>>;
}

/// Why a name has no addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LookupError {
    NoSuchName,
    NoAddress,
    TimedOut,
    /// Anything else, in words that complete "could not be resolved: …".
    Failed(String),
}

/// The resolver of the operating system, with its hosts file, search domains and caches.
#[derive(Debug, Clone, Copy, Default)]
pub struct System;

impl Resolver for System {
    fn addresses<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Vec<IpAddr>, LookupError>> {
        Box::pin(async move {
            match tokio::net::lookup_host((name, 0)).await {
                Ok(found) => Ok(found.map(|address| address.ip()).take(MAX_ANSWERS + 1).collect()),
                Err(error) => Err(LookupError::Failed(error.to_string())),
            }
        })
    }
}

/// Name servers that are asked directly, and nobody else: no hosts file, no search domains, no
/// cache. What they say is used for the one dial that asked.
pub struct NameServers {
    servers: Vec<SocketAddr>,
    resolver: TokioResolver,
}

/// Why name servers cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadNameServers {
    #[error("give at least one DNS server")]
    None,
    #[error("give at most {MAX_DNS_SERVERS} DNS servers")]
    TooMany,
    #[error("the DNS servers cannot be used: {0}")]
    Unusable(String),
}

impl NameServers {
    pub fn new(servers: &[SocketAddr]) -> Result<Self, BadNameServers> {
        if servers.is_empty() {
            return Err(BadNameServers::None);
        }
        if servers.len() > MAX_DNS_SERVERS {
            return Err(BadNameServers::TooMany);
        }
        let config = ResolverConfig::from_name_servers(servers.iter().map(name_server).collect());
        let provider = TokioRuntimeProvider::default();
        let mut builder = TokioResolver::builder_with_config(config, provider);
        *builder.options_mut() = options();
        let resolver =
            builder.build().map_err(|error| BadNameServers::Unusable(error.to_string()))?;
        Ok(Self { servers: servers.to_vec(), resolver })
    }

    async fn ask(&self, name: &str) -> Result<Vec<IpAddr>, LookupError> {
        let mut asked = Name::from_ascii(name)
            .map_err(|error| LookupError::Failed(format!("it is no name for DNS: {error}")))?;
        asked.set_fqdn(true);
        match self.resolver.lookup_ip(asked.clone()).await {
            Ok(found) => Ok(found.iter().take(MAX_ANSWERS + 1).collect()),
            Err(error) => Err(explain(&error, &asked)),
        }
    }
}

impl Resolver for NameServers {
    fn addresses<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Vec<IpAddr>, LookupError>> {
        Box::pin(async move {
            let answered = tokio::time::timeout(DNS_BUDGET, self.ask(name)).await;
            answered.unwrap_or(Err(LookupError::TimedOut))
        })
    }
}

impl fmt::Debug for NameServers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NameServers").field(&self.servers).finish()
    }
}

/// UDP, and TCP for answers that do not fit.
fn name_server(address: &SocketAddr) -> NameServerConfig {
    let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(|mut connection| {
        connection.port = address.port();
        connection
    });
    // An answer that there is no such name stands: another server is no second opinion.
    let trusted = true;
    NameServerConfig::new(address.ip(), trusted, connections.into())
}

fn options() -> ResolverOpts {
    let mut options = ResolverOpts::default();
    options.timeout = TRY_FOR;
    options.attempts = TRIES_AGAIN;
    options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
    options.cache_size = 0;
    options.positive_max_ttl = Some(Duration::ZERO);
    options.negative_max_ttl = Some(Duration::ZERO);
    options.use_hosts_file = ResolveHosts::Never;
    options.preserve_intermediates = false;
    options.max_active_requests = MAX_QUESTIONS;
    options
}

fn explain(error: &NetError, asked: &Name) -> LookupError {
    match error {
        NetError::Timeout => LookupError::TimedOut,
        NetError::Dns(DnsError::NoRecordsFound(none)) => {
            if none.response_code == ResponseCode::NXDomain {
                LookupError::NoSuchName
            } else if none.query.name() == asked {
                LookupError::NoAddress
            } else {
                LookupError::Failed("its aliases (CNAME) lead to no address".to_owned())
            }
        }
        NetError::Dns(DnsError::ResponseCode(code)) => {
            LookupError::Failed(format!("the DNS server answered \"{code}\""))
        }
        other => LookupError::Failed(other.to_string()),
    }
}
