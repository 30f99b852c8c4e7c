//! Every node is restarted in turn under load: nothing is lost and nothing is repeated.

use super::Fleet;
use super::load::Load;
use super::route::Route;

const PER_SECOND: u32 = 300;
const ROUNDS: usize = 2;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_restart_loses_nothing_and_repeats_nothing() {
    let mut fleet = Fleet::start().await;
    let route = Route::open(&fleet).await;
    fleet.settled().await;
    let mut load = Load::start(Route::kinds(PER_SECOND), fleet.roster());
    for _ in 0..ROUNDS {
        for node in 0..3 {
            load.accepted_by(&[0, 1, 2], std::time::Instant::now()).await;
            fleet.stop(node).await;
            fleet.launch(node).await;
        }
    }
    fleet.settled().await;
    let acks = load.finish().await;
    let repeats = route.check(&fleet, &acks).await;
    assert!(repeats.is_empty(), "{repeats:#?}");
}
