//! An unfinished delivery, as its row has it.

use std::sync::Arc;

use postrider_core::{Delivery, DeliveryId, EndpointId, EventId, TenantId};

use crate::record::{Event, Waiting};

/// The columns of [`Hot`], in their order.
pub(crate) const HOT: &str = "id, event_id, endpoint_id, state, attempts, deferrals, tries, fence, \
     born, at, line IS NOT NULL, tenant_id";

/// An unfinished delivery without its event.
#[derive(Debug, Clone)]
pub(crate) struct Hot {
    pub(crate) id: DeliveryId,
    pub(crate) event: EventId,
    pub(crate) endpoint: EndpointId,
    pub(crate) delivery: Delivery,
    pub(crate) tries: u32,
    pub(crate) fence: u32,
    pub(crate) in_line: bool,
    pub(crate) tenant: TenantId,
}

impl Hot {
    pub(crate) fn with(self, event: Arc<Event>) -> Waiting {
        Waiting {
            id: self.id,
            endpoint: self.endpoint,
            event,
            delivery: self.delivery,
            tries: self.tries,
            fence: self.fence,
            in_line: self.in_line,
        }
    }
}
