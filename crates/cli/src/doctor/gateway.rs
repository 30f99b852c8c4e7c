//! The gateway as it shows itself: alive, ready, what waits, and which endpoints are in trouble.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use postrider_client::{Error, Gateway, Method};
use postrider_core::Timestamp;
use postrider_engine::ports::{Clock as _, SystemClock};
use serde_json::Value;
use url::form_urlencoded::Serializer;

use super::check::Check;
use super::dial;
use super::machine::compare_clocks;
use crate::output::{inert, relative};
use crate::progress::grouped;

/// How long one answer may take.
const DEADLINE: Duration = Duration::from_secs(10);

/// Pages of endpoints that are read.
const MAX_PAGES: usize = 20;
const PAGE: &str = "250";

/// What has waited for longer is worth a look.
const LONG_WAIT: Duration = Duration::from_mins(5);

/// How many names are listed.
const MAX_NAMED: usize = 5;

pub(super) struct Seen {
    pub(super) checks: Vec<Check>,
    /// As the API shows them; none where it did not.
    pub(super) endpoints: Vec<Value>,
}

pub(super) async fn look(gateway: &Gateway) -> Seen {
    let mut checks = Vec::new();
    let before = SystemClock.now();
    let url = inert(gateway.url());
    match dial::alive(gateway.url()).await {
        Ok(alive) if alive.status.is_success() => {
            checks.push(Check::ok("gateway", format!("{url} is alive")));
            if let Some(date) = alive.date {
                let whose = "the gateway's clock";
                let after = SystemClock.now();
                checks.push(compare_clocks("gateway clock", whose, date, before, after));
            }
        }
        Ok(alive) => {
            let says = format!("{url} answers {}, which a gateway does not", alive.status);
            let advice = "look what listens there, and what stands before it";
            checks.push(Check::fail("gateway", says, advice));
            return Seen { checks, endpoints: Vec::new() };
        }
        Err(why) => {
            let says = format!("{url} does not answer: {why}");
            let behind = if url.starts_with("https:") { ", and its certificate" } else { "" };
            let advice = format!(
                "look whether it runs, and at its log{behind}; --gateway says where it listens"
            );
            checks.push(Check::fail("gateway", says, advice));
            return Seen { checks, endpoints: Vec::new() };
        }
    }
    checks.push(ready(gateway).await);
    checks.extend(version(gateway).await);
    let endpoints = match endpoints(gateway).await {
        Ok(endpoints) => endpoints,
        Err(error) => {
            checks.push(unanswered(&error));
            return Seen { checks, endpoints: Vec::new() };
        }
    };
    checks.push(Check::ok("api key", "the gateway takes it"));
    match condition(gateway).await {
        Ok((stats, history)) => {
            checks.push(backlog(&stats, &history, SystemClock.now()));
            checks.extend(trouble(&stats, &endpoints));
        }
        Err(error) => checks.push(unanswered(&error)),
    }
    match get(gateway, "/v1/nodes").await {
        Ok(nodes) => checks.extend(lanes(&nodes)),
        // They are for admin keys only.
        Err(Error::Refused { status: 403, .. }) => {}
        Err(error) => checks.push(unanswered(&error)),
    }
    Seen { checks, endpoints }
}

async fn get(gateway: &Gateway, path: &str) -> Result<Value, Error> {
    let asked = gateway.request(Method::GET, path, None);
    tokio::time::timeout(DEADLINE, asked).await.unwrap_or_else(|_| {
        let reason = format!("there was no whole answer within {DEADLINE:?}");
        Err(Error::Unreachable { gateway: gateway.url().to_owned(), reason })
    })
}

fn unanswered(error: &Error) -> Check {
    match error {
        Error::Refused { status: 401, .. } => Check::fail(
            "api key",
            error.to_string(),
            "give a key of this gateway with POSTRIDER_KEY; `postrider keys` makes and lists them",
        ),
        Error::Refused { .. }
        | Error::Unreachable { .. }
        | Error::BadAnswer { .. }
        | Error::Invalid(_) => Check::fail(
            "gateway",
            error.to_string(),
            "look at the log of the gateway, and at the tenant and the key that were given",
        ),
    }
}

