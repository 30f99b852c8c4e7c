//! The word that the server is about to stop, for what lasts longer than a request usually does.

use std::convert::Infallible;
use std::future::pending;

use axum::extract::FromRequestParts;
use http::request::Parts;
use tokio::sync::watch;

use crate::dashboard::live;
use crate::{hub_socket, leases, stream};

/// Tells a connection, and what lasts on it, that the server is about to stop.
#[derive(Debug, Clone)]
pub(crate) struct Stopping(Option<watch::Receiver<bool>>);

impl Stopping {
    pub(crate) const fn when(told: watch::Receiver<bool>) -> Self {
        Self(Some(told))
    }

    /// Of a request that no connection of this server carries: it is never told.
    pub(crate) const fn never() -> Self {
        Self(None)
    }

    pub(crate) async fn wait(&mut self) {
        match &mut self.0 {
            // An error means that the server is gone: that is a stop as well.
            Some(told) => drop(told.wait_for(|stopping| *stopping).await),
            None => pending().await,
        }
    }
}

/// Whether what is asked for at this path may take its time. Only such a request is told, and the
/// others do not pay for it.
pub(crate) fn concerns(path: &str) -> bool {
    [stream::PATH, hub_socket::PATH, live::PATH].contains(&path) || path.ends_with(leases::SUFFIX)
}

impl<S: Sync> FromRequestParts<S> for Stopping {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(parts.extensions.remove().unwrap_or_else(Self::never))
    }
}
