//! Makes a gateway be as its file declares: rehearsed first where nothing can go wrong, then planned,
//! printed and applied, at the start and whenever the file changes.
//!
//! A file that cannot be applied changes nothing: everything that the API would refuse is found by the
//! rehearsal, and everything that stands in the way at this very gateway by the plan, before the first
//! change. What is left is a store that goes away in between; then the rest is done the next time.
//!
//! Several nodes may have the same file and start at once. One after another they have a turn, which a
//! store gives to one process at a time and takes back when that ends in whatever way; in its turn a
//! node first reads what the others have changed. So each finds what those before it have made, by its
//! name, and makes nothing again; also if one of them ended before it could note that it had made it.

mod carrying;
mod found;
mod plan;
mod rehearsal;
mod secrets;
mod subject;
#[cfg(test)]
mod tests;
mod views;

use std::fmt;
use std::time::Duration;

use anyhow::anyhow;
use postrider_engine::Options;
use postrider_server::{InProcess, Refusal};

use crate::config::declared::Declared;
use crate::output::inert_to;

pub(crate) use carrying::NewToken;
pub(crate) use plan::Plan;
pub(crate) use rehearsal::{Rehearsal, rehearsed};

/// How long another node may take for its turn, before this one gives up.
const PATIENCE: Duration = Duration::from_mins(2);

/// What is wrong with something that a file declares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) line: usize,
    /// Such as `endpoints.billing.url`.
    pub(crate) key: String,
    pub(crate) message: String,
}

/// A message is cut after so many characters.
const MAX_MESSAGE_CHARS: usize = 2_000;

impl Fault {
    /// What is said may repeat what the file says, and is to be shown by a terminal.
    pub(crate) fn new(line: usize, key: impl Into<String>, message: impl AsRef<str>) -> Self {
        let message = inert_to(message.as_ref(), MAX_MESSAGE_CHARS);
        Self { line, key: key.into(), message }
    }
}

/// Applies everything to a gateway without a past, as the API would: what it refuses is what a real one
/// would refuse.
pub(crate) async fn rehearse(declared: &Declared, options: Options) -> anyhow::Result<Vec<Fault>> {
    Ok(rehearsed(declared, options).await?.err().unwrap_or_default())
}

/// Why a gateway is not as its file declares.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// Nothing was changed, because of what the file says.
    Faults(Vec<Fault>),
    /// Nothing was changed, because of the gateway.
    Untouched(anyhow::Error),
    /// Some of it was done.
    Halfway(Halfway),
}

/// How far it came.
#[derive(Debug)]
pub(crate) struct Halfway {
    pub(crate) done: Vec<String>,
    pub(crate) left: Vec<String>,
    pub(crate) why: String,
    /// Those of hubs that were made.
    pub(crate) tokens: Vec<NewToken>,
}

impl fmt::Display for Halfway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { done, left, why, tokens: _ } = self;
        write!(f, "what the file declares was not applied to the end: {why}")?;
        for (what, steps) in [("done", done), ("not done", left)] {
            let steps = if steps.is_empty() { "nothing".to_owned() } else { steps.join(", ") };
            write!(f, "; {what}: {steps}")?;
        }
        f.write_str(". It goes on the next time the file is read")
    }
}

impl From<Refusal> for Trouble {
    fn from(refusal: Refusal) -> Self {
        Self::Untouched(refusal.into())
    }
}

impl From<postrider_store::Error> for Trouble {
    fn from(error: postrider_store::Error) -> Self {
        Self::Untouched(error.into())
    }
}

/// Makes the gateway be as `declared`, which was rehearsed. `announce` is told what will be done before
/// the first of it is. Returns the tokens of hubs that were made, which nobody can be told again.
pub(crate) async fn apply(
    api: &InProcess,
    declared: &Declared,
    rehearsal: &Rehearsal,
    announce: impl FnOnce(&Plan),
) -> Result<Vec<NewToken>, Trouble> {
    let store = api.engine().store();
    let turn = tokio::time::timeout(PATIENCE, store.declaring()).await.map_err(|_| {
        Trouble::Untouched(anyhow!(
            "another node has been applying its configuration file for {PATIENCE:?}, and only one \
             does so at a time"
        ))
    })??;
    api.catch_up().await?;
    let plan = plan::plan(api, declared, rehearsal).await?;
    announce(&plan);
    carrying::carry_out(api, declared, &plan, &turn).await.map_err(Trouble::Halfway)
}