async fn ready(gateway: &Gateway) -> Check {
    match get(gateway, "/readyz").await {
        Ok(_) => Check::ok("ready", "it has its store, and takes events"),
        Err(error) => Check::fail(
            "ready",
            error.to_string(),
            "look at its log: its store is out of reach, or it has lost its place among the nodes",
        ),
    }
}

async fn version(gateway: &Gateway) -> Option<Check> {
    const OURS: &str = env!("CARGO_PKG_VERSION");
    // A gateway that does not describe itself is not thereby ill.
    let description = get(gateway, "/openapi.json").await.ok()?;
    let theirs = description["info"]["version"].as_str()?;
    Some(if theirs == OURS {
        Check::ok("version", format!("{OURS}, like this program"))
    } else {
        let says = format!("the gateway is of version {}, this program of {OURS}", inert(theirs));
        Check::warn("version", says, "use the same version for both")
    })
}

async fn endpoints(gateway: &Gateway) -> Result<Vec<Value>, Error> {
    let mut found = Vec::new();
    let mut cursor: Option<String> = None;
    for _ in 0..MAX_PAGES {
        let mut query = Serializer::new(String::new());
        query.append_pair("limit", PAGE);
        if let Some(cursor) = &cursor {
            query.append_pair("cursor", cursor);
        }
        let mut page = get(gateway, &format!("/v1/endpoints?{}", query.finish())).await?;
        if let Some(data) = page["data"].as_array_mut() {
            found.append(data);
        }
        cursor = page["next_cursor"].as_str().map(str::to_owned);
        if cursor.is_none() {
            break;
        }
    }
    Ok(found)
}

async fn condition(gateway: &Gateway) -> Result<(Value, Value), Error> {
    let stats = get(gateway, "/v1/stats").await?;
    let history = get(gateway, "/v1/stats/history?span=hour").await?;
    Ok((stats, history))
}

fn backlog(stats: &Value, history: &Value, now: Timestamp) -> Check {
    let count = |state: &str| stats["deliveries"][state].as_u64().unwrap_or(0);
    let waiting = count("pending") + count("retrying") + count("in_flight");
    let oldest = history["oldest_waiting_at"].as_str().and_then(|time| time.parse().ok());
    match oldest {
        Some(oldest) if now.since(oldest) > LONG_WAIT => Check::warn(
            "backlog",
            format!(
                "{} deliveries wait, the oldest since {}",
                grouped(waiting),
                relative(oldest, now).trim_end_matches(" ago")
            ),
            "`postrider deliveries list --state retrying` shows which, and `deliveries show` why",
        ),
        Some(_) | None => Check::ok("backlog", format!("{} deliveries wait", grouped(waiting))),
    }
}

/// Endpoints that get nothing for now.
fn trouble(stats: &Value, endpoints: &[Value]) -> Vec<Check> {
    let name = |endpoint: &Value| {
        let text = |field: &str| endpoint[field].as_str().filter(|text| !text.is_empty());
        Some((text("id")?.to_owned(), inert(text("name").or_else(|| text("id"))?)))
    };
    let names: HashMap<String, String> = endpoints.iter().filter_map(name).collect();
    let listed = stats["endpoints"].as_array().map(Vec::as_slice).unwrap_or_default();
    let those = |wanted: &dyn Fn(&Value) -> bool| -> Vec<String> {
        let wanted = listed.iter().filter(|endpoint| wanted(endpoint));
        let ids = wanted.filter_map(|endpoint| endpoint["endpoint_id"].as_str());
        ids.map(|id| names.get(id).cloned().unwrap_or_else(|| inert(id))).collect()
    };
    let disabled = those(&|endpoint| endpoint["state"] == "disabled");
    let open = those(&|endpoint| endpoint["health"]["breaker"] == "open");
    let mut checks = Vec::new();
    checks.push(if disabled.is_empty() {
        Check::ok("endpoints", format!("none of {} is disabled", grouped(listed.len() as u64)))
    } else {
        Check::warn(
            "endpoints",
            format!("disabled: {}", few(&disabled)),
            "repair the receiver, then `postrider endpoints enable`; what waits is kept",
        )
    });
    checks.push(if open.is_empty() {
        Check::ok("breakers", "none is open")
    } else {
        Check::warn(
            "breakers",
            format!("open, because everything failed lately: {}", few(&open)),
            "look at the receiver; the gateway tries it now and then, and goes on by itself",
        )
    });
    checks
}

