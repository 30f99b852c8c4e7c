//! What befalls whole nodes: crashes, pauses beyond their leases, clocks that jump, disks that fill,
//! cables that are pulled; and whoever starts dead processes again.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::World;
use crate::history::FaultKind;

const DAY_MS: u64 = 86_400_000;

/// Starts every process again that has died.
pub(super) async fn keep_up(world: Arc<World>) {
    loop {
        sleep(Duration::from_secs(30)).await;
        for index in 0..world.scenario.nodes {
            if world.node(index).is_some_and(|node| !node.is_alive()) {
                world.restart(index).await;
            }
        }
    }
}

pub(super) async fn disturb(world: Arc<World>) {
    let Some(every) = world.scenario.disturbance_every else { return };
    let chance = world.chance.apart();
    let chronicle = world.ground.chronicle.clone();
    loop {
        sleep(
            every.mul_f64(
                0.5 + f64::from(u32::try_from(chance.below(1_000)).unwrap_or(0)) / 1_000.0,
            ),
        )
        .await;
        let index = usize::try_from(chance.below(world.scenario.nodes as u64)).unwrap_or(0);
        if !world.is_running(index) {
            continue;
        }
        let Some(node) = world.node(index) else { continue };
        let a_while = Duration::from_millis(chance.between(500, 90_000));
        match chance.below(6) {
            0 => {
                chronicle.fault(index, FaultKind::Crash);
                node.gate.kill();
            }
            1 => {
                chronicle.fault(index, FaultKind::Pause);
                node.gate.pause();
                sleep(a_while).await;
                node.gate.resume();
            }
            2 => {
                chronicle.fault(index, FaultKind::ClockJump);
                let by = i64::try_from(chance.below(2 * DAY_MS)).unwrap_or(0);
                node.setting.jump(by - i64::try_from(DAY_MS).unwrap_or(0));
                sleep(a_while).await;
                node.setting.correct();
            }
            3 => {
                chronicle.fault(index, FaultKind::DiskFull);
                node.weather.fill_disk(true);
                sleep(a_while).await;
                node.weather.fill_disk(false);
            }
            4 => {
                chronicle.fault(index, FaultKind::CutOff);
                node.weather.cut_off(true);
                sleep(a_while).await;
                node.weather.cut_off(false);
            }
            _ => {
                chronicle.fault(index, FaultKind::Partition);
                world.ground.internet.part(index, true);
                sleep(a_while).await;
                world.ground.internet.part(index, false);
            }
        }
    }
}
