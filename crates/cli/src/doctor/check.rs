//! What one check came to.

use serde_json::{Value, json};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    Ok,
    /// It works, but somebody should look at it.
    Warn,
    Fail,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Check {
    pub(super) name: &'static str,
    pub(super) status: Status,
    /// One sentence.
    pub(super) says: String,
    /// What to do, unless it is ok.
    pub(super) advice: Option<String>,
}

impl Check {
    pub(super) fn ok(name: &'static str, says: impl Into<String>) -> Self {
        Self { name, status: Status::Ok, says: says.into(), advice: None }
    }

    pub(super) fn warn(
        name: &'static str,
        says: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self { name, status: Status::Warn, says: says.into(), advice: Some(advice.into()) }
    }

    pub(super) fn fail(
        name: &'static str,
        says: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self { name, status: Status::Fail, says: says.into(), advice: Some(advice.into()) }
    }

    pub(super) fn to_json(&self) -> Value {
        let status = match self.status {
            Status::Ok => "ok",
            Status::Warn => "warn",
            Status::Fail => "fail",
        };
        json!({
            "name": self.name, "status": status, "message": self.says, "advice": self.advice,
        })
    }
}
