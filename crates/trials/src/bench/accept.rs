//! How many events a second are acknowledged: the gateway, which commits them first, beside the
//! same server on a store that keeps nothing, and beside a bare server that stores by hand.

use std::slice;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::{Context, Result};
use serde_json::json;
use tokio::time::sleep;

use super::Setting;
use super::connection::Target;
use super::event;
use super::gateway::Gateway;
use super::load::{CONNECTIONS, Producers};
use super::peer::Peer;
use super::report::{Figure, Row, Wanted};
use super::sample::per_second;

/// How often each of the three is measured.
const TURNS: u32 = 4;

pub(crate) async fn measure(setting: &Setting) -> Result<Vec<Row>> {
    // By turns, because a shared machine is not as fast in one minute as in the next.
    let null = Peer::null()?;
    let gateway = Gateway::start(&setting.binary, &setting.folder.join("accept")).await?;
    let never = json!({"url": "http://127.0.0.1:9/never", "event_types": ["never.sent"]});
    gateway.create_endpoint(&never).await?;
    let storing = Peer::by_hand(None, &setting.folder.join("accept-by-hand")).await?;
    let (mut accepted, mut stored, mut limit) = (0.0, 0.0, 0.0);
    for _ in 0..TURNS {
        let turn = rate(&null.target()?, setting).await.context("the null server")?;
        limit += turn / f64::from(TURNS);
        let turn = rate(&storing.target()?, setting).await.context("storing by hand")?;
        stored += turn / f64::from(TURNS);
        let turn = rate(&gateway.events()?, setting).await;
        accepted += turn.with_context(|| gateway.last_words())? / f64::from(TURNS);
    }
    gateway.stop().await?;

    Ok(vec![
        Row::new(
            "accept",
            Figure::per_second(accepted),
            Some(Figure::per_second(limit)),
            Wanted::RatioAtLeast(0.5),
        ),
        Row::new(
            "accept: beside a server that stores by hand",
            Figure::per_second(accepted),
            Some(Figure::per_second(stored)),
            Wanted::Nothing,
        ),
        Row::new(
            "accept: that one beside the gateway that keeps nothing",
            Figure::per_second(stored),
            Some(Figure::per_second(limit)),
            Wanted::Nothing,
        ),
    ])
}

/// Acknowledgements a second, after a warm-up.
async fn rate(target: &Target, setting: &Setting) -> Result<f64> {
    let numbers = AtomicU64::new(0);
    let next = move || Some(event::single("bench.accept", numbers.fetch_add(1, Ordering::Relaxed)));
    let producers = Producers::start(slice::from_ref(target), CONNECTIONS, next).await?;
    sleep(setting.warm_up).await;
    let (before, started) = (producers.accepted(), Instant::now());
    sleep(setting.brief / 2).await;
    let (after, elapsed) = (producers.accepted(), started.elapsed());
    producers.stop().await?;
    Ok(per_second(after - before, elapsed))
}
