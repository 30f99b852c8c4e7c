//! The nodes of a round: one on a file, or several on one database.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::interval;

use super::load::Roster;
use super::node::{self, Launch, Node};
use super::random::Random;

/// How long what waits may take to end once everything is well.
const QUIET_WITHIN: Duration = Duration::from_mins(2);
const QUIET_POLL: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(crate) struct Fleet {
    launches: Vec<Launch>,
    nodes: Vec<Option<Node>>,
    roster: watch::Sender<Roster>,
}

impl Fleet {
    pub(crate) async fn start(launches: Vec<Launch>) -> Result<Self> {
        let roster = watch::Sender::new(vec![None; launches.len()]);
        let nodes = launches.iter().map(|_| None).collect();
        let mut fleet = Self { launches, nodes, roster };
        fleet.launch_missing().await?;
        Ok(fleet)
    }

    pub(crate) fn roster(&self) -> watch::Receiver<Roster> {
        self.roster.subscribe()
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Somebody who can be asked.
    pub(crate) fn address(&self) -> Result<SocketAddr> {
        let mut running = self.nodes.iter().flatten();
        Ok(running.next().context("no node runs")?.address)
    }

    pub(crate) fn kill(&mut self, index: usize) {
        if let Some(node) = self.nodes[index].take() {
            node.kill();
        }
        self.announce();
    }

    pub(crate) fn pause(&mut self, index: usize) -> Result<()> {
        self.nodes[index].as_mut().context("it is down")?.pause()
    }

    pub(crate) fn resume(&mut self, index: usize) -> Result<()> {
        self.nodes[index].as_mut().context("it is down")?.resume()
    }

    /// Starts a node that is down, and kills it before anybody can have asked it for long.
    pub(crate) async fn launch_and_kill(&self, index: usize, after: Duration) -> Result<()> {
        let starting = self.launches[index].spawn()?;
        tokio::time::sleep(after).await;
        drop(starting);
        Ok(())
    }

    /// Starts all that are down, at the same time.
    pub(crate) async fn launch_missing(&mut self) -> Result<()> {
        let mut starting = JoinSet::new();
        for (index, launch) in self.launches.iter().enumerate() {
            if self.nodes[index].is_none() {
                let launch = launch.clone();
                starting.spawn(async move { (index, launch.start().await) });
            }
        }
        while let Some(started) = starting.join_next().await {
            let (index, node) = started.context("a node that starts")?;
            self.nodes[index] = Some(node?);
            self.announce();
        }
        Ok(())
    }

    pub(crate) async fn stop_all(&mut self) -> Result<()> {
        for index in 0..self.nodes.len() {
            if let Some(node) = self.nodes[index].take() {
                self.announce();
                node.stop().await?;
            }
        }
        Ok(())
    }

    /// Fails if a node has ended by itself.
    pub(crate) fn require_life(&mut self) -> Result<()> {
        self.nodes.iter_mut().flatten().try_for_each(Node::require_life)
    }

    /// Waits until nothing waits any more, and returns how long that took.
    pub(crate) async fn quiet(&mut self) -> Result<Duration> {
        let started = Instant::now();
        let mut poll = interval(QUIET_POLL);
        loop {
            self.require_life()?;
            let stats = node::get(self.address()?, "/v1/stats").await?;
            if unfinished(&stats)? == 0 {
                return Ok(started.elapsed());
            }
            let deliveries = &stats["deliveries"];
            ensure!(
                started.elapsed() < QUIET_WITHIN,
                "{QUIET_WITHIN:?} after the last fault not all has ended: {deliveries}"
            );
            poll.tick().await;
        }
    }

    fn announce(&self) {
        let address = |node: &Option<Node>| node.as_ref().map(|node| node.address);
        self.roster.send_replace(self.nodes.iter().map(address).collect());
    }
}

/// Which nodes a fault hits: one of them, or all at once.
pub(crate) fn victims(nodes: usize, random: &mut Random) -> Vec<usize> {
    if nodes == 1 || random.one_in(4) {
        return (0..nodes).collect();
    }
    vec![random.index(nodes)]
}

fn unfinished(stats: &Value) -> Result<u64> {
    let mut unfinished = 0;
    for state in ["pending", "in_flight", "retrying"] {
        let count = stats["deliveries"][state].as_u64();
        unfinished += count.with_context(|| format!("no count of {state} in {stats}"))?;
    }
    Ok(unfinished)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_waits_or_is_under_way_is_unfinished() {
        for (counts, expected) in [
            (json!({ "pending": 1, "in_flight": 2, "retrying": 3, "delivered": 9 }), Some(6)),
            (json!({ "pending": 0, "in_flight": 0, "retrying": 0, "failed": 9 }), Some(0)),
            (json!({ "pending": 0, "in_flight": 0 }), None),
        ] {
            assert_eq!(unfinished(&json!({ "deliveries": counts })).ok(), expected);
        }
    }

    #[test]
    fn a_single_node_is_always_the_one() {
        let mut random = Random::new(1);
        for _ in 0..20 {
            assert_eq!(victims(1, &mut random), [0]);
            assert!([1, 3].contains(&victims(3, &mut random).len()));
        }
    }
}
