//! What everything that a node does to the world goes through, so that the node can be stopped between
//! any two things that it does: for a while, as a paused process is, or for ever, as a killed one.

use std::future::pending;

use parking_lot::Mutex;
use tokio::sync::Notify;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Life {
    Runs,
    Paused,
    /// Whoever waits at the gate waits for ever: what a dead process was about to do is not done.
    Dead,
}

#[derive(Debug)]
pub(crate) struct Gate {
    life: Mutex<Life>,
    /// Wakes whoever waits in the order in which they came, so that a world can be repeated.
    changed: Notify,
}

impl Gate {
    pub(crate) fn open() -> Self {
        Self { life: Mutex::new(Life::Runs), changed: Notify::new() }
    }

    pub(crate) fn life(&self) -> Life {
        *self.life.lock()
    }

    pub(crate) fn pause(&self) {
        self.change(Life::Runs, Life::Paused);
    }

    pub(crate) fn resume(&self) {
        self.change(Life::Paused, Life::Runs);
    }

    pub(crate) fn kill(&self) {
        *self.life.lock() = Life::Dead;
        self.changed.notify_waiters();
    }

    /// Ends at once for a running node, later for a paused one, never for a dead one.
    pub(crate) async fn pass(&self) {
        if !self.lets_pass().await {
            pending::<()>().await;
        }
    }

    /// Whether it runs, as soon as it either does or never will.
    pub(crate) async fn lets_pass(&self) -> bool {
        self.until(|life| life != Life::Paused).await == Life::Runs
    }

    /// Ends when the node has died.
    pub(crate) async fn died(&self) {
        self.until(|life| life == Life::Dead).await;
    }

    /// Ends when the node stands still.
    pub(crate) async fn stops(&self) {
        self.until(|life| life != Life::Runs).await;
    }

    async fn until(&self, wanted: impl Fn(Life) -> bool) -> Life {
        loop {
            let changed = self.changed.notified();
            let life = self.life();
            if wanted(life) {
                return life;
            }
            changed.await;
        }
    }

    fn change(&self, from: Life, to: Life) {
        let mut life = self.life.lock();
        if *life == from {
            *life = to;
            drop(life);
            self.changed.notify_waiters();
        }
    }
}
