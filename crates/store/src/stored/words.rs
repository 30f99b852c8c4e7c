//! What is stored as text or as a number of another size.

use postrider_core::endpoint::EndpointState;
use serde::Serialize;

use crate::error::Error;
use crate::registry::JobState;

pub(crate) fn stored_count(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

pub(crate) const fn job_state_text(state: JobState) -> &'static str {
    match state {
        JobState::Running => "running",
        JobState::Finished => "finished",
    }
}

pub(crate) fn job_state(text: &str) -> Result<JobState, Error> {
    [JobState::Running, JobState::Finished]
        .into_iter()
        .find(|state| job_state_text(*state) == text)
        .ok_or_else(|| Error::Damaged(format!("{text:?} is no state of a job")))
}

pub(crate) fn endpoint_state(text: &str) -> Result<EndpointState, Error> {
    EndpointState::ALL
        .into_iter()
        .find(|state| state.as_str() == text)
        .ok_or_else(|| Error::Damaged(format!("{text:?} is no state of an endpoint")))
}

pub(crate) fn to_json(value: &impl Serialize) -> Result<String, Error> {
    serde_json::to_string(value).map_err(|error| Error::Damaged(error.to_string()))
}
