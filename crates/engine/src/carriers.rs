//! The ways to hand a delivery over, and which endpoint is served by which.

mod answered;
pub(crate) mod command;
pub(crate) mod handler;
pub(crate) mod http;
pub(crate) mod hub;
pub(crate) mod letter;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use crate::carrier::{Carried, Carrier, Parcel};
use crate::route::Place;

/// All of them.
#[derive(Debug)]
pub(crate) struct Carriers {
    pub(crate) http: http::HttpCarrier,
    pub(crate) command: command::CommandCarrier,
    pub(crate) hub: hub::HubCarrier,
    pub(crate) handler: handler::HandlerCarrier,
}

impl Carrier for Carriers {
    fn carry(&self, parcel: Parcel) -> BoxFuture<'static, Carried> {
        match parcel.route.place.clone() {
            Place::Url(destination) => self.http.carry(&parcel, destination),
            Place::Command(words) => {
                self.command.carry(parcel, words).map(Carried::Reported).boxed()
            }
            Place::Hub(hub) => self.hub.carry(&parcel, hub),
            Place::Handler(name) => self.handler.carry(parcel, name).map(Carried::Reported).boxed(),
            // Its endpoint was one that is sent to when this was taken out of its queue.
            Place::Pull => std::future::ready(Carried::Returned).boxed(),
        }
    }
}
