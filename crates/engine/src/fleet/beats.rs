//! Stays a member, takes up what it is given, and hands over what it is to give.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use postrider_core::{EndpointId, HubId};
use postrider_store::Error as StoreError;
use postrider_store::fleet::{Beat, Charge, Fleet as Register, NodeId, Tenure, To};

use super::words::Word;
use super::{Asked, First, Fleet, new_node};
use crate::ports;
use crate::scheduler::Legacy;
use crate::shared::Shared;
use crate::{endpoints, failing, hubs, jobs};

/// A lease holds this many beats.
const BEATS: u32 = 4;
/// After the store could not be asked, the wait before it is tried again.
const PAUSE: Duration = Duration::from_millis(250);
/// How long after another's lease has ended it is looked at.
const AFTER_LAPSE: Duration = Duration::from_millis(20);
/// Beats are at least this far apart, however often one is asked for.
const LEAST: Duration = Duration::from_millis(10);

/// Acts upon the first beat, when everything is loaded.
pub(crate) async fn begin(shared: &Arc<Shared>, first: First) -> Result<(), StoreError> {
    let Some((fleet, store)) = shared.sharing() else { return Ok(()) };
    act(shared, fleet, &first.beat, first.asked).await?;
    fleet.tell(store, To::All, &Word::Lanes);
    Ok(())
}

/// Beats until the node has left.
pub(crate) async fn run(shared: Arc<Shared>) {
    let Some((fleet, store)) = shared.sharing() else { return };
    let mut wait = fleet.options.lease / BEATS;
    loop {
        rest(&shared, fleet, wait).await;
        if fleet.inner.lock().node.0 == LEFT {
            return;
        }
        let beaten = match beat(&shared, fleet, store).await {
            Ok(next) => hand_over(&shared, fleet, store).await.map(|()| next),
            Err(error) => Err(error),
        };
        wait = match beaten {
            Ok(next) => next,
            Err(StoreError::Closed) => return,
            Err(error) => {
                tracing::debug!(%error, "the store did not answer a beat, trying again");
                ports::pause(fleet.clock.machine(), PAUSE).await;
                Duration::ZERO
            }
        };
    }
}

/// No node has this.
const LEFT: i64 = -1;

/// Until it is time, somebody asks, or what is being left may have come to rest.
async fn rest(shared: &Shared, fleet: &Fleet, wait: Duration) {
    let machine = fleet.clock.machine();
    let until = machine.monotonic() + wait;
    loop {
        let settled = shared.settled.notified();
        tokio::pin!(settled);
        settled.as_mut().enable();
        let leaving: Vec<Charge> = fleet.inner.lock().leaving.iter().copied().collect();
        let at_rest = {
            let scheduler = shared.scheduler.lock();
            leaving.iter().any(|charge| scheduler.in_flight_of(*charge) == 0)
        };
        let left = until.saturating_sub(machine.monotonic());
        if at_rest || left.is_zero() {
            break;
        }
        tokio::select! {
            biased;
            () = fleet.beat.notified() => break,
            () = &mut settled, if !leaving.is_empty() => {}
            () = ports::pause(machine, left) => {}
        }
    }
    if wait > LEAST {
        ports::pause(machine, LEAST.min(wait)).await;
    }
}

/// Asks the store, and acts upon the answer. Returns when to ask again.
async fn beat(
    shared: &Arc<Shared>,
    fleet: &Fleet,
    store: &dyn Register,
) -> Result<Duration, StoreError> {
    let in_flight = shared.scheduler.lock().in_flight();
    let asked = fleet.asked();
    if !fleet.believes() {
        fleet.be_patient();
    }
    let pulse = fleet.pulse(in_flight);
    let Some(beat) = store.beat(pulse).await? else {
        join_again(shared, fleet, store).await?;
        return Ok(Duration::ZERO);
    };
    fleet.clock.set(beat.now);
    if fleet.told_listening.swap(pulse.listens, Ordering::Relaxed) != pulse.listens {
        // The others see it in the store now.
        fleet.tell(store, To::All, &Word::Lanes);
    }
    act(shared, fleet, &beat, asked).await?;
    let regular = fleet.options.lease / BEATS;
    Ok(beat.next_lapse.map_or(regular, |lapse| regular.min(lapse + AFTER_LAPSE)))
}

