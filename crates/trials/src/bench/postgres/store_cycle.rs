//! How many events a second the store alone appends and settles, beside hand-written SQL that writes
//! the same rows, in the same batches, over as many connections.

use anyhow::{Result, ensure};
use postrider_core::{State, TenantId};
use postrider_store::{Journal as _, Ledger as _};

use super::super::Setting;
use super::super::report::{Figure, Row, Wanted};
use super::by_hand::ByHand;
use super::carrier::{Carrier, connections, make_tables};
use super::cluster::{Cluster, Watch};
use super::contest::{ROUNDS, Team};

pub(crate) async fn measure(setting: &Setting) -> Result<Vec<Row>> {
    let cluster = Cluster::start(&setting.folder, Watch::Nothing).await?;
    let carrier = Carrier::open(&cluster.database("cycle").await?).await?;
    // The store makes the other database too, so that both have the same tables and indexes.
    let other = cluster.database("by_hand").await?;
    make_tables(&other).await?;

    let mut ours = Team::new(carrier.team());
    let mut by_hand = Team::new(ByHand::team(&other, connections()).await?);
    let turn = setting.brief / ROUNDS;
    for _ in 0..ROUNDS {
        ours.work(turn).await?;
        by_hand.work(turn).await?;
    }
    require_delivered(&carrier, ours.cycles()).await?;
    carrier.store.close().await;

    Ok(vec![Row::new(
        format!("store cycle, {} connections, beside hand-written SQL", connections()),
        Figure::per_second(ours.rate()),
        Some(Figure::per_second(by_hand.rate())),
        Wanted::RatioAtLeast(0.6),
    )])
}

/// What was measured has to have happened.
pub(crate) async fn require_delivered(carrier: &Carrier, wanted: u64) -> Result<()> {
    let counts = carrier.store.counts(TenantId::DEFAULT).await?;
    let delivered = counts.iter().filter(|count| count.state == State::Delivered);
    let delivered: u64 = delivered.map(|count| count.deliveries).sum();
    ensure!(delivered == wanted, "{delivered} of {wanted} settled are delivered");
    Ok(())
}
