//! What other nodes carry. How a delivery stands is known to the node that carries its endpoint: who
//! asks for one is told, at the price of a question to that node; a list does not ask for each of
//! its rows, and shows what is stored.

use std::collections::HashSet;

use postrider_core::endpoint::Destination;
use postrider_core::{EndpointId, Lane, TenantId};
use postrider_engine::Engine;
use postrider_store::fleet::Charge;

use crate::problem::Problem;

#[derive(Debug, Default)]
pub(crate) struct Elsewhere {
    lanes: u16,
    held: HashSet<Charge>,
}

impl Elsewhere {
    /// As it is at the moment: lanes move.
    pub(crate) async fn find(engine: &Engine) -> Result<Self, Problem> {
        let Some(known) = engine.nodes().await? else { return Ok(Self::default()) };
        let others = known.nodes.iter().filter(|node| node.live && node.node != known.me);
        let held = others.flat_map(|node| node.held.iter().map(|tenure| tenure.charge)).collect();
        Ok(Self { lanes: known.lanes, held })
    }

    /// Whether another node carries an endpoint.
    pub(crate) fn has(&self, engine: &Engine, tenant: TenantId, id: EndpointId) -> bool {
        if self.held.is_empty() {
            return false;
        }
        let endpoint = engine.endpoint(tenant, id);
        let charge = match endpoint.as_ref().map(|endpoint| &endpoint.spec.destination) {
            Some(Destination::Hub(hub)) => Charge::Hub(*hub),
            Some(
                Destination::Url(_)
                | Destination::Command(_)
                | Destination::Pull
                | Destination::Handler(_),
            )
            | None => Charge::Lane(Lane::of(id, self.lanes)),
        };
        self.held.contains(&charge)
    }
}