async fn act(
    shared: &Arc<Shared>,
    fleet: &Fleet,
    beat: &Beat,
    asked: Asked,
) -> Result<(), StoreError> {
    let node = fleet.node();
    let mine = beat.held.iter().filter(|held| held.node == node).map(|held| held.tenure);
    let mine: BTreeMap<Charge, Tenure> = mine.map(|tenure| (tenure.charge, tenure)).collect();
    let (lost, gained) = {
        let mut inner = fleet.inner.lock();
        let listened = beat.nodes.iter().any(|member| member.listens && member.node != node);
        fleet.listened.store(listened, Ordering::Relaxed);
        inner.members.clone_from(&beat.nodes);
        // Hubs are taken outside of beats: what is newer than this one stays as it is.
        inner.holders.retain(|charge, _| matches!(charge, Charge::Hub(_)));
        for held in &beat.held {
            inner.holders.insert(held.tenure.charge, held.node);
        }
        let mut lost: Vec<Charge> = inner
            .held
            .values()
            .filter(|own| match own.charge {
                Charge::Lane(_) => mine.get(&own.charge) != Some(own),
                Charge::Hub(_) => beat
                    .held
                    .iter()
                    .any(|held| held.tenure.charge == own.charge && held.tenure.epoch > own.epoch),
            })
            .map(|own| own.charge)
            .collect();
        lost.sort_unstable();
        for charge in &lost {
            inner.held.remove(charge);
            inner.leaving.remove(charge);
        }
        let gained: Vec<Tenure> = mine
            .values()
            .filter(|tenure| matches!(tenure.charge, Charge::Lane(_)))
            .filter(|tenure| !inner.held.contains_key(&tenure.charge))
            .copied()
            .collect();
        (lost, gained)
    };
    lose(shared, &lost);
    fleet.believe_since(asked);
    if !gained.is_empty() {
        take_up(shared, fleet, gained).await?;
    }
    if !fleet.is_patient(&fleet.inner.lock()) {
        leave_surplus(shared, fleet, beat.surplus);
    }
    if beat.revision > fleet.configuration.seen() {
        fleet.configuration.ask();
    }
    shared.pump();
    Ok(())
}

/// Others carry these now.
fn lose(shared: &Arc<Shared>, lost: &[Charge]) {
    if lost.is_empty() {
        return;
    }
    tracing::info!(count = lost.len(), "another node has taken over");
    shared.scheduler.lock().revoke(lost, shared.clock.now());
    for charge in lost {
        match charge {
            Charge::Hub(hub) => hubs::end_line(shared, *hub, hubs::Ending::TakenOver),
            Charge::Lane(_) => {}
        }
    }
    failing::keep_own(shared);
}

/// A hub is connected to another node now.
pub(super) fn seized(shared: &Arc<Shared>, hub: HubId, by: NodeId, epoch: i64) {
    let Some(fleet) = &shared.fleet else { return };
    let charge = Charge::Hub(hub);
    let lost = {
        let mut inner = fleet.inner.lock();
        let lost = inner.held.get(&charge).is_some_and(|own| own.epoch < epoch);
        if lost {
            inner.held.remove(&charge);
            inner.leaving.remove(&charge);
        }
        if !inner.held.contains_key(&charge) {
            inner.holders.insert(charge, by);
        }
        lost
    };
    if lost {
        lose(shared, &[charge]);
    }
}

/// Carries more, each endpoint as its last carrier left it.
async fn take_up(
    shared: &Arc<Shared>,
    fleet: &Fleet,
    gained: Vec<Tenure>,
) -> Result<(), StoreError> {
    let legacies = legacies(shared).await?;
    let failing = shared.store.failing().await?;
    let now = shared.clock.now();
    {
        let mut inner = fleet.inner.lock();
        inner.held.extend(gained.iter().map(|tenure| (tenure.charge, *tenure)));
    }
    let charges: HashSet<Charge> = gained.iter().map(|tenure| tenure.charge).collect();
    let is_new = |endpoint: EndpointId| charges.contains(&Charge::Lane(fleet.lane_of(endpoint)));
    let failing = failing.into_iter().filter(|(endpoint, _)| is_new(*endpoint)).collect();
    shared.failing.lock().restore(failing, now);
    shared.scheduler.lock().grant(&gained, &legacies, now);
    tracing::info!(lanes = gained.len(), "carrying more lanes");
    if let Some(store) = shared.store.fleet() {
        // Whoever has something for them is to know.
        fleet.tell(store, To::All, &Word::Lanes);
    }
    let shared = Arc::clone(shared);
    shared.runtime.clone().spawn(async move {
        // A beat must not wait for whoever changes the configuration.
        if let Err(error) = endpoints::end_deleted(&shared).await {
            tracing::warn!(%error, "what deleted endpoints have left was not looked at");
        }
        jobs::resume_soon(&shared);
    });
    Ok(())
}

/// How endpoints stood when they were last carried.
pub(crate) async fn legacies(shared: &Shared) -> Result<HashMap<EndpointId, Legacy>, StoreError> {
    let standings = shared.store.standings().await?;
    let legacy = |standing: postrider_store::registry::Standing| {
        let (hold_until, breaker) = (standing.hold_until, standing.breaker);
        (standing.endpoint, Legacy { hold_until, breaker })
    };
    Ok(standings.into_iter().map(legacy).collect())
}

