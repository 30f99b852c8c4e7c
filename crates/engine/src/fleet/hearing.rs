//! Listens to what other nodes say.

use std::sync::Arc;

use postrider_store::fleet::{Heard, NodeId, To};

use super::words::Word;
use super::{Fleet, asks, beats};
use crate::jobs;
use crate::shared::Shared;

/// Words that may wait to be acted upon.
const ROOM: usize = 4_096;

/// Listens for as long as the engine lives.
pub(crate) async fn run(shared: Arc<Shared>) {
    let Some((fleet, store)) = shared.sharing() else { return };
    loop {
        let mut words = store.hear(fleet.node(), ROOM);
        loop {
            let heard = tokio::select! {
                biased;
                // Under another name from now on.
                () = fleet.asks.renamed() => break,
                heard = words.recv() => heard,
            };
            match heard {
                None => return,
                Some(Heard::Gap) => look_around(fleet),
                Some(Heard::Word { from, word }) => {
                    if let Some(word) = Word::decode(&word) {
                        act(&shared, fleet, from, word);
                    } else {
                        tracing::debug!(%from, "said what this version does not understand");
                    }
                }
            }
        }
    }
}

/// What was said is not known: what it may have been about is looked up.
fn look_around(fleet: &Fleet) {
    fleet.beat.notify_one();
    fleet.look.notify_one();
    fleet.configuration.ask();
}

fn act(shared: &Arc<Shared>, fleet: &Fleet, from: NodeId, word: Word) {
    match word {
        Word::Ready(endpoints) => {
            let now = shared.clock.now();
            {
                let mut scheduler = shared.scheduler.lock();
                for (endpoint, due) in endpoints {
                    scheduler.told_of(endpoint, due, now);
                }
            }
            shared.pump();
        }
        Word::Lanes => fleet.beat.notify_one(),
        Word::Changed(revision) => {
            if revision > fleet.configuration.seen() {
                fleet.configuration.ask();
            } else if let Some((fleet, store)) = shared.sharing() {
                fleet.tell(store, To::Node(from), &Word::Seen(fleet.configuration.seen()));
            }
        }
        Word::Seen(revision) => fleet.configuration.seen_by(from, revision),
        Word::Seized { hub, epoch } => beats::seized(shared, hub, from, epoch),
        Word::Job => jobs::resume_soon(shared),
        Word::Hold { endpoint, until } => shared.scheduler.lock().hold_desk(endpoint, until),
        Word::Notices(notices) => shared.notices.pass_on(notices),
        Word::Ask { number, ask } => asks::answer(shared, from, number, ask),
        Word::Answer { number, answer } => fleet.asks.answered(number, answer),
    }
}
