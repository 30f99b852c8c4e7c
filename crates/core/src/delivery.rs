//! The state machine of a delivery: one function, [`step`], decides every change of state.
//!
//! Push, pull, relay, commands, lease expiry, the age sweep, manual reset and cancel all come here.
//! The caller persists what is decided, and fences it; it never decides by itself.

use serde::{Deserialize, Serialize};

use crate::outcome::{Class, Outcome};
use crate::policy::{Jitter, Policy};
use crate::time::Timestamp;

/// Tries that do not count are themselves limited, so that no policy can go on for ever: from here
/// on a rate-limited try counts, hint or not.
pub const MAX_DEFERRALS: u32 = 1_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Never tried since it was accepted or reset.
    Pending,
    /// A carrier has it.
    InFlight,
    /// Tried, next attempt scheduled.
    Retrying,
    /// The receiver said yes.
    Delivered,
    /// The receiver said no, for good.
    Failed,
    /// Attempts or age used up.
    Dead,
    /// An operator ended it.
    Cancelled,
}

impl State {
    pub const ALL: [Self; 7] = [
        Self::Pending,
        Self::InFlight,
        Self::Retrying,
        Self::Delivered,
        Self::Failed,
        Self::Dead,
        Self::Cancelled,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::InFlight => "in_flight",
            Self::Retrying => "retrying",
            Self::Delivered => "delivered",
            Self::Failed => "failed",
            Self::Dead => "dead",
            Self::Cancelled => "cancelled",
        }
    }

    /// Terminal states change only by an operator's reset.
    pub const fn is_terminal(self) -> bool {
        match self {
            Self::Pending | Self::InFlight | Self::Retrying => false,
            Self::Delivered | Self::Failed | Self::Dead | Self::Cancelled => true,
        }
    }

    pub const fn is_dead_letter(self) -> bool {
        match self {
            Self::Failed | Self::Dead => true,
            Self::Pending | Self::InFlight | Self::Retrying | Self::Delivered | Self::Cancelled => {
                false
            }
        }
    }
}

/// Why a dead letter is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// A final failure.
    Rejected,
    /// All attempts used.
    Exhausted,
    /// Older than the policy allows.
    Expired,
}

impl Reason {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Rejected => "rejected",
            Self::Exhausted => "exhausted",
            Self::Expired => "expired",
        }
    }
}

/// What [`step`] needs to know of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivery {
    pub state: State,
    /// Tries that counted.
    pub attempts: u32,
    /// Tries that did not: rate limited, with a hint.
    pub deferrals: u32,
    /// When the next attempt may start, while it waits.
    pub due: Timestamp,
    /// When its age began: its event's arrival, or the later moment it was first meant to go.
    pub born: Timestamp,
}

/// What can happen to a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Happening {
    /// A carrier is about to take it.
    Start,
    /// The attempt ended.
    Finish(Outcome),
    /// Whoever held it did not answer in time.
    LeaseExpired,
    /// Whoever held it gave it back untried.
    Release,
    /// Housekeeping looks at its age.
    Sweep,
    /// An operator asks for another life: attempts from zero, due at once.
    Reset,
    /// An operator ends it.
    Cancel,
}

/// What a happening does to a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transition {
    Moves(Next),
    /// Nothing changes, and why.
    Stays(Why),
}

/// The delivery after a transition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Next {
    pub state: State,
    pub attempts: u32,
    pub deferrals: u32,
    /// When its age began; a reset begins it anew.
    pub born: Timestamp,
    /// Present exactly while it waits (`pending`, `retrying`).
    pub due: Option<Timestamp>,
    /// Present exactly in `failed` and `dead`.
    pub reason: Option<Reason>,
    /// The class of the failure that led here; none after a success or a reset.
    pub class: Option<Class>,
    /// The try that led here counted against the policy.
    pub counted: bool,
    /// The whole endpoint holds until then, not only this delivery.
    pub hold_endpoint_until: Option<Timestamp>,
    /// The endpoint is gone for good.
    pub disable_endpoint: bool,
}

/// Why a happening changed nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    NotDue,
    NotInFlight,
    InFlight,
    AlreadyDelivered,
    AlreadyEnded,
    WithinAge,
}

/// Decides what `happening` does to `delivery`. Total: every state has an answer to everything.
pub fn step(
    delivery: &Delivery,
    happening: Happening,
    policy: &Policy,
    now: Timestamp,
    jitter: Jitter,
) -> Transition {
    match happening {
        Happening::Start => start(delivery, policy, now),
        Happening::Finish(_) | Happening::LeaseExpired | Happening::Release
            if delivery.state != State::InFlight =>
        {
            Transition::Stays(Why::NotInFlight)
        }
        Happening::Finish(outcome) => finish(delivery, outcome, policy, now, jitter),
        Happening::LeaseExpired => Transition::Moves(lapse(delivery, policy, now)),
        Happening::Release => {
            let untried = delivery.attempts == 0 && delivery.deferrals == 0;
            let state = if untried { State::Pending } else { State::Retrying };
            Transition::Moves(Next { due: Some(now), ..delivery.becomes(state) })
        }
        Happening::Sweep => match delivery.state {
            State::Pending | State::Retrying if is_expired(delivery, policy, now) => {
                Transition::Moves(delivery.dies(Reason::Expired))
            }
            State::Pending | State::Retrying => Transition::Stays(Why::WithinAge),
            State::InFlight => Transition::Stays(Why::InFlight),
            State::Delivered | State::Failed | State::Dead | State::Cancelled => {
                Transition::Stays(Why::AlreadyEnded)
            }
        },
        Happening::Reset => match delivery.state {
            State::Pending | State::Retrying | State::Failed | State::Dead | State::Cancelled => {
                Transition::Moves(Next {
                    attempts: 0,
                    deferrals: 0,
                    born: now,
                    due: Some(now),
                    ..delivery.becomes(State::Pending)
                })
            }
            State::InFlight => Transition::Stays(Why::InFlight),
            State::Delivered => Transition::Stays(Why::AlreadyDelivered),
        },
        Happening::Cancel => match delivery.state {
            State::Pending | State::Retrying | State::InFlight => {
                Transition::Moves(delivery.becomes(State::Cancelled))
            }
            State::Delivered => Transition::Stays(Why::AlreadyDelivered),
            State::Failed | State::Dead | State::Cancelled => Transition::Stays(Why::AlreadyEnded),
        },
    }
}

