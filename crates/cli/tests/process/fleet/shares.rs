//! Nodes come and go, and share the lanes.

use std::time::Duration;

use super::Fleet;
use crate::cluster::Cluster;

/// Longer than any of this may take: so nothing that is shared out was waited for until a lease
/// ended.
const LONG_LEASE: Duration = Duration::from_mins(4);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_share_the_lanes_as_they_come_and_go() {
    let mut fleet = Fleet::idle(&Cluster::shared().database(), LONG_LEASE).await;
    for node in 0..3 {
        fleet.launch(node).await;
        fleet.settled().await;
    }
    let mut seen = Vec::new();
    for node in fleet.running() {
        let census = fleet.census(node).await.expect("it answers");
        assert_eq!(census.lanes, 64);
        assert!(census.nodes.iter().any(|seat| seat.id == census.me), "{census:?}");
        assert!(!seen.contains(&census.me), "each is another: {census:?}");
        seen.push(census.me);
    }

    let gone = seen[1].clone();
    fleet.stop(1).await;
    fleet.settled().await;
    let census = fleet.census(0).await.expect("it answers");
    let seat = census.nodes.iter().find(|seat| seat.id == gone).expect("it is remembered");
    assert!(!seat.live && seat.lanes.is_empty(), "{seat:?}");

    fleet.launch(1).await;
    fleet.settled().await;
    for node in [0, 2] {
        fleet.stop(node).await;
        fleet.settled().await;
    }
    let census = fleet.census(1).await.expect("it answers");
    assert_eq!(census.held_by(&census.me).len(), 64, "{census:?}");
    assert_ne!(census.me, gone, "who comes back is another");
}
