//! `/v1/tenants`: the name spaces, for admin keys only.
//!
//! A tenant is made and stays: there is no way to delete one, because its events, its history and
//! the rows that say who changed what are kept under it. Revoke its keys to close it.

use std::sync::Arc;

use axum::extract::State;
use http::StatusCode;
use postrider_core::Timestamp;
use postrider_store::audit::Audit;
use postrider_store::registry::TenantRecord;
use serde::{Deserialize, Serialize};

use crate::App;
use crate::access::After;
use crate::answer::{self, Answer, json};
use crate::auth::Admin;
use crate::extract::{Id, Json, Query};
use crate::problem::{OrMissing as _, Problem};

const MAX_NAME_CHARS: usize = 63;
const MAX_TENANTS: usize = 10_000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewTenant {
    name: String,
}

pub(crate) async fn create(
    State(app): State<Arc<App>>,
    Admin(caller): Admin,
    Json(NewTenant { name }): Json<NewTenant>,
) -> Answer {
    check_name(&name)?;
    let (turn, now) = caller.turn(&app).await?;
    if app.keys.tenants().len() >= MAX_TENANTS {
        let message = format!("there are {MAX_TENANTS} tenants already, and no more are kept");
        return Err(Problem::conflict(message));
    }
    // It concerns no tenant that there is yet.
    let audit = Audit { tenant: None, ..caller.acting().audit(now, "tenant.create", &name, None) };
    let made = app.keys.make_tenant(turn, &app.engine, name, audit).await?;
    json(StatusCode::CREATED, &View::of(&made))
}

pub(crate) async fn list(State(app): State<Arc<App>>, _: Admin, mut query: Query) -> Answer {
    let page = query.page::<After<String>>()?;
    query.finish()?;
    let tenants = app.keys.tenants();
    let start = match page.after {
        None => 0,
        Some(After(name)) => {
            let found = tenants.iter().position(|tenant| tenant.name == name);
            found.map(|index| index + 1).ok_or_else(|| {
                Problem::invalid("cursor", "is not one that this list has given out")
            })?
        }
    };
    let rest = &tenants[start..];
    let shown = &rest[..rest.len().min(page.limit)];
    let data: Vec<View<'_>> = shown.iter().map(View::of).collect();
    let next = shown.last().filter(|_| rest.len() > shown.len());
    answer::list(&data, next.map(|last| After(last.name.clone())).as_ref())
}

pub(crate) async fn show(State(app): State<Arc<App>>, _: Admin, Id(name): Id<String>) -> Answer {
    let tenants = app.keys.tenants();
    let found = tenants.iter().find(|tenant| tenant.name == name).or_missing("tenant")?;
    json(StatusCode::OK, &View::of(found))
}

fn check_name(name: &str) -> Result<(), Problem> {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let usable = name.len() <= MAX_NAME_CHARS
        && name.bytes().next().is_some_and(is_plain)
        && name.bytes().all(|byte| is_plain(byte) || matches!(byte, b'-' | b'_'));
    if usable {
        Ok(())
    } else {
        let message = format!(
            "must have 1 to {MAX_NAME_CHARS} of a–z, 0–9, `-` and `_`, a letter or digit first"
        );
        Err(Problem::invalid("name", message))
    }
}

/// A tenant as the API shows it.
#[derive(Serialize)]
struct View<'a> {
    name: &'a str,
    /// None for the one that was there from the start.
    created_at: Option<Timestamp>,
}

impl<'a> View<'a> {
    fn of(tenant: &'a TenantRecord) -> Self {
        let created_at = Some(tenant.created_at).filter(|at| *at > Timestamp::MIN);
        Self { name: &tenant.name, created_at }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_short_and_plain() {
        let longest = "a".repeat(MAX_NAME_CHARS);
        for name in ["a", "0", "acme", "acme-2_b", "9-", &longest] {
            assert_eq!(check_name(name), Ok(()), "{name}");
        }
        let too_long = "a".repeat(MAX_NAME_CHARS + 1);
        for name in ["", "-a", "_a", "Acme", "a b", "a.b", "é", "a/b", "a\n", &too_long] {
            let problem = check_name(name).expect_err(name);
            assert_eq!(problem.fields(), ["name"], "{name}");
        }
    }
}
