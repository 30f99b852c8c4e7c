//! One run of a worker: which hands are free, which leases they hold, what is to be told.

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use postrider_core::span;
use tokio::task::{AbortHandle, JoinError, JoinSet};
use tokio::time::Instant;

use super::errand::{self, Word};
use super::{Ending, Happening, Job, Summary, Verdict, Watch, Work, WorkerOptions};
use crate::backoff::Backoff;
use crate::error::Error;
use crate::gateway::Gateway;
use crate::ports;
use crate::pull::{Lease, LeaseRequest, LeaseToken, MAX_LEASES};

/// Requests that are under way at once: those that end leases, and those that extend them.
const MAX_TELLING: usize = 16;
const MAX_EXTENDING: usize = 16;
/// A lease is extended when this part of it has passed, which leaves time to try again.
const EXTEND_AFTER: u32 = 3;
/// Leases that will have to be extended within this part of a lease go along with one that has to.
const COMPANY: u32 = 10;
/// After a failure an extension is tried again when about this part of a lease has passed.
const EXTEND_AGAIN: u32 = 12;
/// One try to extend may take this part of a lease, and no longer than that.
const EXTEND_TRY: u32 = 3;
const MAX_EXTEND_TRY: Duration = Duration::from_secs(10);
const SHORTEST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// The longest that the gateway can make a worker wait.
const MAX_ASKED_WAIT: Duration = Duration::from_mins(5);
/// The pause where the gateway has nothing and does not wait for something to come.
const IDLE_PAUSE: Duration = Duration::from_millis(500);
/// At a stop, how long an answer with leases is waited for that may be on its way: what it brings
/// can be given back at once and need not lapse.
const LAST_ANSWER: Duration = Duration::from_millis(500);
/// How long a stop takes to give back what it has cut off.
const LAST_WORDS: Duration = Duration::from_secs(5);

type Asking = BoxFuture<'static, Result<(Instant, Vec<Lease>), Error>>;

pub(super) struct Shift<'a, F> {
    gateway: &'a Gateway,
    options: &'a WorkerOptions,
    watch: &'a Watch,
    handler: Arc<F>,
    stage: Stage,
    /// The handlers; each ends with the number of what it holds.
    tasks: JoinSet<(u64, Verdict)>,
    /// What is in hand, until the gateway knows what came of it: never more than `concurrency`.
    held: BTreeMap<u64, Held>,
    last_number: u64,
    /// Of `held`, those with a word that is not on its way yet.
    ready: VecDeque<u64>,
    errands: FuturesUnordered<BoxFuture<'static, Back>>,
    telling: usize,
    extending: usize,
    /// The one request for work: it asks for no more than the hands that were free, and only its
    /// answer fills hands.
    asking: Option<Asking>,
    asked: Instant,
    ask_from: Instant,
    backoff: Backoff,
    summary: Summary,
    fatal: Option<Error>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Open,
    /// Takes no more and waits for its handlers.
    Draining {
        since: Instant,
    },
    /// Its handlers are gone; what they held is being given back.
    Leaving {
        since: Instant,
    },
}

struct Held {
    token: LeaseToken,
    job: Job,
    began: Instant,
    /// When its lease ends, as near as can be told here.
    ends: Instant,
    extend_at: Instant,
    extending: bool,
    /// When its handler has had its time.
    limit: Option<Instant>,
    phase: Phase,
}

enum Phase {
    Running(AbortHandle),
    Over(Parting, Word),
}

enum Parting {
    Verdict(Verdict),
    GivenBack,
}

/// An errand that has been run.
enum Back {
    Told { numbers: Vec<u64>, answer: Result<Vec<bool>, Error> },
    Extended { numbers: Vec<u64>, sent: Instant, answer: Result<Vec<bool>, Error> },
}

