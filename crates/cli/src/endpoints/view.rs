//! Endpoints as people see them.

use std::io::{self, Write};

use postrider_engine::ports::{Clock as _, SystemClock};
use serde_json::Value;

use crate::output::{Table, cell, moment, pairs};
use crate::resource::say_if_more;

pub(super) fn table(out: &mut dyn Write, answer: &Value) -> io::Result<()> {
    let rows = answer["data"].as_array().map(Vec::as_slice).unwrap_or_default();
    if rows.is_empty() {
        return writeln!(
            out,
            "No endpoints yet: `postrider endpoints create --url https://…` makes the first one"
        );
    }
    let mut table = Table::new(&["id", "name", "state", "to", "types", "policy"]);
    for row in rows {
        table.row([
            cell(&row["id"]),
            cell(&row["name"]),
            cell(&row["state"]),
            destination(row),
            cell(&row["event_types"]),
            policy(&row["policy"]),
        ]);
    }
    table.write(out)?;
    say_if_more(out, answer)
}

pub(super) fn page(out: &mut dyn Write, endpoint: &Value) -> io::Result<()> {
    let now = SystemClock.now();
    let mut lines = vec![
        ("id", cell(&endpoint["id"])),
        ("name", cell(&endpoint["name"])),
        ("state", cell(&endpoint["state"])),
        ("to", destination(endpoint)),
        ("types", cell(&endpoint["event_types"])),
        ("sources", cell(&endpoint["sources"])),
        ("filter", cell(&endpoint["filter"])),
        ("policy", cell(&endpoint["policy"])),
        ("ordering", cell(&endpoint["ordering"])),
        ("rate limit", rate(&endpoint["rate_limit"])),
        ("max in flight", cell(&endpoint["max_in_flight"])),
        ("timeout", cell(&endpoint["timeout"])),
        ("signing", signing(&endpoint["signing"])),
        ("format", cell(&endpoint["format"])),
    ];
    // Only the first of several lines is named.
    let mut label = "headers";
    for (name, value) in endpoint["headers"].as_object().into_iter().flatten() {
        lines.push((label, format!("{name}: {}", cell(value))));
        label = "";
    }
    if endpoint["metadata"].as_object().is_some_and(|metadata| !metadata.is_empty()) {
        lines.push(("metadata", cell(&endpoint["metadata"])));
    }
    if endpoint["tls"].is_object() {
        let own = if endpoint["tls"]["has_client_key"] == true { "own certificate" } else { "" };
        let ca = if endpoint["tls"]["ca"].is_null() { "" } else { "own authorities" };
        let said = [own, ca].into_iter().filter(|text| !text.is_empty());
        lines.push(("tls", said.collect::<Vec<_>>().join(", ")));
    }
    lines.push(("created", moment(&endpoint["created_at"], now)));
    lines.push(("updated", moment(&endpoint["updated_at"], now)));
    lines.push(("secret", cell(&endpoint["secret"])));
    lines.retain(|(_, value)| !value.is_empty());
    pairs(out, lines)
}

pub(super) fn attempt(out: &mut dyn Write, attempt: &Value) -> io::Result<()> {
    let mut lines = vec![
        ("outcome", cell(&attempt["outcome"])),
        ("status", cell(&attempt["status_code"])),
        ("took", format!("{} ms", cell(&attempt["duration_ms"]))),
        ("error", cell(&attempt["error"])),
        ("answer", cell(&attempt["response_body"])),
    ];
    lines.retain(|(_, value)| !value.is_empty());
    pairs(out, lines)
}

pub(super) fn secrets(out: &mut dyn Write, answer: &Value) -> io::Result<()> {
    let now = SystemClock.now();
    let mut lines = vec![("secret", cell(&answer["secret"]))];
    if !answer["public_key"].is_null() {
        lines.push(("public key", cell(&answer["public_key"])));
    }
    for old in older(answer) {
        let until = moment(&old["expires_at"], now);
        lines.push(("also signs", format!("{} until {until}", cell(&old["secret"]))));
    }
    pairs(out, lines)
}

/// Tells of secrets that go on signing for a while, beside standard output.
pub(super) fn older_secrets(answer: &Value) {
    let now = SystemClock.now();
    for old in older(answer) {
        eprintln!("An older secret goes on signing until {}", moment(&old["expires_at"], now));
    }
}

fn older(answer: &Value) -> impl Iterator<Item = &Value> {
    let secrets = answer["secrets"].as_array().map(Vec::as_slice).unwrap_or_default();
    secrets.iter().filter(|secret| !secret["expires_at"].is_null())
}

pub(super) fn stats(out: &mut dyn Write, stats: &Value) -> io::Result<()> {
    let health = &stats["health"];
    let mut lines = vec![
        ("id", cell(&stats["endpoint_id"])),
        ("state", cell(&stats["state"])),
        ("breaker", cell(&health["breaker"])),
        ("held until", moment(&health["hold_until"], SystemClock.now())),
    ];
    lines.retain(|(_, value)| !value.is_empty());
    let counts = &stats["deliveries"];
    for (label, field) in [
        ("pending", "pending"),
        ("in flight", "in_flight"),
        ("retrying", "retrying"),
        ("delivered", "delivered"),
        ("failed", "failed"),
        ("dead", "dead"),
        ("cancelled", "cancelled"),
    ] {
        lines.push((label, cell(&counts[field])));
    }
    pairs(out, lines)
}

fn destination(endpoint: &Value) -> String {
    if let Some(url) = endpoint["url"].as_str() {
        url.to_owned()
    } else if let Some(words) = endpoint["command"].as_array() {
        let words: Vec<String> = words.iter().map(cell).collect();
        format!("command {}", words.join(" "))
    } else if let Some(hub) = endpoint["hub"].as_str() {
        format!("hub {hub}")
    } else if endpoint["pull"] == true {
        "workers (pull)".to_owned()
    } else {
        cell(&endpoint["handler"])
    }
}

fn policy(policy: &Value) -> String {
    match policy.as_str() {
        Some(preset) => preset.to_owned(),
        None => match policy["preset"].as_str() {
            Some(preset) => format!("{preset}, changed"),
            None => "of its own".to_owned(),
        },
    }
}

fn rate(limit: &Value) -> String {
    match &limit["per_second"] {
        Value::Null => String::new(),
        rate => format!("{rate} a second, {} at once", limit["burst"]),
    }
}

fn signing(scheme: &Value) -> String {
    let name = cell(&scheme["scheme"]);
    match scheme["header"].as_str() {
        Some(header) => format!("{name}, in {header}"),
        None => name,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn where_deliveries_go_is_said_in_a_word() {
        for (endpoint, shown) in [
            (json!({ "url": "https://a" }), "https://a"),
            (json!({ "command": ["sh", "-c"] }), "command sh -c"),
            (json!({ "hub": "hub_1" }), "hub hub_1"),
            (json!({ "pull": true }), "workers (pull)"),
        ] {
            assert_eq!(destination(&endpoint), shown);
        }
        for (said, shown) in [
            (json!("edge"), "edge"),
            (json!({ "preset": "edge", "max_attempts": 3 }), "edge, changed"),
            (json!({ "max_attempts": 3 }), "of its own"),
        ] {
            assert_eq!(policy(&said), shown);
        }
    }
}
