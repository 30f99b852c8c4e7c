//! What nodes tell one another: small texts that may get lost.

use postrider_core::{DeliveryId, EndpointId, EventId, HubId, Timestamp};
use postrider_store::fleet::MAX_WORD;
use serde::{Deserialize, Serialize};

use crate::hubs::HubConnection;
use crate::notices::Notice;
use crate::scheduler::{Blocked, EndpointHealth};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Word {
    /// Something was stored for these endpoints: at once, or due then.
    Ready(Vec<(EndpointId, Option<Timestamp>)>),
    /// Lanes are to be had, a node came, or somebody listens: beat.
    Lanes,
    /// Configuration has changed; it is at least this revision.
    Changed(i64),
    /// This node has configuration as of this revision.
    Seen(i64),
    /// A hub is connected to the node that says so.
    Seized {
        hub: HubId,
        epoch: i64,
    },
    /// There is a new job.
    Job,
    /// An endpoint that workers come to asked for a pause.
    Hold {
        endpoint: EndpointId,
        until: Timestamp,
    },
    /// What happened, for those who follow the stream.
    Notices(Vec<Notice>),
    Ask {
        number: u64,
        ask: Ask,
    },
    Answer {
        number: u64,
        answer: Answer,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ask {
    /// To keep a delivery out of scheduling while it is being changed.
    Reserve { endpoint: EndpointId, delivery: DeliveryId, event: EventId },
    /// To end that.
    Unreserve { endpoint: EndpointId, delivery: DeliveryId },
    /// How an endpoint stands, and whether a delivery of it is in flight.
    Look { endpoint: EndpointId, delivery: Option<DeliveryId> },
    /// How many deliveries a worker may have.
    Allow { endpoint: EndpointId, wanted: usize },
    /// How a hub stands.
    Hub(HubId),
    /// All retained notices after this one.
    Recall(u64),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    /// Whether it was granted.
    Reserved(bool),
    /// Another node carries it, or nobody.
    NotMine,
    Looks {
        in_flight: bool,
        health: Option<EndpointHealth>,
        blocked: Option<Blocked>,
    },
    Allowed(Result<usize, Blocked>),
    Hub {
        connection: Option<HubConnection>,
        in_flight: usize,
    },
    /// Some; more follow unless it is the last.
    Notices {
        notices: Vec<Notice>,
        last: bool,
    },
}

impl Word {
    /// None if it is too long to be told.
    pub(crate) fn encode(&self) -> Option<String> {
        // There is nothing in it that JSON could refuse.
        let text = serde_json::to_string(self).ok()?;
        (text.len() <= MAX_WORD).then_some(text)
    }

    /// None for what another version may have said.
    pub(crate) fn decode(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}

/// Cuts notices into pieces that can be told, each with some room for what goes around it. One that is
/// too long loses its texts.
pub(crate) fn pieces(notices: Vec<Notice>) -> Vec<Vec<Notice>> {
    const ROOM: usize = MAX_WORD - 200;
    let mut pieces: Vec<Vec<Notice>> = Vec::new();
    let mut left = 0;
    for mut notice in notices {
        let mut size = length(&notice);
        if size > ROOM {
            notice.detail = None;
            if let Some(delivery) = &mut notice.delivery {
                delivery.last_error = None;
                delivery.correlation_id = None;
            }
            size = length(&notice);
        }
        if let Some(piece) = pieces.last_mut().filter(|_| size <= left) {
            piece.push(notice);
        } else {
            pieces.push(vec![notice]);
            left = ROOM;
        }
        left -= size.min(left);
    }
    pieces
}

fn length(notice: &Notice) -> usize {
    // And the comma.
    serde_json::to_string(notice).map_or(0, |text| text.len() + 1)
}