fn few(names: &[String]) -> String {
    let shown = names.iter().take(MAX_NAMED).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(MAX_NAMED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// Whether every lane is carried, where there are any.
fn lanes(answer: &Value) -> Option<Check> {
    let all = answer["lanes"].as_u64().filter(|lanes| *lanes > 0)?;
    let nodes = answer["nodes"].as_array()?;
    let live: Vec<&Value> = nodes.iter().filter(|node| node["live"] == true).collect();
    let carried: BTreeSet<u64> = (live.iter())
        .flat_map(|node| node["lanes"].as_array().into_iter().flatten())
        .filter_map(Value::as_u64)
        .collect();
    let missing = all.saturating_sub(carried.len() as u64);
    Some(if missing == 0 {
        Check::ok("nodes", format!("{} live, and every lane is carried", live.len()))
    } else {
        Check::fail(
            "nodes",
            format!("{missing} of {all} lanes are carried by nobody"),
            "wait for the lease of a node that ended, then look at `postrider nodes`",
        )
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::check::Status;
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_767_225_600_000);

    #[test]
    fn what_has_waited_long_is_worth_a_look() {
        let stats = json!({ "deliveries": { "pending": 1_000, "retrying": 200, "in_flight": 34 } });
        let long = NOW.minus(LONG_WAIT).minus(Duration::from_mins(1)).to_string();
        for (oldest, expected) in [
            (json!(null), Status::Ok),
            (json!(NOW.to_string()), Status::Ok),
            (json!(long), Status::Warn),
        ] {
            let check = backlog(&stats, &json!({ "oldest_waiting_at": oldest }), NOW);
            assert_eq!(check.status, expected, "{oldest}");
            assert!(check.says.contains("1,234 deliveries"), "{}", check.says);
        }
    }

    #[test]
    fn endpoints_that_get_nothing_are_named() {
        let endpoint = |id: &str, state: &str, breaker: &str| json!({ "endpoint_id": id, "state": state, "health": { "breaker": breaker } });
        let stats = json!({ "endpoints": [
            endpoint("ep_1", "active", "closed"),
            endpoint("ep_2", "disabled", "closed"),
            endpoint("ep_3", "active", "open"),
        ] });
        let known = [json!({ "id": "ep_2", "name": "bil\x1bling" }), json!({ "id": "ep_3" })];
        let checks = trouble(&stats, &known);
        let [endpoints, breakers] = &*checks else { panic!("{checks:?}") };
        assert_eq!((endpoints.status, breakers.status), (Status::Warn, Status::Warn));
        assert!(endpoints.says.contains("bil") && !endpoints.says.contains('\x1b'));
        assert!(breakers.says.contains("ep_3"), "{}", breakers.says);
        let fine = trouble(&json!({ "endpoints": [] }), &[]);
        assert!(fine.iter().all(|check| check.status == Status::Ok), "{fine:?}");
        let many: Vec<String> = (0..9).map(|number| number.to_string()).collect();
        assert_eq!(few(&many), "0, 1, 2, 3, 4 and 4 more");
    }

    #[test]
    fn a_lane_that_nobody_carries_is_a_failure() {
        let node = |live: bool, lanes: &[u64]| json!({ "live": live, "lanes": lanes });
        for (answer, expected) in [
            (json!({ "lanes": 0, "nodes": [] }), None),
            (json!({ "lanes": 2, "nodes": [node(true, &[0, 1])] }), Some(Status::Ok)),
            (
                json!({ "lanes": 2, "nodes": [node(true, &[0]), node(false, &[1])] }),
                Some(Status::Fail),
            ),
        ] {
            assert_eq!(lanes(&answer).map(|check| check.status), expected, "{answer}");
        }
    }
}
