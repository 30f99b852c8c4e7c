//! The small integers that stand for enums in the database. Their meaning never changes.

use postrider_core::KeyId;
use postrider_core::delivery::{Reason, State};
use postrider_core::outcome::Class;

use crate::audit::Actor;
use crate::error::Error;

/// Where an unfinished delivery stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// It may go, in the order of events.
    Ready,
    /// It has a time of its own.
    Timed,
    /// It stands behind another of its line.
    Parked,
    /// A worker has it.
    Leased,
}

impl Place {
    pub(crate) const fn code(self) -> i64 {
        match self {
            Self::Ready => 1,
            Self::Timed => 2,
            Self::Parked => 3,
            Self::Leased => 4,
        }
    }

    pub(crate) fn decode(code: i64) -> Result<Self, Error> {
        match code {
            1 => Ok(Self::Ready),
            2 => Ok(Self::Timed),
            3 => Ok(Self::Parked),
            4 => Ok(Self::Leased),
            other => Err(unknown("place", other)),
        }
    }
}

/// The states that nearly every delivery passes through are 0 and 1, which take no space in a row.
pub(crate) const fn state(state: State) -> i64 {
    match state {
        State::Pending => 0,
        State::Delivered => 1,
        State::Retrying => 2,
        State::Failed => 3,
        State::Dead => 4,
        State::Cancelled => 5,
        State::InFlight => 6,
    }
}

pub(crate) fn decode_state(code: i64) -> Result<State, Error> {
    match code {
        0 => Ok(State::Pending),
        1 => Ok(State::Delivered),
        2 => Ok(State::Retrying),
        3 => Ok(State::Failed),
        4 => Ok(State::Dead),
        5 => Ok(State::Cancelled),
        6 => Ok(State::InFlight),
        other => Err(unknown("state", other)),
    }
}

pub(crate) const fn class(class: Class) -> i64 {
    match class {
        Class::Final => 1,
        Class::Retryable => 2,
        Class::RateLimited => 3,
    }
}

pub(crate) fn decode_class(code: i64) -> Result<Class, Error> {
    match code {
        1 => Ok(Class::Final),
        2 => Ok(Class::Retryable),
        3 => Ok(Class::RateLimited),
        other => Err(unknown("class", other)),
    }
}

pub(crate) const fn reason(reason: Reason) -> i64 {
    match reason {
        Reason::Rejected => 1,
        Reason::Exhausted => 2,
        Reason::Expired => 3,
    }
}

pub(crate) fn decode_reason(code: i64) -> Result<Reason, Error> {
    match code {
        1 => Ok(Reason::Rejected),
        2 => Ok(Reason::Exhausted),
        3 => Ok(Reason::Expired),
        other => Err(unknown("reason", other)),
    }
}

/// What stands in the place of a key that changed something where it was a file. No key has this id.
const FILE: i64 = 0;

/// The key of an actor, or what stands in its place.
pub(crate) const fn actor(actor: Actor) -> Option<i64> {
    match actor {
        Actor::Key(key) => Some(key.as_i64()),
        Actor::Gateway => None,
        Actor::File => Some(FILE),
    }
}

pub(crate) const fn decode_actor(key: Option<i64>) -> Actor {
    match key {
        None => Actor::Gateway,
        Some(FILE) => Actor::File,
        Some(key) => Actor::Key(KeyId::from_i64(key)),
    }
}

/// A size, as `SQLite` takes numbers.
pub(crate) fn size(size: usize) -> i64 {
    i64::try_from(size).unwrap_or(i64::MAX)
}

fn unknown(what: &str, code: i64) -> Error {
    Error::Damaged(format!("{code} is no {what}"))
}
