//! Long work that survives a restart: the paced replay of dead letters, oldest event first.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use postrider_core::delivery::State;
use postrider_core::{EndpointId, JobId};
use postrider_store::fleet::Tenure;
use postrider_store::ledger::{DeliveryFilter, DeliveryQuery, Direction, Position};
use postrider_store::record::DeliveryRecord;
use postrider_store::registry::{JobRecord, JobState};

use crate::acting::Acting;
use crate::engine::Engine;
use crate::error::Error;
use crate::ports;
use crate::shared::Shared;

/// Deliveries looked at in one step.
const STEP: usize = 100;
/// The longest it works without noting how far it has come.
const NOTE_EVERY: Duration = Duration::from_secs(1);
/// The fastest pace that can be asked for.
const MAX_RATE: f64 = 10_000.0;
/// The wait after a failure of the store.
const PAUSE: Duration = Duration::from_secs(1);

impl Engine {
    /// Begins a replay of the dead letters that match. It goes on after a restart.
    pub async fn replay_dead_letters(
        &self,
        acting: Acting,
        filter: DeliveryFilter,
        rate_per_second: Option<f64>,
    ) -> Result<JobRecord, Error> {
        if rate_per_second.is_some_and(|rate| !(rate > 0.0 && rate <= MAX_RATE)) {
            let message = format!("must be more than 0 and at most {MAX_RATE}");
            return Err(Error::invalid("rate_per_second", message));
        }
        let (shared, tenant) = (&self.shared, acting.tenant);
        let now = shared.clock.now();
        let matched = shared.store.count_dead_letters(tenant, filter.clone()).await?;
        let job = JobRecord {
            id: JobId::from_i64(shared.take_ids(1)),
            tenant,
            filter,
            rate_per_second,
            state: JobState::Running,
            matched,
            replayed: 0,
            skipped: 0,
            position: None,
            created_at: now,
            updated_at: now,
        };
        let detail = serde_json::to_value(&job.filter).ok();
        let audit = acting.audit(now, "dead_letters.replay", job.id, detail.as_ref());
        shared.store.put_job(job.clone(), Some(audit), None).await?;
        if let Some((fleet, store)) = shared.sharing() {
            fleet.tell_of_job(store);
        }
        begin(shared, job.clone());
        Ok(job)
    }
}

/// The jobs that this node works on.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    running: Mutex<HashSet<JobId>>,
}

/// By what right this node works on a job.
enum Right {
    /// There is no other node.
    Always,
    /// It keeps the lane that the job belongs to.
    By(Tenure),
    /// Another node does.
    None,
}

fn right(shared: &Shared, job: JobId) -> Right {
    let Some(fleet) = &shared.fleet else { return Right::Always };
    let lane = fleet.lane_of(EndpointId::from_i64(job.as_i64()));
    fleet.keeps(lane).map_or(Right::None, Right::By)
}

/// Works on those of `jobs`, which have not ended, that are this node's to do.
pub(crate) fn begin_all(shared: &Arc<Shared>, jobs: Vec<JobRecord>) {
    for job in jobs {
        begin(shared, job);
    }
}

/// Works on all that has not ended, as soon as may be.
pub(crate) fn resume_soon(shared: &Arc<Shared>) {
    let shared = Arc::clone(shared);
    shared.runtime.clone().spawn(async move {
        match shared.store.open_jobs().await {
            Ok(jobs) => begin_all(&shared, jobs),
            Err(error) => tracing::debug!(%error, "could not look for jobs"),
        }
    });
}

fn begin(shared: &Arc<Shared>, job: JobRecord) {
    match right(shared, job.id) {
        Right::Always | Right::By(_) => {}
        Right::None => return,
    }
    if shared.jobs.running.lock().insert(job.id) {
        let shared = Arc::clone(shared);
        shared.runtime.clone().spawn(async move {
            let id = job.id;
            run(&shared, job).await;
            shared.jobs.running.lock().remove(&id);
        });
    }
}

/// Works on a job to its end, however often the store fails meanwhile, or until it is another node's.
async fn run(shared: &Arc<Shared>, mut job: JobRecord) {
    let engine = Engine { shared: Arc::clone(shared) };
    let mut pace = Pace { next: shared.clock.monotonic() };
    while job.state == JobState::Running {
        match right(shared, job.id) {
            Right::Always | Right::By(_) => {}
            Right::None => return,
        }
        if let Err(error) = advance(&engine, &mut job, &mut pace).await {
            if let Error::Store(postrider_store::Error::Closed) = error {
                return;
            }
            tracing::warn!(job = %job.id, %error, "the replay stumbled, trying again");
            ports::pause(&*shared.clock, PAUSE).await;
        }
    }
    tracing::info!(job = %job.id, replayed = job.replayed, skipped = job.skipped, "replay finished");
}

/// Replays the next few dead letters and notes how far it has come.
async fn advance(engine: &Engine, job: &mut JobRecord, pace: &mut Pace) -> Result<(), Error> {
    let shared = &engine.shared;
    let mut filter = job.filter.clone();
    filter.states.retain(|state| state.is_dead_letter());
    if filter.states.is_empty() {
        filter.states = vec![State::Failed, State::Dead];
    }
    let query = DeliveryQuery {
        filter,
        after: job.position,
        direction: Direction::OldestFirst,
        limit: STEP,
    };
    let listed = shared.store.deliveries(job.tenant, query).await?;
    for record in &listed.rows {
        if is_of(job, record) {
            pace.wait(shared, job.rate_per_second).await;
            match engine.retry(Acting::gateway(job.tenant), record.id).await {
                Ok(_) => job.replayed += 1,
                Err(Error::NotFound | Error::Conflict(_) | Error::Invalid { .. }) => {
                    job.skipped += 1;
                }
                Err(error @ Error::Store(_)) => return Err(error),
            }
        }
        job.position = Some(Position { event: record.event, delivery: record.id });
        if shared.clock.now().since(job.updated_at) >= NOTE_EVERY {
            note(shared, job).await?;
        }
    }
    match listed.next {
        Some(next) => job.position = Some(next),
        None => job.state = JobState::Finished,
    }
    note(shared, job).await
}

async fn note(shared: &Shared, job: &mut JobRecord) -> Result<(), Error> {
    job.updated_at = shared.clock.now();
    let tenure = match right(shared, job.id) {
        Right::Always => None,
        Right::By(tenure) => Some(tenure),
        Right::None => return Err(passed_on()),
    };
    let noted = shared.store.put_job(job.clone(), None, tenure).await?;
    if noted { Ok(()) } else { Err(passed_on()) }
}

fn passed_on() -> Error {
    Error::Conflict("another node works on it now".into())
}

/// Only what was dead when the job was made: what it replayed itself and died again is not its
/// business, even if a restart makes it look twice.
fn is_of(job: &JobRecord, record: &DeliveryRecord) -> bool {
    record.ended_at.is_some_and(|ended| ended <= job.created_at)
}

/// Spreads replays evenly.
struct Pace {
    /// In monotonic time: nobody who sets the clock holds up a replay.
    next: Duration,
}

impl Pace {
    async fn wait(&mut self, shared: &Shared, rate: Option<f64>) {
        let Some(rate) = rate else { return };
        ports::pause(&*shared.clock, self.next.saturating_sub(shared.clock.monotonic())).await;
        let gap = Duration::try_from_secs_f64(1.0 / rate).unwrap_or(Duration::MAX);
        self.next = self.next.max(shared.clock.monotonic()).saturating_add(gap);
    }
}
