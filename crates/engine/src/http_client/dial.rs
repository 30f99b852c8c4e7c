//! Opening a connection: resolve, connect to a vetted address, TLS, HTTP handshake.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::connection::{Connection, Http1, Http2};
use super::endpoint_tls::EndpointTls;
use super::failure::{Failure, Stage};
use super::proxy::{EgressProxy, Unreached};
use super::tls::{self, Connectors};
use crate::destination::{Guard, Host, Origin, Scheme};

/// How long connecting may take, all addresses of a name together.
pub const CONNECT_BUDGET: Duration = Duration::from_secs(5);

pub(super) struct Dialer {
    pub(super) guard: Arc<Guard>,
    pub(super) connectors: Connectors,
    pub(super) proxy: Option<EgressProxy>,
}

impl Dialer {
    pub(super) async fn dial(
        &self,
        origin: &Origin,
        tls: Option<&EndpointTls>,
        stage: &mut Stage,
    ) -> Result<Connection, Failure> {
        *stage = Stage::Resolving;
        let resolved = self.guard.resolve(&origin.host, origin.port).await;
        let addresses = resolved.map_err(|error| Failure::resolve(&error))?;
        *stage = Stage::Connecting;
        let (tcp, peer) = self.connect(&addresses, &origin.host).await?;
        match origin.scheme {
            Scheme::Http => Http1::plain(TokioIo::new(tcp), peer).await,
            Scheme::Https => {
                *stage = Stage::Handshaking;
                let name = server_name(&origin.host)?;
                let connector = self.connectors.for_endpoint(tls).map_err(|error| {
                    Failure::protocol(format!("the endpoint's TLS settings are unusable: {error}"))
                })?;
                let secured = connector.connect(name, tcp).await;
                let stream = secured.map_err(|error| Failure::tls(&error, &origin.host, peer))?;
                if stream.get_ref().1.alpn_protocol() == Some(tls::HTTP2) {
                    Http2::open(stream, peer).await
                } else {
                    Http1::secured(TokioIo::new(stream), peer).await
                }
            }
        }
    }

    /// Tries the addresses in turn; each gets an equal share of the time that is left, so that a
    /// dead first address leaves time for the next.
    async fn connect(
        &self,
        addresses: &[SocketAddr],
        host: &Host,
    ) -> Result<(TcpStream, SocketAddr), Failure> {
        let end = Instant::now() + CONNECT_BUDGET;
        let mut last = Failure::protocol(format!("{host} has no address to connect to"));
        for (tried, &peer) in addresses.iter().enumerate() {
            let untried = u32::try_from(addresses.len() - tried).unwrap_or(u32::MAX);
            let share = end.saturating_duration_since(Instant::now()) / untried;
            last = match tokio::time::timeout(share, self.reach(peer)).await {
                Ok(Ok(stream)) => return Ok((stream, peer)),
                Ok(Err(Unreached::Here(failure))) => failure,
                Ok(Err(Unreached::Anywhere(failure))) => return Err(failure),
                Err(_) => Failure::connect_timeout(share, peer, self.proxy.as_ref()),
            };
        }
        Err(last)
    }

    async fn reach(&self, peer: SocketAddr) -> Result<TcpStream, Unreached> {
        if let Some(proxy) = &self.proxy {
            return proxy.tunnel(&self.guard, peer).await;
        }
        let failed = |error| Unreached::Here(Failure::connect(&error, peer));
        let stream = TcpStream::connect(peer).await.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        Ok(stream)
    }
}

fn server_name(host: &Host) -> Result<ServerName<'static>, Failure> {
    match host {
        Host::Address(address) => Ok(ServerName::IpAddress(IpAddr::into(*address))),
        Host::Name(name) => ServerName::try_from(name.to_string())
            .map_err(|_| Failure::protocol(format!("{name} cannot be a name in a certificate"))),
    }
}