impl<'a, F, R> Shift<'a, F>
where
    F: Fn(Work) -> R + Send + Sync + 'static,
    R: Future<Output = Verdict> + Send + 'static,
{
    pub(super) fn new(
        gateway: &'a Gateway,
        options: &'a WorkerOptions,
        watch: &'a Watch,
        handler: Arc<F>,
    ) -> Self {
        let now = ports::now();
        Self {
            gateway,
            options,
            watch,
            handler,
            stage: Stage::Open,
            tasks: JoinSet::new(),
            held: BTreeMap::new(),
            last_number: 0,
            ready: VecDeque::new(),
            errands: FuturesUnordered::new(),
            telling: 0,
            extending: 0,
            asking: None,
            asked: now,
            ask_from: now,
            backoff: Backoff::new(SHORTEST_WAIT, LONGEST_WAIT),
            summary: Summary::default(),
            fatal: None,
        }
    }

    pub(super) async fn run(
        mut self,
        stop: impl Future<Output = ()>,
        hurry: impl Future<Output = ()>,
    ) -> Result<Summary, Error> {
        let (mut stop, mut hurry) = (pin!(stop), pin!(hurry));
        loop {
            while let Some(joined) = self.tasks.try_join_next() {
                self.finished(joined);
            }
            let now = ports::now();
            self.look_at_the_clock(now);
            self.tell_what_is_ready();
            if self.is_over(now) {
                break;
            }
            self.ask(now);
            let wake = self.next_wake(now);
            tokio::select! {
                biased;
                () = &mut stop, if self.stage == Stage::Open => self.stop(),
                () = &mut hurry, if matches!(self.stage, Stage::Draining { .. }) => self.cut(),
                Some(joined) = self.tasks.join_next() => self.finished(joined),
                Some(back) = self.errands.next() => self.came_back(back),
                taken = answer_to(&mut self.asking) => self.taken(taken),
                () = tokio::time::sleep_until(wake) => {}
            }
        }
        // A handler that does not yield cannot be dropped, and must not keep the worker either.
        let _ = tokio::time::timeout(LAST_WORDS, self.tasks.shutdown()).await;
        self.fatal.map_or(Ok(self.summary), Err)
    }

    fn ask(&mut self, now: Instant) {
        let free = self.options.concurrency.saturating_sub(self.held.len());
        if self.stage != Stage::Open || self.asking.is_some() || free == 0 || now < self.ask_from {
            return;
        }
        let request = LeaseRequest {
            endpoint: self.options.endpoint,
            max: free.min(MAX_LEASES),
            wait: self.options.wait,
            lease: self.options.lease,
            event_types: self.options.event_types.clone(),
        };
        let gateway = self.gateway.clone();
        self.asked = now;
        self.asking = Some(Box::pin(async move { gateway.lease_at(&request).await }));
    }

    fn taken(&mut self, answer: Result<(Instant, Vec<Lease>), Error>) {
        self.asking = None;
        let now = ports::now();
        let (at, leases) = match answer {
            Ok(taken) => taken,
            Err(error) if error.is_temporary() => {
                let asked_wait = error.retry_after().unwrap_or_default().min(MAX_ASKED_WAIT);
                let retry_in = self.backoff.next().max(asked_wait);
                self.ask_from = now + retry_in;
                self.notice(&Happening::Trouble { error: &error, retry_in });
                return;
            }
            Err(error) => {
                self.fatal = Some(error);
                self.stop();
                return;
            }
        };
        if self.backoff.reset() {
            self.notice(&Happening::Recovered);
        }
        if leases.is_empty() && now < self.asked + self.options.wait.max(IDLE_PAUSE) {
            self.ask_from = now + IDLE_PAUSE;
        }
        for lease in leases {
            self.summary.taken += 1;
            self.hold(lease, at, now);
        }
    }

    /// Gives a delivery to a handler, or back to the gateway where no more is taken.
    fn hold(&mut self, lease: Lease, at: Instant, now: Instant) {
        let Lease { token, delivery, expires_at: _, attempt, event, trace } = lease;
        let job = Job { delivery, event: event.id, kind: event.kind.clone(), attempt };
        let work = Work { delivery, endpoint: self.options.endpoint, attempt, event, trace };
        self.last_number += 1;
        let number = self.last_number;
        let phase = if self.stage == Stage::Open {
            let handler = Arc::clone(&self.handler);
            Phase::Running(self.tasks.spawn(async move {
                // The handler is called in here, where a panic of it is its own.
                let verdict = AssertUnwindSafe(async move { handler(work).await }).catch_unwind();
                (number, verdict.await.unwrap_or_else(|panic| panicked(&*panic)))
            }))
        } else {
            self.ready.push_back(number);
            Phase::Over(Parting::GivenBack, Word::Release)
        };
        let held = Held {
            token,
            job,
            began: now,
            ends: at + self.options.lease,
            extend_at: at + self.options.lease / EXTEND_AFTER,
            extending: false,
            limit: self.options.timeout.map(|timeout| now + timeout),
            phase,
        };
        self.held.insert(number, held);
    }

    fn finished(&mut self, joined: Result<(u64, Verdict), JoinError>) {
        // One that was cut off is not held any more, or its word is decided.
        if let Ok((number, verdict)) = joined {
            self.part(number, Parting::Verdict(verdict));
        }
    }

    /// Ends the handler of a delivery and has its word told.
    fn part(&mut self, number: u64, parting: Parting) {
        let Some(held) = self.held.get_mut(&number) else { return };
        let Phase::Running(task) = &held.phase else { return };
        task.abort();
        let word = match &parting {
            Parting::Verdict(verdict) => Word::of(verdict),
            Parting::GivenBack => Word::Release,
        };
        held.phase = Phase::Over(parting, word);
        self.ready.push_back(number);
    }

    /// Its lease is over before its handler is.
    fn lapse(&mut self, number: u64) {
        let running = |held: &Held| matches!(held.phase, Phase::Running(_));
        if !self.held.get(&number).is_some_and(running) {
            return;
        }
        if let Some(held) = self.held.remove(&number) {
            if let Phase::Running(task) = &held.phase {
                task.abort();
            }
            self.ended(&held, &Ending::Lapsed);
        }
    }

    /// Ends what has had its time, and sees that no lease lapses without need.
    fn look_at_the_clock(&mut self, now: Instant) {
        match self.stage {
            Stage::Draining { since } if now >= since + self.options.drain => self.cut(),
            Stage::Open | Stage::Draining { .. } | Stage::Leaving { .. } => {}
        }
        if self.last_answer_is_due().is_some_and(|due| now >= due) {
            self.asking = None;
        }
        let (mut lapsed, mut late, mut due) = (Vec::new(), Vec::new(), false);
        for (number, held) in &self.held {
            let Phase::Running(_) = held.phase else { continue };
            if held.ends <= now {
                lapsed.push(*number);
            } else if held.limit.is_some_and(|limit| limit <= now) {
                late.push(*number);
            } else {
                due |= !held.extending && held.extend_at <= now;
            }
        }
        for number in lapsed {
            self.lapse(number);
        }
        for number in late {
            let limit = span::format(self.options.timeout.unwrap_or_default());
            let verdict = Verdict::retryable(format!("the handler did not end within {limit}"));
            self.part(number, Parting::Verdict(verdict));
        }
        if due {
            self.extend(now);
        }
    }

    fn extend(&mut self, now: Instant) {
        let lease = self.options.lease;
        let soon = now + lease / COMPANY;
        let goes = |held: &Held| {
            matches!(held.phase, Phase::Running(_)) && !held.extending && held.extend_at <= soon
        };
        let mut going = self.held.iter_mut().filter(|(_, held)| goes(held)).peekable();
        while going.peek().is_some() && self.extending < MAX_EXTENDING {
            let (mut numbers, mut tokens) = (Vec::new(), Vec::new());
            for (number, held) in going.by_ref().take(MAX_LEASES) {
                held.extending = true;
                numbers.push(*number);
                tokens.push(held.token.clone());
            }
            let gateway = self.gateway.clone();
            let limit = (lease / EXTEND_TRY).min(MAX_EXTEND_TRY);
            self.extending += 1;
            self.errands.push(Box::pin(async move {
                let answer = gateway.extend_within(&tokens, lease, limit).await;
                let answer = answer.map(|ends| ends.iter().map(Option::is_some).collect());
                Back::Extended { numbers, sent: now, answer }
            }));
        }
    }

    fn tell_what_is_ready(&mut self) {
        while self.telling < MAX_TELLING {
            let word_of = |held: &Held| match &held.phase {
                Phase::Over(_, word) => Some(word.clone()),
                Phase::Running(_) => None,
            };
            let first = self.ready.front().and_then(|number| self.held.get(number));
            let Some(word) = first.and_then(word_of) else { return };
            let (mut numbers, mut tokens) = (Vec::new(), Vec::new());
            let mut until = ports::now();
            let (held, limit) = (&self.held, MAX_LEASES);
            self.ready.retain(|number| {
                let Some(held) = held.get(number) else { return false };
                let same = matches!(&held.phase, Phase::Over(_, its) if *its == word);
                if !same || numbers.len() == limit {
                    return true;
                }
                numbers.push(*number);
                tokens.push(held.token.clone());
                until = until.max(held.ends);
                false
            });
            let told = errand::tell(self.gateway.clone(), tokens, word, until);
            self.telling += 1;
            self.errands.push(Box::pin(async move { Back::Told { numbers, answer: told.await } }));
        }
    }

    fn came_back(&mut self, back: Back) {
        match back {
            Back::Told { numbers, answer } => {
                self.telling -= 1;
                for (index, number) in numbers.iter().enumerate() {
                    let Some(held) = self.held.remove(number) else { continue };
                    match &answer {
                        Ok(heard) if heard.get(index) == Some(&true) => match &held.phase {
                            Phase::Over(Parting::Verdict(verdict), _) => {
                                self.ended(&held, &Ending::Told(verdict));
                            }
                            Phase::Over(Parting::GivenBack, _) | Phase::Running(_) => {
                                self.ended(&held, &Ending::GivenBack);
                            }
                        },
                        Err(error) if !error.is_temporary() => {
                            self.ended(&held, &Ending::Refused(error));
                        }
                        Ok(_) | Err(_) => self.ended(&held, &Ending::Lapsed),
                    }
                }
            }
            Back::Extended { numbers, sent, answer } => {
                self.extending -= 1;
                self.extended(&numbers, sent, answer.as_deref().ok());
            }
        }
    }

    fn extended(&mut self, numbers: &[u64], sent: Instant, answer: Option<&[bool]>) {
        let lease = self.options.lease;
        let again = ports::now() + (lease / EXTEND_AGAIN).mul_f64(0.5 + ports::sample());
        for (index, number) in numbers.iter().enumerate() {
            let Some(held) = self.held.get_mut(number) else { continue };
            held.extending = false;
            match answer {
                Some(extended) if extended.get(index) == Some(&true) => {
                    // The gateway counts from when it was asked, which was no earlier than this.
                    held.ends = sent + lease;
                    held.extend_at = sent + lease / EXTEND_AFTER;
                }
                Some(_) => self.lapse(*number),
                None => held.extend_at = again,
            }
        }
    }

    fn stop(&mut self) {
        if self.stage == Stage::Open {
            self.stage = Stage::Draining { since: ports::now() };
            self.notice(&Happening::Stopping { in_hand: self.held.len() });
        }
    }

    /// Waits no longer for handlers.
    fn cut(&mut self) {
        self.stage = Stage::Leaving { since: ports::now() };
        // Or what is given back would come to this very worker, which still waits for more.
        self.asking = None;
        let numbers: Vec<u64> = self.held.keys().copied().collect();
        for number in numbers {
            self.part(number, Parting::GivenBack);
        }
    }

    fn is_over(&self, now: Instant) -> bool {
        let nothing_left = self.held.is_empty() && self.asking.is_none();
        match self.stage {
            Stage::Open => false,
            Stage::Draining { .. } => nothing_left,
            Stage::Leaving { since } => nothing_left || now >= since + LAST_WORDS,
        }
    }

    /// Until when an answer to the request for work is waited for, once no more is taken.
    fn last_answer_is_due(&self) -> Option<Instant> {
        self.asking.as_ref()?;
        match self.stage {
            Stage::Open => None,
            Stage::Draining { since } | Stage::Leaving { since } => Some(since + LAST_ANSWER),
        }
    }

    /// When there will be something to do though nothing happens.
    fn next_wake(&self, now: Instant) -> Instant {
        let stage = match self.stage {
            Stage::Open => None,
            Stage::Draining { since } => Some(since + self.options.drain),
            Stage::Leaving { since } => Some(since + LAST_WORDS),
        };
        let idle = self.asking.is_none() && self.held.len() < self.options.concurrency;
        let ask = (idle && self.stage == Stage::Open).then_some(self.ask_from);
        let can_extend = self.extending < MAX_EXTENDING;
        let leases = self.held.values().filter_map(|held| {
            let Phase::Running(_) = held.phase else { return None };
            let extend = (can_extend && !held.extending).then_some(held.extend_at);
            [Some(held.ends), held.limit, extend].into_iter().flatten().min()
        });
        let due = [stage, ask, self.last_answer_is_due()].into_iter().flatten().chain(leases).min();
        due.unwrap_or(now + LONGEST_WAIT)
    }

    fn ended(&mut self, held: &Held, ending: &Ending<'_>) {
        let count = match ending {
            Ending::Told(Verdict::Done { .. }) => &mut self.summary.done,
            Ending::Told(Verdict::Failed { .. }) => &mut self.summary.failed,
            Ending::GivenBack => &mut self.summary.given_back,
            Ending::Lapsed | Ending::Refused(_) => &mut self.summary.lapsed,
        };
        *count += 1;
        let took = ports::now().saturating_duration_since(held.began);
        self.notice(&Happening::Ended { job: &held.job, ending, took });
    }

    fn notice(&self, happening: &Happening<'_>) {
        (self.watch)(happening);
    }
}

/// The answer to the one request that is under way; without one, none comes.
async fn answer_to(asking: &mut Option<Asking>) -> Result<(Instant, Vec<Lease>), Error> {
    match asking {
        Some(asking) => asking.await,
        None => std::future::pending().await,
    }
}

fn panicked(panic: &(dyn Any + Send)) -> Verdict {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    Verdict::retryable(format!("the handler panicked: {}", text.unwrap_or("no reason was given")))
}
