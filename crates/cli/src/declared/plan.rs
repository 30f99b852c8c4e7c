//! What has to be done so that a gateway is as its file declares, and how that is told to people.
//!
//! A thing that the file declares is looked for by what was noted when it was made, and then by its
//! name. What is compared is what the API shows of it with what it showed of the rehearsed one, so that
//! what the file leaves to the gateway is no difference.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;

use http::Method;
use postrider_server::InProcess;
use serde_json::{Map, Value};

use super::found::{Found, Noted, Object};
use super::rehearsal::{Rehearsal, Wanted};
use super::secrets::{digest, unseen};
use super::subject::{Subject, path, stored, word};
use super::views::{DESTINATIONS, Ids, Names, comparable};
use super::{Fault, Trouble, secrets};
use crate::config::declared::{Declared, Item, Kind};
use crate::output::{Colour, Style, inert};

/// What will be done, in this order.
pub(crate) struct Plan {
    pub(super) steps: Vec<Step>,
    /// Where those things are that are there already.
    pub(super) ids: Ids,
}

pub(super) struct Step {
    pub(super) subject: Subject,
    pub(super) what: What,
}

/// Which item is meant is said by its place in the file's order.
pub(super) enum What {
    Create {
        item: usize,
    },
    Change(Change),
    /// It is as it should be; only that has to be noted.
    Note {
        item: usize,
        id: String,
    },
    Delete {
        id: String,
    },
    /// It was declared, is not any more, and stays.
    Keep,
    /// It was declared, and is neither declared nor there any more.
    Forget,
}

pub(super) struct Change {
    pub(super) item: usize,
    pub(super) id: String,
    /// It was made by hand.
    pub(super) adopted: bool,
    /// What people are told.
    differences: Vec<String>,
    /// What the API is told.
    pub(super) patch: Map<String, Value>,
    /// A secret that the API takes by a request of its own: an endpoint's, or the token of a hub.
    pub(super) rotate: bool,
}

/// Finds out what has to be done.
pub(super) async fn plan(
    api: &InProcess,
    declared: &Declared,
    rehearsal: &Rehearsal,
) -> Result<Plan, Trouble> {
    let named = declared.items.iter().map(|item| match item.kind {
        Kind::Tenant => Some(item.name.clone()),
        Kind::Hub | Kind::Source | Kind::Endpoint => item.tenant.clone(),
    });
    let found = Found::look(api, named).await?;
    let matches = matched(declared, &found).map_err(Trouble::Faults)?;
    let mut signing = HashMap::new();
    for (item, matched) in declared.items.iter().zip(&matches) {
        if let Match::There { object, .. } = matched
            && item.kind == Kind::Endpoint
            && secrets::signing(&item.body).is_some()
        {
            let asked = format!("{}/{}/secret", path(item.kind), object.id);
            let shown = api.request(item.tenant.as_deref(), Method::GET, &asked, None).await?;
            let secret = shown.get("secret").and_then(Value::as_str).unwrap_or_default();
            signing.insert(object.id.clone(), secret.to_owned());
        }
    }
    Ok(draft(declared, rehearsal, &found, &matches, &signing))
}

/// What is there of an item.
#[derive(Debug)]
pub(super) enum Match<'a> {
    Nothing,
    /// A tenant, of which there is no more to say.
    Tenant,
    There {
        object: &'a Object,
        noted: Option<&'a Noted>,
    },
}

