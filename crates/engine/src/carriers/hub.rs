//! Hands a delivery to the hub that its endpoint is behind, and reports what the hub met with.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Either, select};
use http::header::RETRY_AFTER;
use postrider_core::hub::{Answer, Deliver, Met, SILENCE};
use postrider_core::outcome::Sighting;
use postrider_core::{HubId, span};

use super::answered::{Answered, kept_headers};
use super::letter::{Load, Stationery};
use crate::carrier::{Carried, Parcel, Report};
use crate::hubs::{Hubs, Lost};
use crate::ports::{Clock, pause};

/// What an answer may take to come back, beyond the endpoint's own deadline. Longer than a line may be
/// silent: a hub that is gone is noticed by that, and costs no attempt.
const GRACE: Duration = SILENCE.saturating_add(Duration::from_secs(10));
/// How much of a hub's own words is kept.
const ERROR_CHARS: usize = 500;

#[derive(Debug)]
pub(crate) struct HubCarrier {
    hubs: Arc<Hubs>,
    stationery: Stationery,
    clock: Arc<dyn Clock>,
}

impl HubCarrier {
    pub(crate) fn new(hubs: Arc<Hubs>, stationery: Stationery, clock: Arc<dyn Clock>) -> Self {
        Self { hubs, stationery, clock }
    }

    pub(crate) fn carry(&self, parcel: &Parcel, hub: HubId) -> BoxFuture<'static, Carried> {
        let load = Load::of(parcel);
        let headers = self.stationery.headers(parcel, &load);
        let deliver = Deliver {
            seq: 0,
            delivery: parcel.delivery,
            event: parcel.event.id,
            endpoint: parcel.route.id(),
            endpoint_name: parcel.route.endpoint.spec.name.clone(),
            kind: parcel.event.kind.clone(),
            attempt: parcel.number,
            timeout: parcel.route.timeout,
            headers: headers
                .iter()
                .map(|(name, value)| {
                    (name.as_str().to_owned(), Bytes::copy_from_slice(value.as_bytes()))
                })
                .collect(),
            body: load.body,
        };
        let Some(mut handed) = self.hubs.hand(hub, deliver) else {
            return std::future::ready(Carried::Returned).boxed();
        };
        let clock = Arc::clone(&self.clock);
        let (timeout, now_unix_ms) = (parcel.route.timeout, parcel.started_at.as_millis());
        Box::pin(async move {
            let late = pause(&*clock, timeout.saturating_add(GRACE));
            let answered = {
                let answer = std::pin::pin!(handed.answer());
                match select(answer, std::pin::pin!(late)).await {
                    Either::Left((answered, _)) => Some(answered),
                    Either::Right(_) => None,
                }
            };
            match answered {
                Some(Ok(answer)) => Carried::Reported(read(answer, now_unix_ms)),
                Some(Err(Lost::Again)) => Carried::Returned,
                Some(Err(Lost::TooOften)) => {
                    let error = "the hub's connection ended each time that it had this delivery";
                    Carried::Reported(failed(Sighting::Network, error))
                }
                None => {
                    handed.give_up();
                    let within = span::format(timeout);
                    let error = format!("the hub did not answer, though it had {within}");
                    Carried::Reported(failed(Sighting::Timeout, &error))
                }
            }
        })
    }
}

fn read(answer: Answer, now_unix_ms: i64) -> Report {
    match answer.met {
        Met::Status { status, headers, body, truncated } => {
            let pairs = || headers.iter().map(|(name, value)| (name.as_str(), value.as_ref()));
            let retry_after =
                pairs().find(|(name, _)| *name == RETRY_AFTER.as_str()).map(|(_, value)| value);
            let kept = kept_headers(pairs());
            Answered { status, headers: kept, body, truncated }.report(
                retry_after,
                now_unix_ms,
                None,
            )
        }
        Met::Network { error } => failed(Sighting::Network, &error),
        Met::Timeout { error } => failed(Sighting::Timeout, &error),
    }
}

fn failed(sighting: Sighting, error: &str) -> Report {
    let error = error
        .chars()
        .map(|char| if char.is_control() { ' ' } else { char })
        .take(ERROR_CHARS)
        .collect();
    Report { sighting, retry_after: None, error: Some(error), response: None, result: None }
}