fn start(delivery: &Delivery, policy: &Policy, now: Timestamp) -> Transition {
    match delivery.state {
        State::Pending | State::Retrying => {
            if is_exhausted(delivery.attempts, policy) {
                // The policy was made shorter while this one waited.
                Transition::Moves(delivery.dies(Reason::Exhausted))
            } else if is_expired(delivery, policy, now) {
                Transition::Moves(delivery.dies(Reason::Expired))
            } else if delivery.due > now {
                Transition::Stays(Why::NotDue)
            } else {
                Transition::Moves(delivery.becomes(State::InFlight))
            }
        }
        State::InFlight => Transition::Stays(Why::InFlight),
        State::Delivered => Transition::Stays(Why::AlreadyDelivered),
        State::Failed | State::Dead | State::Cancelled => Transition::Stays(Why::AlreadyEnded),
    }
}

fn finish(
    delivery: &Delivery,
    outcome: Outcome,
    policy: &Policy,
    now: Timestamp,
    jitter: Jitter,
) -> Transition {
    let (class, retry_after, disable) = match outcome {
        Outcome::Delivered => {
            return Transition::Moves(Next {
                attempts: delivery.attempts.saturating_add(1),
                counted: true,
                ..delivery.becomes(State::Delivered)
            });
        }
        Outcome::Failed { class, retry_after, disable } => (class, retry_after, disable),
    };
    // To be asked to wait no time is not to be asked: it must not buy tries that do not count.
    let hint = retry_after.filter(|wait| class == Class::RateLimited && !wait.is_zero());
    let counted = hint.is_none() || delivery.deferrals >= MAX_DEFERRALS;
    let attempts = delivery.attempts.saturating_add(u32::from(counted));
    let deferrals = delivery.deferrals.saturating_add(u32::from(!counted));
    let failure = Next {
        attempts,
        deferrals,
        class: Some(class),
        counted,
        // The receiver's wish holds for all of the endpoint's deliveries, whatever age is left to
        // this one.
        hold_endpoint_until: hint.map(|hint| policy.deferred(hint, now, None, jitter)),
        ..delivery.becomes(State::Dead)
    };

    if class == Class::Final {
        return Transition::Moves(Next {
            state: State::Failed,
            reason: Some(Reason::Rejected),
            disable_endpoint: disable,
            ..failure
        });
    }
    if is_exhausted(attempts, policy) {
        return Transition::Moves(Next { reason: Some(Reason::Exhausted), ..failure });
    }
    let expires = policy.expires(delivery.born);
    let due = match hint {
        Some(hint) => policy.deferred(hint, now, expires, jitter),
        None => now.plus(policy.delay(attempts, jitter)),
    };
    // A hint is shortened to the age that is left; where none is left it cannot be honoured at all.
    if expires.is_some_and(|expires| due > expires || now >= expires) {
        return Transition::Moves(Next { reason: Some(Reason::Expired), ..failure });
    }
    let hold_endpoint_until = failure.hold_endpoint_until.map(|hold| hold.max(due));
    Transition::Moves(Next {
        state: State::Retrying,
        due: Some(due),
        hold_endpoint_until,
        ..failure
    })
}

/// Counts as a retryable failure, but waits no longer: it has waited for as long as the lease was.
fn lapse(delivery: &Delivery, policy: &Policy, now: Timestamp) -> Next {
    let attempts = delivery.attempts.saturating_add(1);
    let failure = Next {
        attempts,
        class: Some(Class::Retryable),
        counted: true,
        ..delivery.becomes(State::Dead)
    };
    if is_exhausted(attempts, policy) {
        Next { reason: Some(Reason::Exhausted), ..failure }
    } else if is_expired(delivery, policy, now) {
        Next { reason: Some(Reason::Expired), ..failure }
    } else {
        Next { state: State::Retrying, due: Some(now), ..failure }
    }
}

fn is_exhausted(attempts: u32, policy: &Policy) -> bool {
    policy.max_attempts().is_some_and(|max| attempts >= max)
}

fn is_expired(delivery: &Delivery, policy: &Policy, now: Timestamp) -> bool {
    policy.expires(delivery.born).is_some_and(|expires| now > expires)
}

impl Delivery {
    /// This delivery in `state`, with nothing else changed and nothing scheduled.
    fn becomes(&self, state: State) -> Next {
        Next {
            state,
            attempts: self.attempts,
            deferrals: self.deferrals,
            born: self.born,
            due: None,
            reason: None,
            class: None,
            counted: false,
            hold_endpoint_until: None,
            disable_endpoint: false,
        }
    }

    fn dies(&self, reason: Reason) -> Next {
        Next { reason: Some(reason), ..self.becomes(State::Dead) }
    }
}
