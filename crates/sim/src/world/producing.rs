//! Producers: they send, remember what they were told, and send again what nobody acknowledged.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{Either, select};
use postrider_engine::{Accepted, Submission};
use tokio::time::{sleep, timeout};

use super::{TENANT, World};
use crate::chance::Chance;
use crate::history::Submitted;
use crate::scenario::Scenario;

/// How long a producer waits for an answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often a producer sends the same again before it gives up.
const TRIES: u32 = 6;
/// How far off an event may ask to be delivered.
const LONGEST_PUT_OFF_SECS: u64 = 20_000;

/// How soon after something befell a node the next event comes at the latest.
const STRUCK_FOR_MS: u64 = 8_000;

/// Ends when all has been sent.
pub(super) async fn produce(world: &Arc<World>) {
    let chance = world.chance.apart();
    let events = world.scenario.events;
    let Scenario { pace, trouble, .. } = world.scenario;
    // Long enough to be worth waiting for, and over before the world is.
    let longest = trouble.as_secs().clamp(1, LONGEST_PUT_OFF_SECS);
    let mut sending = tokio::task::JoinSet::new();
    for number in 0..events {
        // Now and then all at once.
        if !chance.once_in(4) {
            wait(world, &chance, pace.mul_f64(2.0 * chance.share())).await;
        }
        world.stirred.notify_waiters();
        let key = chance.once_in(2).then(|| format!("key {number}"));
        let now = world.ground.time.now();
        let later = Duration::from_secs(chance.between(1, longest));
        let submitted = Submitted {
            tenant: TENANT,
            kind: "thing.happened".to_owned(),
            body: Bytes::from(format!("{{\"number\":{number}}}")),
            key,
            ordering_key: chance.once_in(2).then(|| format!("line {}", chance.below(4))),
            deliver_at: chance.once_in(10).then(|| now.plus(later)),
            acknowledged: None,
        };
        sending.spawn(send(Arc::clone(world), submitted));
    }
    sending.join_all().await;
}

/// Waits for the time of the next event. What befalls a node while nothing goes on tells little, so an
/// event comes right after it.
async fn wait(world: &World, chance: &Chance, its_time: Duration) {
    let struck = world.struck.notified();
    let struck = matches!(select(pin!(struck), pin!(sleep(its_time))).await, Either::Left(_));
    if struck {
        sleep(Duration::from_millis(chance.below(STRUCK_FOR_MS))).await;
    }
}

/// What a producer sends.
pub(super) fn submission(submitted: &Submitted) -> Submission {
    Submission {
        kind: submitted.kind.clone(),
        content_type: "application/json".to_owned(),
        body: submitted.body.clone(),
        idempotency_key: submitted.key.clone(),
        ordering_key: submitted.ordering_key.clone(),
        deliver_at: submitted.deliver_at,
        metadata: None,
        source: None,
        verified: None,
        headers: Vec::new(),
        trace: None,
    }
}

pub(super) async fn send(world: Arc<World>, submitted: Submitted) {
    let chronicle = world.ground.chronicle.clone();
    let submission = submission(&submitted);
    let pause = if world.scenario.is_brief() { 10 } else { 60 };
    let (tenant, repeatable) = (submitted.tenant, submitted.key.is_some());
    let index = chronicle.submitting(submitted);
    for _ in 0..TRIES {
        if let Some(node) = world.any_node() {
            // A process that stands still takes nothing in, and the word of one that dies before it
            // can speak is not heard.
            let answer = timeout(PATIENCE, async {
                node.gate.pass().await;
                let answer = node.engine.accept(tenant, vec![submission.clone()]).await;
                node.gate.pass().await;
                answer
            });
            match answer.await {
                Ok(Ok(accepted)) => {
                    if let Some(Accepted::New { id, .. } | Accepted::Duplicate { id, .. }) =
                        accepted.first()
                    {
                        chronicle.acknowledged(index, *id);
                    }
                    return;
                }
                // Without a key it could be there twice.
                Ok(Err(_)) | Err(_) if !repeatable => return,
                Ok(Err(_)) | Err(_) => {}
            }
        }
        sleep(Duration::from_secs(world.chance.between(1, pause))).await;
    }
}
