//! Every state, everything that can happen to it, in every situation that can matter.

use std::iter;
use std::time::Duration;

use postrider_core::delivery::{MAX_DEFERRALS, Next, Transition, Why};
use postrider_core::policy::{Rule, Rules, Schedule};
use postrider_core::{Class, Delivery, Happening, Jitter, Outcome, Policy, State, Timestamp, step};

const MAX_ATTEMPTS: u32 = 3;
const BACKOFF: Duration = Duration::from_mins(1);
const HINT: Duration = Duration::from_mins(5);
const MAX_AGE: Duration = Duration::from_hours(1);

/// What a situation is made of: each dimension with its values, in the order `step` asks for them.
pub(crate) const DIMENSIONS: [&[&str]; 4] = [
    &["untried", "attempts left", "on its last attempt", "no attempt left"],
    &["deferrals left", "no deferral left"],
    &["age left", "age almost used", "age used"],
    &["due", "not due"],
];

/// One value of each dimension, by its place.
pub(crate) type Situation = [usize; 4];

/// What came of a happening, with its due time told apart by where it comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    Moves(Next, Wait),
    Stays(Why),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    None,
    AtOnce,
    Backoff,
    Hint,
    EndOfAge,
}

#[derive(Debug)]
struct Visit {
    state: State,
    happening: Happening,
    situation: Situation,
    effect: Effect,
}

#[derive(Debug)]
pub(crate) struct Walk {
    pub(crate) happenings: Vec<(Happening, &'static str)>,
    visits: Vec<Visit>,
}

impl Walk {
    pub(crate) fn new() -> Self {
        let happenings: Vec<(Happening, &'static str)> =
            iter::successors(Some(Happening::Start), following)
                .map(|happening| (happening, name(happening)))
                .collect();
        let mut visits = Vec::new();
        for state in State::ALL {
            for (happening, _) in &happenings {
                for situation in situations(state) {
                    let effect = visit(state, *happening, situation);
                    visits.push(Visit { state, happening: *happening, situation, effect });
                }
            }
        }
        Self { happenings, visits }
    }

    /// What `happening` does in each situation of `state`.
    pub(crate) fn cases(&self, state: State, happening: Happening) -> Vec<(Situation, Effect)> {
        self.visits
            .iter()
            .filter(|visit| visit.state == state && visit.happening == happening)
            .map(|visit| (visit.situation, visit.effect))
            .collect()
    }

    /// What `happening` can do to `state`, each thing once.
    pub(crate) fn effects(&self, state: State, happening: Happening) -> Vec<Effect> {
        let mut effects = Vec::new();
        for (_, effect) in self.cases(state, happening) {
            if !effects.contains(&effect) {
                effects.push(effect);
            }
        }
        effects
    }

    /// Every visit that moved: from where, what happened, what came of it.
    pub(crate) fn moves(&self) -> impl Iterator<Item = (State, &'static str, &Next)> {
        self.visits.iter().filter_map(|visit| match &visit.effect {
            Effect::Moves(next, _) => Some((visit.state, name(visit.happening), next)),
            Effect::Stays(_) => None,
        })
    }
}

/// The happening after this one in the walk: matched without a rest, so that none can be forgotten.
fn following(happening: &Happening) -> Option<Happening> {
    let failed = |class, retry_after, disable| {
        Some(Happening::Finish(Outcome::Failed { class, retry_after, disable }))
    };
    match *happening {
        Happening::Start => Some(Happening::Finish(Outcome::Delivered)),
        Happening::Finish(Outcome::Delivered) => failed(Class::Final, None, false),
        Happening::Finish(Outcome::Failed { class, retry_after, disable }) => {
            match (class, disable, retry_after) {
                (Class::Final, false, _) => failed(Class::Final, None, true),
                (Class::Final, true, _) => failed(Class::Retryable, None, false),
                (Class::Retryable, _, _) => failed(Class::RateLimited, None, false),
                (Class::RateLimited, _, None) => failed(Class::RateLimited, Some(HINT), false),
                (Class::RateLimited, _, Some(_)) => Some(Happening::LeaseExpired),
            }
        }
        Happening::LeaseExpired => Some(Happening::Release),
        Happening::Release => Some(Happening::Sweep),
        Happening::Sweep => Some(Happening::Reset),
        Happening::Reset => Some(Happening::Cancel),
        Happening::Cancel => None,
    }
}

fn name(happening: Happening) -> &'static str {
    match happening {
        Happening::Start => "start",
        Happening::Finish(Outcome::Delivered) => "delivered",
        Happening::Finish(Outcome::Failed { class, retry_after, disable }) => {
            match (class, disable, retry_after) {
                (Class::Final, false, _) => "final failure",
                (Class::Final, true, _) => "final failure, endpoint gone",
                (Class::Retryable, _, _) => "retryable failure",
                (Class::RateLimited, _, None) => "rate limited",
                (Class::RateLimited, _, Some(_)) => "rate limited with a hint",
            }
        }
        Happening::LeaseExpired => "lease expired",
        Happening::Release => "given back",
        Happening::Sweep => "age sweep",
        Happening::Reset => "reset",
        Happening::Cancel => "cancel",
    }
}

/// All that a delivery in `state` can be in. One that is pending has used up nothing but age.
fn situations(state: State) -> impl Iterator<Item = Situation> {
    let all = (0..DIMENSIONS[0].len()).flat_map(|attempts| {
        (0..DIMENSIONS[1].len()).flat_map(move |deferrals| {
            (0..DIMENSIONS[2].len()).flat_map(move |age| {
                (0..DIMENSIONS[3].len()).map(move |due| [attempts, deferrals, age, due])
            })
        })
    });
    all.filter(move |[attempts, deferrals, ..]| {
        state != State::Pending || (*attempts == 0 && *deferrals == 0)
    })
}

fn visit(state: State, happening: Happening, [attempts, deferrals, age, due]: Situation) -> Effect {
    let schedule = Schedule::List { delays: vec![BACKOFF], jitter: 0.0 };
    let policy =
        Policy::new(schedule, Some(MAX_ATTEMPTS), Some(MAX_AGE), Rules::all(Rule::Retryable))
            .expect("valid");
    let born: Timestamp = "2026-01-31T12:00:00Z".parse().expect("a time");
    let expires = born.plus(MAX_AGE);
    let now = [
        born.plus(Duration::from_mins(10)),
        expires.minus(BACKOFF / 2),
        expires.plus(Duration::from_mins(1)),
    ][age];
    let delivery = Delivery {
        state,
        attempts: [0, 1, MAX_ATTEMPTS - 1, MAX_ATTEMPTS][attempts],
        deferrals: [0, MAX_DEFERRALS][deferrals],
        due: [now, now.plus(Duration::from_secs(1))][due],
        born,
    };
    match step(&delivery, happening, &policy, now, Jitter::MIDDLE) {
        Transition::Stays(why) => Effect::Stays(why),
        Transition::Moves(next) => {
            let wait = match next.due {
                None => Wait::None,
                Some(due) if due == now => Wait::AtOnce,
                Some(due) if due == now.plus(BACKOFF) => Wait::Backoff,
                Some(due) if due == now.plus(HINT) => Wait::Hint,
                Some(due) if due == expires => Wait::EndOfAge,
                Some(due) => panic!("{delivery:?} is due at {due}, for no known reason"),
            };
            Effect::Moves(next, wait)
        }
    }
}
