//! What may be sent to, and how: the flags that a gateway shares with whoever looks at its
//! destinations.

use std::net::SocketAddr;
use std::sync::Arc;

use postrider_engine::destination::{Allowance, Guard, NameServers, Resolver, Rules, System};
use postrider_engine::http_client::EgressProxy;

use crate::Failure;

#[derive(Debug, clap::Args)]
pub(crate) struct OutboundArgs {
    /// What may be sent to although it is not public: a network such as 127.0.0.0/8, or a name such
    /// as billing.internal or *.internal; repeatable
    #[arg(
        long,
        env = "POSTRIDER_ALLOW_DESTINATION",
        value_name = "CIDR|NAME",
        value_delimiter = ','
    )]
    allow_destination: Vec<Allowance>,

    /// A port that may be sent to beside 80, 443 and the harmless ones from 1024 on; repeatable
    #[arg(long, env = "POSTRIDER_ALLOW_PORT", value_name = "PORT", value_delimiter = ',')]
    allow_port: Vec<u16>,

    /// A port that may not be sent to, whatever else is allowed; repeatable
    #[arg(long, env = "POSTRIDER_DENY_PORT", value_name = "PORT", value_delimiter = ',')]
    deny_port: Vec<u16>,

    /// A name server to ask for the addresses of destinations, instead of the system's resolver;
    /// repeatable
    #[arg(long, env = "POSTRIDER_DNS_SERVER", value_name = "ADDRESS", value_delimiter = ',')]
    pub(crate) dns_server: Vec<SocketAddr>,

    /// A proxy that every push goes through: http://[user:password@]host:port
    #[arg(long, env = "POSTRIDER_EGRESS_PROXY", hide_env_values = true, value_name = "URL")]
    pub(crate) egress_proxy: Option<EgressProxy>,

    /// Attempts under way at the same time, over all endpoints
    #[arg(long, env = "POSTRIDER_MAX_IN_FLIGHT", default_value_t = 1024, value_name = "N")]
    pub(crate) max_in_flight: usize,
}

impl OutboundArgs {
    /// What destinations are judged by.
    pub(crate) fn rules(&self) -> Rules {
        let mut rules = Rules {
            allow_ports: self.allow_port.clone(),
            deny_ports: self.deny_port.clone(),
            ..Rules::default()
        };
        for allowance in &self.allow_destination {
            rules.allow(allowance.clone());
        }
        rules
    }

    /// One that judges as the gateway's does, if it is told the same.
    pub(crate) fn guard(&self) -> Result<Guard, Failure> {
        let resolver: Arc<dyn Resolver> = if self.dns_server.is_empty() {
            Arc::new(System)
        } else {
            Arc::new(NameServers::new(&self.dns_server).map_err(Failure::usage)?)
        };
        Ok(Guard::with_resolver(self.rules(), resolver))
    }
}
