//! What befalls whole nodes and endpoints: crashes, pauses beyond their leases, clocks that jump, disks
//! that fill, cables that are pulled, endpoints that fail for a while; and whoever starts dead processes
//! again.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::select;
use tokio::time::sleep;

use super::World;
use crate::chance::Chance;
use crate::hazard::Hazard;
use crate::history::{FaultKind, Hitch};

const DAY_MS: u64 = 86_400_000;
/// How soon after an event something happens at the latest: while it is stored, carried, answered, tried
/// again.
const BUSY_FOR_MS: [u64; 4] = [20, 60, 2_000, 40_000];
const DISTURBANCES: [Hazard; 7] = [
    Hazard::Crashes,
    Hazard::Pauses,
    Hazard::Jumps,
    Hazard::FullDisks,
    Hazard::CutOffs,
    Hazard::Partitions,
    Hazard::Outages,
];

/// Starts a process again whenever it has died.
pub(super) async fn keep_up(world: Arc<World>, index: usize) {
    while let Some(node) = world.node(index) {
        node.gate.died().await;
        world.restart(index).await;
    }
}

/// Events come hours apart where a world lasts for days, and nothing goes on in between: waits for the
/// next one, and for a part of what it takes to carry it.
async fn until_busy(world: &World, chance: &Chance) {
    let next = world.stirred.notified();
    select(pin!(next), pin!(sleep(2 * world.scenario.pace))).await;
    let within = chance.choose(&BUSY_FOR_MS).copied().unwrap_or_default();
    sleep(Duration::from_millis(chance.below(within))).await;
}

pub(super) async fn disturb(world: Arc<World>) {
    let Some(every) = world.scenario.disturbance_every else { return };
    let chance = world.chance.apart();
    let chronicle = world.ground.chronicle.clone();
    loop {
        sleep(every.mul_f64(0.5 + chance.share())).await;
        if chance.once_in(2) {
            until_busy(&world, &chance).await;
        }
        let index = usize::try_from(chance.below(world.scenario.nodes as u64)).unwrap_or(0);
        let endpoint = chance.below(world.scenario.endpoints.len() as u64);
        // Twice as long as a lease at the longest, so that some pauses are longer than it.
        let longest = world.scenario.lease.as_millis().saturating_mul(2);
        let a_while = chance.between(500, u64::try_from(longest).unwrap_or(60_000));
        let a_while = Duration::from_millis(a_while);
        let by_ms = i64::try_from(chance.below(2 * DAY_MS)).unwrap_or(0);
        let by_ms = by_ms - i64::try_from(DAY_MS).unwrap_or(0);
        let hazard = chance.choose(&DISTURBANCES).copied().unwrap_or(Hazard::Crashes);
        // All is drawn before anything is left out, so that leaving one out leaves the others.
        if world.scenario.without.contains(&hazard) || !world.is_running(index) {
            continue;
        }
        let Some(node) = world.node(index) else { continue };
        world.struck.notify_waiters();
        match hazard {
            Hazard::Crashes => {
                chronicle.fault(index, FaultKind::Crash);
                node.gate.kill();
            }
            Hazard::Pauses => {
                chronicle.fault(index, FaultKind::Pause);
                node.gate.pause();
                sleep(a_while).await;
                node.gate.resume();
            }
            Hazard::Jumps => {
                chronicle.fault(index, FaultKind::ClockJump);
                node.setting.jump(by_ms);
                sleep(a_while).await;
                node.setting.correct();
            }
            Hazard::FullDisks => {
                chronicle.fault(index, FaultKind::DiskFull);
                node.weather.fill_disk(true);
                sleep(a_while).await;
                node.weather.fill_disk(false);
            }
            Hazard::CutOffs => {
                chronicle.fault(index, FaultKind::CutOff);
                node.weather.cut_off(true);
                sleep(a_while).await;
                node.weather.cut_off(false);
            }
            Hazard::Partitions => {
                chronicle.fault(index, FaultKind::Partition);
                world.ground.internet.part(index, true);
                sleep(a_while).await;
                world.ground.internet.part(index, false);
            }
            Hazard::Outages => {
                let endpoint = usize::try_from(endpoint).unwrap_or(0);
                chronicle.hitch(Hitch::Outage);
                world.ground.internet.take_down(endpoint, true);
                sleep(a_while * 10).await;
                world.ground.internet.take_down(endpoint, false);
            }
            Hazard::Refusals
            | Hazard::Unheard
            | Hazard::Slowness
            | Hazard::Loss
            | Hazard::Delay
            | Hazard::Duplication
            | Hazard::Manners
            | Hazard::Operator => {}
        }
    }
}
