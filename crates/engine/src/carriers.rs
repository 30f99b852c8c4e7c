//! The ways to hand a delivery over, and which endpoint is served by which.

pub(crate) mod command;
pub(crate) mod http;

use futures_util::future::BoxFuture;

use crate::carrier::{Carrier, Parcel, Report};
use crate::route::Place;

/// All of them.
#[derive(Debug)]
pub(crate) struct Carriers {
    pub(crate) http: http::HttpCarrier,
    pub(crate) command: command::CommandCarrier,
}

impl Carrier for Carriers {
    fn carry(&self, parcel: Parcel) -> BoxFuture<'static, Report> {
        match parcel.route.place.clone() {
            Place::Url(destination) => self.http.carry(&parcel, destination),
            Place::Command(words) => self.command.carry(parcel, words),
        }
    }
}
