//! Pushes a delivery to a URL: signs it, sends it, and reports what came back.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use postrider_core::outcome::Sighting;

use super::answered::{Answered, kept_headers};
use super::letter::{Load, Stationery};
use crate::carrier::{Carried, Parcel, Report};
use crate::destination::Destination;
use crate::http_client::{Answer, Client, Failure, FailureKind, Post};
use crate::ports::Network;

#[derive(Debug)]
pub(crate) struct HttpCarrier {
    way: Way,
    stationery: Stationery,
}

/// How a request leaves.
#[derive(Debug, Clone)]
pub(crate) enum Way {
    Sockets(Client),
    Given(Arc<dyn Network>),
}

impl HttpCarrier {
    pub(crate) fn new(way: Way, stationery: Stationery) -> Self {
        Self { way, stationery }
    }

    pub(crate) fn carry(
        &self,
        parcel: &Parcel,
        destination: Arc<Destination>,
    ) -> BoxFuture<'static, Carried> {
        let way = self.way.clone();
        let load = Load::of(parcel);
        let secret = load.written.then(|| Arc::clone(&destination));
        let post = Post {
            destination,
            headers: self.stationery.headers(parcel, &load),
            body: load.body,
            deadline: parcel.route.timeout,
            tls: parcel.route.tls.clone(),
        };
        let now_unix_ms = parcel.started_at.as_millis();
        Box::pin(async move {
            let outcome = match way {
                Way::Sockets(client) => client.post(post).await,
                Way::Given(network) => network.post(post).await,
            };
            Carried::Reported(match outcome {
                Ok(answer) => answered(answer, now_unix_ms, secret.as_deref()),
                Err(failure) => failed(failure),
            })
        })
    }
}

fn answered(answer: Answer, now_unix_ms: i64, secret: Option<&Destination>) -> Report {
    let headers = answer.headers.iter();
    let kept = kept_headers(headers.map(|(name, value)| (name.as_str(), value.as_bytes())));
    let retry_after = answer.retry_after.as_ref().map(http::HeaderValue::as_bytes);
    Answered {
        status: answer.status,
        headers: kept,
        body: answer.body,
        truncated: answer.truncated,
    }
    .report(retry_after, now_unix_ms, secret)
}

fn failed(failure: Failure) -> Report {
    let sighting = match failure.kind {
        FailureKind::Timeout => Sighting::Timeout,
        FailureKind::Refused
        | FailureKind::Dns
        | FailureKind::Connect
        | FailureKind::Tls
        | FailureKind::Protocol
        | FailureKind::Closed => Sighting::Network,
    };
    Report {
        sighting,
        retry_after: None,
        error: Some(failure.message),
        response: None,
        result: None,
    }
}
