//! Several nodes on one database: who is there, who carries what, and word from one to another.
//!
//! What nodes decide from what the others did is decided by the server, in the functions of the
//! schema, by its clock. The words are hints, and nothing depends on them.

use async_trait::async_trait;
use postrider_core::{EndpointId, HubId, Timestamp};
use tokio::sync::mpsc;

use super::Postgres;
use super::config::LOOK_PIECE;
use crate::error::Error;
use crate::fleet::{
    Beat, Fleet, Heard, Joined, Looked, NewNode, NodeId, NodeRecord, Pulse, Tenure, To,
};

mod carrying;
mod ears;
mod look;
mod members;
mod outbox;
mod wire;

pub(crate) use wire::{Tuned, Wire};

#[async_trait]
impl Fleet for Postgres {
    async fn join(&self, new: NewNode) -> Result<Joined, Error> {
        self.presence.check()?;
        let reader = self.members.session().await?;
        let joined = members::join(reader.session()?, &new).await?;
        drop(reader);
        self.slots.belong_to(joined.number);
        self.wire.attach(joined.node).await;
        Ok(joined)
    }

    async fn beat(&self, pulse: Pulse) -> Result<Option<Beat>, Error> {
        self.presence.check()?;
        let reader = self.members.session().await?;
        carrying::beat(reader.session()?, &pulse).await
    }

    async fn seize(&self, node: NodeId, hub: HubId) -> Result<Tenure, Error> {
        self.presence.check()?;
        let reader = self.members.session().await?;
        carrying::seize(reader.session()?, node, hub).await
    }

    async fn release(&self, node: NodeId, tenures: Vec<Tenure>) -> Result<(), Error> {
        let reader = self.members.session().await?;
        carrying::release(reader.session()?, node, tenures).await
    }

    async fn leave(&self, node: NodeId) -> Result<(), Error> {
        let reader = self.members.session().await?;
        members::leave(reader.session()?, node).await?;
        self.wire.detach(node);
        Ok(())
    }

    async fn nodes(&self, _now: Timestamp) -> Result<Vec<NodeRecord>, Error> {
        let reader = self.ledger.session().await?;
        members::nodes(reader.session()?).await
    }

    async fn look(&self, endpoints: Vec<EndpointId>) -> Result<Looked, Error> {
        let mut pieces = endpoints.chunks(LOOK_PIECE);
        let reader = self.journal.session().await?;
        let mut looked = look::look(reader.session()?, pieces.next().unwrap_or_default()).await?;
        drop(reader);
        for piece in pieces {
            let reader = self.journal.session().await?;
            looked.found.extend(look::look(reader.session()?, piece).await?.found);
        }
        Ok(looked)
    }

    fn tell(&self, from: NodeId, to: To, word: String) {
        self.wire.tell(from, to, word);
    }

    fn hear(&self, node: NodeId, room: usize) -> mpsc::Receiver<Heard> {
        self.wire.hear(node, room)
    }
}