/// Finds what is there of each item.
pub(super) fn matched<'a>(
    declared: &Declared,
    found: &'a Found,
) -> Result<Vec<Match<'a>>, Vec<Fault>> {
    let noted = |item: &Item| {
        let noted = found.noted(&Subject::of(item))?;
        Some((noted, found.made_of(noted, stored(item.kind)?)?))
    };
    // What is an item's own is no other's, whatever it is called by now.
    let owned: HashSet<&str> =
        declared.items.iter().filter_map(noted).map(|(_, object)| object.id.as_str()).collect();
    let (mut matches, mut faults) = (Vec::new(), Vec::new());
    for item in &declared.items {
        let subject = Subject::of(item);
        if item.kind == Kind::Tenant {
            let there = found.tenants.contains(&item.name);
            matches.push(if there { Match::Tenant } else { Match::Nothing });
            continue;
        }
        if let Some((noted, object)) = noted(item) {
            matches.push(Match::There { object, noted: Some(noted) });
            continue;
        }
        let mut candidates = found.named(&subject);
        candidates.retain(|object| !owned.contains(object.id.as_str()));
        match candidates.as_slice() {
            [] => matches.push(Match::Nothing),
            [object] => matches.push(Match::There { object, noted: None }),
            several => {
                let ids: Vec<&str> = several.iter().map(|object| object.id.as_str()).collect();
                let message = format!(
                    "there are {} {}s of this name at the gateway, and which one is meant cannot be \
                     told: delete or rename all but one of {}",
                    several.len(),
                    word(item.kind),
                    ids.join(", ")
                );
                faults.push(Fault::new(item.lines.item, subject.key(""), message));
            }
        }
    }
    if faults.is_empty() { Ok(matches) } else { Err(faults) }
}

