//! What takes one delivery to its place. The implementations are in `carriers/`.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use postrider_core::outcome::Sighting;
use postrider_core::{DeliveryId, Timestamp, Trace};
use postrider_store::record::{Event, Response};

use crate::route::Route;

/// One delivery in a carrier's hands.
#[derive(Debug)]
pub(crate) struct Parcel {
    pub(crate) route: Arc<Route>,
    pub(crate) event: Arc<Event>,
    pub(crate) delivery: DeliveryId,
    /// The number of this try, from 1.
    pub(crate) number: u32,
    pub(crate) started_at: Timestamp,
    /// What the receiver is told of the trace that this is part of.
    pub(crate) trace: Option<Trace>,
}

/// What a carrier saw. What it means is for the endpoint's policy to say.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) sighting: Sighting,
    pub(crate) retry_after: Option<Duration>,
    /// A sentence for the operator, unless all went well.
    pub(crate) error: Option<String>,
    pub(crate) response: Option<Response>,
    /// What whoever took it called its result.
    pub(crate) result: Option<String>,
}

/// How a carrier comes back.
#[derive(Debug)]
pub(crate) enum Carried {
    Reported(Report),
    /// With the parcel in its hands: the way is closed, and nobody can say whether it arrived. It
    /// counts for nothing.
    Returned,
}

pub(crate) trait Carrier: Send + Sync + std::fmt::Debug + 'static {
    fn carry(&self, parcel: Parcel) -> BoxFuture<'static, Carried>;
}
