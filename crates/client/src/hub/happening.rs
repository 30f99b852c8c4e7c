//! What an agent reports while it runs.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::HubId;
use postrider_core::hub::{Answer, Deliver};

/// Something that happened to an agent. Whoever shows it may show as much of it as it likes: a
/// delivery is shared, not copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Happening {
    /// The gateway has welcomed the hub, under the name it has there.
    Connected { hub: HubId, name: String },
    /// There is no connection; the next try is made after `retry_in`. What was in hand goes again
    /// when there is one.
    Disconnected { reason: String, unanswered: usize, retry_in: Duration },
    /// A delivery came and is being forwarded.
    Received(Arc<Deliver>),
    /// The gateway is told what became of it.
    Answered { deliver: Arc<Deliver>, answer: Answer },
    /// The agent was told to stop, and finishes what is in hand.
    Stopping { in_hand: usize },
    /// The connection is closed after a stop. What is unanswered goes again, to the next agent.
    Stopped { unanswered: usize },
}
