//! One delivery followed through virtual time under one policy.

use std::time::Duration;

use postrider_core::delivery::{Next, Transition, Why};
use postrider_core::outcome::Sighting;
use postrider_core::policy::{self, Preset, Presets};
use postrider_core::{
    Class, Delivery, Happening, Jitter, Outcome, Policy, Reason, State, Timestamp, step,
};

/// More than any preset takes, so that a policy that never stops fails a test instead of hanging it.
const MAX_TRIES: usize = 1_000;

pub(crate) const MILLISECOND: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(crate) struct Track {
    pub(crate) policy: Policy,
    pub(crate) delivery: Delivery,
    pub(crate) now: Timestamp,
    jitter: Jitter,
}

/// How a delivery that never succeeded went.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Course {
    /// The wait after each failure but the last.
    pub(crate) waits: Vec<Duration>,
    pub(crate) state: State,
    pub(crate) reason: Option<Reason>,
    pub(crate) attempts: u32,
}

pub(crate) fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

pub(crate) fn days(count: u64) -> Duration {
    Duration::from_hours(24 * count)
}

pub(crate) fn all_seconds(counts: &[u64]) -> Vec<Duration> {
    counts.iter().copied().map(seconds).collect()
}

pub(crate) fn preset(preset: Preset) -> Policy {
    Presets::default().policy(preset)
}

pub(crate) fn written(json: &str) -> Policy {
    let spec: policy::Spec = serde_json::from_str(json).expect(json);
    spec.build(&Presets::default()).expect(json)
}

pub(crate) fn retryable() -> Outcome {
    failed(Class::Retryable, None)
}

pub(crate) fn failed(class: Class, retry_after: Option<Duration>) -> Outcome {
    Outcome::Failed { class, retry_after, disable: false }
}

impl Track {
    /// A delivery that has just been accepted.
    pub(crate) fn new(policy: Policy) -> Self {
        let arrival: Timestamp = "2026-01-31T12:00:00Z".parse().expect("a time");
        let delivery = Delivery {
            state: State::Pending,
            attempts: 0,
            deferrals: 0,
            due: arrival,
            born: arrival,
        };
        Self { policy, delivery, now: arrival, jitter: Jitter::MIDDLE }
    }

    pub(crate) fn with_jitter(self, jitter: Jitter) -> Self {
        Self { jitter, ..self }
    }

    /// The same delivery after this many counted failures, due now.
    pub(crate) fn after_failures(mut self, attempts: u32) -> Self {
        self.delivery.attempts = attempts;
        self.delivery.state = if attempts == 0 { State::Pending } else { State::Retrying };
        self
    }

    pub(crate) fn wait(&mut self, span: Duration) {
        self.now = self.now.plus(span);
    }

    /// Lets `happening` come about now.
    pub(crate) fn meet(&mut self, happening: Happening) -> Transition {
        let transition = step(&self.delivery, happening, &self.policy, self.now, self.jitter);
        if let Transition::Moves(next) = transition {
            self.delivery = Delivery {
                state: next.state,
                attempts: next.attempts,
                deferrals: next.deferrals,
                due: next.due.unwrap_or(self.delivery.due),
                born: next.born,
            };
        }
        transition
    }

    #[track_caller]
    pub(crate) fn moves(&mut self, happening: Happening) -> Next {
        match self.meet(happening) {
            Transition::Moves(next) => next,
            Transition::Stays(why) => panic!("{happening:?} changed nothing: {why:?} in {self:?}"),
        }
    }

    #[track_caller]
    pub(crate) fn stays(&mut self, happening: Happening, why: Why) {
        assert_eq!(self.meet(happening), Transition::Stays(why), "{happening:?} on {self:?}");
    }

    /// Waits until it is due, tries it, and reports `outcome`.
    #[track_caller]
    pub(crate) fn attempt(&mut self, outcome: Outcome) -> Next {
        self.now = self.now.max(self.delivery.due);
        let started = self.moves(Happening::Start);
        assert_eq!(started.state, State::InFlight, "{self:?}");
        self.moves(Happening::Finish(outcome))
    }

    /// Waits until it is due, tries it, and lets the policy say what was seen.
    #[track_caller]
    pub(crate) fn sees(&mut self, sighting: Sighting, hint: Option<Duration>) -> Next {
        let outcome = self.policy.classify(sighting, hint);
        self.attempt(outcome)
    }

    #[track_caller]
    pub(crate) fn answered(&mut self, status: u16) -> Next {
        self.sees(Sighting::Status(status), None)
    }

    /// What is left to wait.
    pub(crate) fn until_due(&self) -> Duration {
        self.delivery.due.since(self.now)
    }

    /// Fails with `outcome` until nothing more is scheduled.
    #[track_caller]
    pub(crate) fn fail_for_good(&mut self, outcome: Outcome) -> Course {
        let mut waits = Vec::new();
        for _ in 0..MAX_TRIES {
            let next = self.attempt(outcome);
            if next.state != State::Retrying {
                assert_eq!(next.due, None);
                let Next { state, reason, attempts, .. } = next;
                return Course { waits, state, reason, attempts };
            }
            waits.push(self.until_due());
        }
        panic!("still trying after {MAX_TRIES} tries: {self:?}");
    }

    /// Nothing that comes about by itself changes this delivery any more.
    #[track_caller]
    pub(crate) fn is_left_alone(&mut self) {
        self.wait(days(30));
        for happening in [
            Happening::Start,
            Happening::Finish(Outcome::Delivered),
            Happening::Finish(retryable()),
            Happening::LeaseExpired,
            Happening::Release,
            Happening::Sweep,
        ] {
            let transition = self.meet(happening);
            assert!(matches!(transition, Transition::Stays(_)), "{happening:?}: {transition:?}");
        }
    }
}

/// The course of a delivery that fails every time in a way that may pass.
#[track_caller]
pub(crate) fn course(policy: Policy, jitter: Jitter) -> Course {
    Track::new(policy).with_jitter(jitter).fail_for_good(retryable())
}

#[track_caller]
pub(crate) fn is_exhausted_after(course: &Course, waits: &[u64]) {
    let attempts = u32::try_from(waits.len()).expect("few") + 1;
    let expected = Course {
        waits: all_seconds(waits),
        state: State::Dead,
        reason: Some(Reason::Exhausted),
        attempts,
    };
    assert_eq!(*course, expected);
}

#[track_caller]
pub(crate) fn is_retrying(track: &Track, next: &Next, attempts: u32, wait: Duration) {
    assert_eq!(next.state, State::Retrying, "{next:?}");
    assert_eq!(next.attempts, attempts, "{next:?}");
    assert_eq!(next.due, Some(track.now.plus(wait)), "{next:?}");
    assert_eq!(next.reason, None, "{next:?}");
}

/// Checks what each sighting comes to at the first try: its state and the class of the failure.
#[track_caller]
pub(crate) fn first_answers(
    policy: &Policy,
    expected: (State, Option<Class>),
    sightings: impl IntoIterator<Item = Sighting>,
) {
    for sighting in sightings {
        let next = Track::new(policy.clone()).sees(sighting, None);
        assert_eq!((next.state, next.class), expected, "{sighting:?}");
        assert_eq!(next.attempts, 1, "{sighting:?}");
        assert!(!next.disable_endpoint, "{sighting:?}");
    }
}

pub(crate) fn statuses(statuses: &[u16]) -> impl Iterator<Item = Sighting> {
    statuses.iter().copied().map(Sighting::Status)
}
