//! What everything that a node does to the world goes through, so that the node can be stopped between
//! any two things that it does: for a while, as a paused process is, or for ever, as a killed one.

use std::future::pending;

use tokio::sync::watch;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Life {
    Runs,
    Paused,
    /// Whoever waits at the gate waits for ever: what a dead process was about to do is not done.
    Dead,
}

#[derive(Debug)]
pub(crate) struct Gate {
    life: watch::Sender<Life>,
}

impl Gate {
    pub(crate) fn open() -> Self {
        Self { life: watch::Sender::new(Life::Runs) }
    }

    pub(crate) fn life(&self) -> Life {
        *self.life.borrow()
    }

    pub(crate) fn pause(&self) {
        self.life.send_if_modified(|life| replace(life, Life::Runs, Life::Paused));
    }

    pub(crate) fn resume(&self) {
        self.life.send_if_modified(|life| replace(life, Life::Paused, Life::Runs));
    }

    pub(crate) fn kill(&self) {
        self.life.send_replace(Life::Dead);
    }

    /// Ends at once for a running node, later for a paused one, never for a dead one.
    pub(crate) async fn pass(&self) {
        if self.life() == Life::Runs {
            return;
        }
        if self.life.subscribe().wait_for(|life| *life == Life::Runs).await.is_err() {
            pending::<()>().await;
        }
    }
}

fn replace(life: &mut Life, from: Life, to: Life) -> bool {
    let is = *life == from;
    if is {
        *life = to;
    }
    is
}