/// Compares what is there with what is wanted. `signing` has the secrets of endpoints, by their ids.
pub(super) fn draft(
    declared: &Declared,
    rehearsal: &Rehearsal,
    found: &Found,
    matches: &[Match<'_>],
    signing: &HashMap<String, String>,
) -> Plan {
    let (mut ids, mut names) = (Ids::new(), Names::new());
    for (item, matched) in declared.items.iter().zip(matches) {
        if let Match::There { object, .. } = matched {
            ids.insert(Subject::of(item), object.id.clone());
            names.insert(object.id.clone(), item.name.clone());
        }
    }
    let mut steps = Vec::new();
    let pairs = declared.items.iter().zip(&rehearsal.wanted).zip(matches);
    for (number, ((item, wanted), matched)) in pairs.enumerate() {
        let what = match matched {
            Match::Nothing => Some(What::Create { item: number }),
            Match::Tenant => None,
            Match::There { object, noted } => {
                let secret = signing.get(&object.id).map(String::as_str);
                compare(number, item, wanted, object, *noted, &names, secret)
            }
        };
        steps.extend(what.map(|what| Step { subject: Subject::of(item), what }));
    }
    steps.extend(left_out(declared, found, &names));
    Plan { steps, ids }
}

/// What to do about a thing that is there; none if it is as it should be.
fn compare(
    number: usize,
    item: &Item,
    wanted: &Wanted,
    object: &Object,
    noted: Option<&Noted>,
    names: &Names,
    secret: Option<&str>,
) -> Option<What> {
    let id = object.id.clone();
    let old = comparable(item.kind, &object.view, names);
    let fields: BTreeSet<&String> = old.keys().chain(wanted.fields.keys()).collect();
    let differ = |field: &&String| old.get(*field) != wanted.fields.get(*field);
    let (mut differences, mut patch) = (Vec::new(), Map::new());
    for field in fields.into_iter().filter(differ) {
        let (before, after) = (old.get(field), wanted.fields.get(field));
        differences.extend(told(field, before, after));
        patch.extend(said(item, field, after).map(|value| (field.clone(), value)));
    }
    let applied = digest(item);
    let as_noted = noted.is_some_and(|noted| noted.applied == applied);
    let mut rotate = false;
    if !as_noted && !unseen(item).is_empty() {
        differences.push(format!("{} changed", secrets::named(item.kind)));
        match item.kind {
            Kind::Hub => rotate = true,
            Kind::Tenant | Kind::Source | Kind::Endpoint => {
                let field = secrets::field(item.kind);
                patch.extend(said(item, field, None).map(|value| (field.to_owned(), value)));
            }
        }
    }
    if wanted.secret.is_some() && wanted.secret.as_deref() != secret {
        differences.push("secret changed".to_owned());
        rotate = true;
    }
    match (noted.is_none(), differences.is_empty()) {
        (false, true) if as_noted => None,
        (false, true) => Some(What::Note { item: number, id }),
        (adopted, _) => {
            Some(What::Change(Change { item: number, id, adopted, differences, patch, rotate }))
        }
    }
}

/// What the API is told about a field that is not as it should be.
fn said(item: &Item, field: &str, wanted: Option<&Value>) -> Option<Value> {
    match (item.body.get(field), item.kind) {
        (Some(value), _) => Some(value.clone()),
        // Deliveries go to the one place that is said; no other is taken back.
        (None, Kind::Endpoint) if DESTINATIONS.contains(&field) => None,
        // Here `null` has a meaning of its own, which is not that of leaving it to the gateway.
        (None, Kind::Source) if field == "dedup_from" => wanted.cloned(),
        // Back to what is usual.
        (None, Kind::Tenant | Kind::Hub | Kind::Source | Kind::Endpoint) => Some(Value::Null),
    }
}

/// What people are told about a field that is not as it should be. What headers hold may be secret.
fn told(field: &str, before: Option<&Value>, after: Option<&Value>) -> Vec<String> {
    let shown = |value: Option<&Value>| match value {
        None | Some(Value::Null) => "none".to_owned(),
        Some(value) => inert(&value.to_string()),
    };
    match field {
        "headers" => {
            let headers = |value: Option<&Value>| {
                value.and_then(Value::as_object).cloned().unwrap_or_default()
            };
            let (before, after) = (headers(before), headers(after));
            let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
            let differ = |name: &&String| before.get(*name) != after.get(*name);
            let name = |name: &String| format!("headers.{} changed", inert(name));
            names.into_iter().filter(differ).map(name).collect()
        }
        "tls" => vec!["tls changed".to_owned()],
        field => vec![format!("{field} {} → {}", shown(before), shown(after))],
    }
}

/// What was declared and is not any more; what others refer to comes last.
fn left_out(declared: &Declared, found: &Found, names: &Names) -> Vec<Step> {
    let declared_still: HashSet<Subject> = declared.items.iter().map(Subject::of).collect();
    let mut steps = Vec::new();
    for noted in found.noted.iter().filter(|noted| !declared_still.contains(&noted.subject)) {
        let object = stored(noted.subject.kind).and_then(|kind| found.made_of(noted, kind));
        let what = match object {
            // The file knows it by another name.
            Some(object) if names.contains_key(&object.id) => continue,
            Some(object) if declared.prune => What::Delete { id: object.id.clone() },
            Some(_) => What::Keep,
            None => What::Forget,
        };
        steps.push(Step { subject: noted.subject.clone(), what });
    }
    steps.sort_by_key(|step| std::cmp::Reverse(step.subject.kind));
    steps
}

impl Step {
    /// None for what nobody need know.
    pub(super) fn line(&self) -> Option<String> {
        let Self { subject, what } = self;
        match what {
            What::Create { .. } => Some(format!("+ {subject}")),
            What::Change(Change { adopted, differences, .. }) => {
                let taken = "taken over, was made by hand".to_owned();
                let said: Vec<String> =
                    adopted.then_some(taken).into_iter().chain(differences.clone()).collect();
                Some(format!("~ {subject}: {}", said.join(", ")))
            }
            What::Delete { .. } => Some(format!("- {subject}")),
            What::Keep => Some(format!(
                "  {subject}: not declared any more, and kept (`prune = true` deletes it)"
            )),
            What::Note { .. } | What::Forget => None,
        }
    }

    /// Whether the gateway is another afterwards.
    fn changes(&self) -> bool {
        match self.what {
            What::Create { .. } | What::Change(_) | What::Delete { .. } => true,
            What::Keep | What::Note { .. } | What::Forget => false,
        }
    }
}

impl Plan {
    /// Whether nothing has to be changed.
    pub(crate) fn is_empty(&self) -> bool {
        !self.steps.iter().any(Step::changes)
    }

    pub(crate) fn lines(&self) -> impl Iterator<Item = String> {
        self.steps.iter().filter_map(Step::line)
    }

    /// The same lines, in the colours of what they do.
    pub(crate) fn painted(&self, style: Style) -> impl Iterator<Item = String> {
        self.lines().map(move |line| {
            let colour = match line.as_bytes().first() {
                Some(b'+') => Colour::Green,
                Some(b'~') => Colour::Yellow,
                Some(b'-') => Colour::Red,
                Some(_) | None => return line,
            };
            style.paint(colour, &line)
        })
    }
}

/// Like a difference between two files.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.lines().collect();
        f.write_str(&lines.join("\n"))
    }
}
