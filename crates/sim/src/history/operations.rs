//! What operators did in a world, what the second tenant has, and what was seen meanwhile.

use postrider_core::{DeliveryId, EndpointId, TenantId, Timestamp};

use super::Chronicle;

#[derive(Debug, Default)]
pub(crate) struct Operations {
    /// The endpoints of the second tenant.
    pub(crate) neighbours: Vec<Neighbour>,
    pub(crate) asked: Vec<Operation>,
    pub(crate) holdings: Vec<Holding>,
    /// What one tenant was let see or change of the other's.
    pub(crate) trespasses: Vec<String>,
}

/// An endpoint of the second tenant. It alone listens to its kind of events.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Neighbour {
    pub(crate) tenant: TenantId,
    pub(crate) endpoint: EndpointId,
    pub(crate) kind: &'static str,
    pub(crate) max_in_flight: u32,
    /// No event for it has a smaller body.
    pub(crate) body_bytes: usize,
}

/// Something that an operator asked a node for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Operation {
    pub(crate) at: Timestamp,
    /// When a node said that it is done. Without that it may have been done all the same.
    pub(crate) heard: Option<Timestamp>,
    pub(crate) deed: Deed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deed {
    Pause(EndpointId),
    Resume(EndpointId),
    Delete(EndpointId),
    Rotate(EndpointId),
    Cancel(DeliveryId),
    Retry(DeliveryId),
    /// Of all dead letters.
    Replay,
}

/// What a node had in memory for an endpoint at one moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Holding {
    pub(crate) at: Timestamp,
    pub(crate) endpoint: EndpointId,
    pub(crate) window: usize,
    pub(crate) in_flight: usize,
}

impl Operations {
    /// Whether anybody asked for it, heard or not.
    pub(crate) fn is_asked(&self, deed: Deed) -> bool {
        self.asked.iter().any(|one| one.deed == deed)
    }

    /// Whether an endpoint was ever kept from being sent to by an operator.
    pub(crate) fn is_stopped(&self, endpoint: EndpointId) -> bool {
        self.is_asked(Deed::Pause(endpoint)) || self.is_asked(Deed::Delete(endpoint))
    }

    /// What was asked for an endpoint, for people to read.
    pub(crate) fn of(&self, endpoint: EndpointId) -> String {
        let asked = self.asked.iter().filter_map(|one| {
            let (what, whose) = match one.deed {
                Deed::Pause(whose) => ("pause", whose),
                Deed::Resume(whose) => ("resume", whose),
                Deed::Delete(whose) => ("delete", whose),
                Deed::Rotate(whose) => ("rotate", whose),
                Deed::Cancel(_) | Deed::Retry(_) | Deed::Replay => return None,
            };
            let heard = if one.heard.is_some() { "done" } else { "perhaps" };
            (whose == endpoint).then(|| format!("{what} at {}, {heard}", one.at))
        });
        let asked: Vec<String> = asked.collect();
        if asked.is_empty() { "left alone".to_owned() } else { asked.join("; ") }
    }

    pub(crate) fn neighbour(&self, endpoint: EndpointId) -> Option<&Neighbour> {
        self.neighbours.iter().find(|known| known.endpoint == endpoint)
    }
}

impl Chronicle {
    pub(crate) fn settled_in(&self, neighbour: Neighbour) {
        self.history.lock().operations.neighbours.push(neighbour);
    }

    /// Returns where it stands, for its answer.
    pub(crate) fn asked(&self, deed: Deed) -> usize {
        let at = self.now();
        let asked = &mut self.history.lock().operations.asked;
        asked.push(Operation { at, heard: None, deed });
        asked.len() - 1
    }

    pub(crate) fn heard(&self, index: usize) {
        let at = self.now();
        if let Some(operation) = self.history.lock().operations.asked.get_mut(index) {
            operation.heard = Some(at);
        }
    }

    pub(crate) fn held(&self, holding: Holding) {
        self.history.lock().operations.holdings.push(holding);
    }

    pub(crate) fn trespassed(&self, what: String) {
        self.history.lock().operations.trespasses.push(what);
    }
}