/// Starts nothing more of as many lanes as there are to be given up, idle ones first.
fn leave_surplus(shared: &Shared, fleet: &Fleet, surplus: usize) {
    let mut leaving = Vec::new();
    {
        let scheduler = shared.scheduler.lock();
        let mut inner = fleet.inner.lock();
        let lanes = |charge: &&Charge| matches!(charge, Charge::Lane(_));
        let already = inner.leaving.iter().filter(lanes).count();
        let mut candidates: Vec<Charge> = inner.held.keys().filter(lanes).copied().collect();
        candidates.retain(|charge| !inner.leaving.contains(charge));
        candidates
            .sort_by_key(|charge| (scheduler.in_flight_of(*charge), std::cmp::Reverse(*charge)));
        leaving.extend(candidates.into_iter().take(surplus.saturating_sub(already)));
        inner.leaving.extend(&leaving);
    }
    if !leaving.is_empty() {
        shared.scheduler.lock().revoke(&leaving, shared.clock.now());
    }
}

/// Gives up what is to be left and has nothing in flight.
async fn hand_over(
    shared: &Arc<Shared>,
    fleet: &Fleet,
    store: &dyn Register,
) -> Result<(), StoreError> {
    let leaving: Vec<Charge> = fleet.inner.lock().leaving.iter().copied().collect();
    if leaving.is_empty() {
        return Ok(());
    }
    let at_rest: Vec<Charge> = {
        let scheduler = shared.scheduler.lock();
        leaving.into_iter().filter(|charge| scheduler.in_flight_of(*charge) == 0).collect()
    };
    let tenures: Vec<Tenure> = {
        let inner = fleet.inner.lock();
        at_rest.iter().filter_map(|charge| inner.held.get(charge).copied()).collect()
    };
    if tenures.is_empty() {
        return Ok(());
    }
    note_breakers(shared, fleet, &at_rest).await?;
    let writing = Arc::clone(shared);
    shared.runtime.spawn(async move { failing::write(&writing).await });
    let node = fleet.node();
    store.release(node, tenures.clone()).await?;
    {
        let mut inner = fleet.inner.lock();
        for tenure in &tenures {
            // A hub may have come back meanwhile.
            if inner.held.get(&tenure.charge) == Some(tenure) {
                inner.held.remove(&tenure.charge);
                inner.leaving.remove(&tenure.charge);
                inner.holders.remove(&tenure.charge);
            }
        }
    }
    fleet.tell(store, To::All, &Word::Lanes);
    Ok(())
}

/// The next carrier is to know which endpoints do not answer.
async fn note_breakers(
    shared: &Shared,
    fleet: &Fleet,
    charges: &[Charge],
) -> Result<(), StoreError> {
    let noted: Vec<(EndpointId, Option<String>)> = {
        let routes = shared.routes.load();
        let scheduler = shared.scheduler.lock();
        let left = routes
            .all()
            .map(|route| route.id())
            .filter(|endpoint| charges.contains(&Charge::Lane(fleet.lane_of(*endpoint))));
        left.filter_map(|endpoint| Some((endpoint, Some(scheduler.breaker_note(endpoint)?))))
            .collect()
    };
    if noted.is_empty() { Ok(()) } else { shared.store.note_breakers(noted).await }
}

/// The others had given this node up: it begins anew, with nothing.
async fn join_again(
    shared: &Arc<Shared>,
    fleet: &Fleet,
    store: &dyn Register,
) -> Result<(), StoreError> {
    let mut lost: Vec<Charge> = fleet.inner.lock().held.keys().copied().collect();
    lost.sort_unstable();
    lose(shared, &lost);
    let joined = store.join(new_node(&fleet.options, fleet.clock.machine().now())).await?;
    let highest = shared.store.highest_id().await?;
    {
        let mut inner = fleet.inner.lock();
        (inner.node, inner.number) = (joined.node, joined.number);
        inner.held.clear();
        inner.leaving.clear();
    }
    shared.intake.lock().ids.renumber(joined.number, highest);
    shared.notices.renumber(joined.number);
    fleet.asks.hear_anew();
    tracing::warn!(node = %joined.node, "had been given up by the others; joined again");
    Ok(())
}

/// Gives up everything and leaves; what is in flight at that moment is sent again by others.
pub(crate) async fn leave(shared: &Shared) {
    let Some((fleet, store)) = shared.sharing() else { return };
    let node = fleet.node();
    if let Err(error) = store.leave(node).await {
        tracing::warn!(%error, "could not leave; the others take over when the lease has ended");
    }
    fleet.tell(store, To::All, &Word::Lanes);
    {
        let mut inner = fleet.inner.lock();
        inner.held.clear();
        inner.node.0 = LEFT;
    }
    fleet.beat.notify_one();
}
