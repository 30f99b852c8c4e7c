//! Reads what a file declares: policies, hubs, sources and endpoints, of the default tenant and of
//! others. Only their form is judged here, and what they refer to within the file; the rest is for the
//! API.

use std::collections::BTreeMap;

use postrider_core::policy::{Preset, Presets, Spec};
use serde_json::{Map, Value as Json};
use toml::de::DeTable;

use super::declared::{Declared, Item, Kind, Lines};
use super::document::{Body, Entry, Faults, LineIndex, Section, within};
use super::near::{nearest, unknown};
use super::references::{Outside, Reference, WANTED};
use super::schema::Schema;

pub(super) const POLICIES: &str = "policies";
pub(super) const TENANTS: &str = "tenants";
/// The tables of things, in the order in which the things are made.
const KINDS: [(&str, Kind); 3] =
    [("hubs", Kind::Hub), ("sources", Kind::Source), ("endpoints", Kind::Endpoint)];
/// What is a table of the file, beside its settings.
pub(super) const TABLES: [&str; 5] = [POLICIES, "hubs", "sources", "endpoints", TENANTS];

const DEFAULT_TENANT: &str = "default";
/// As long as any name of the API.
const MAX_NAME_CHARS: usize = 200;
/// TOML has no `null`, by which the API is told that there is no limit.
const NO_LIMIT: &str = "none";
/// Stands for what is not shown.
const HIDDEN: &str = "…";

/// Reads everything that `root` declares; `prune` is not part of it.
pub(super) fn read(
    root: &DeTable<'_>,
    index: &LineIndex,
    outside: Outside<'_>,
    faults: &mut Faults,
) -> Vec<Item> {
    let mut reading = Reading { index, outside, faults, items: Vec::new() };
    let section = Section { table: root, path: "" };
    let policies = reading.policies(section, &BTreeMap::new());
    reading.things(section, None, &policies);
    for entry in section.entries(index).filter(|entry| entry.name == TENANTS) {
        reading.tenants(&entry, &policies);
    }
    let mut items = reading.items;
    items.sort_by_key(|item| (item.kind, item.lines.item));
    items
}

/// A policy with a name.
#[derive(Debug, Clone)]
struct Named {
    body: Map<String, Json>,
    lines: Lines,
}

struct Reading<'a> {
    index: &'a LineIndex,
    outside: Outside<'a>,
    faults: &'a mut Faults,
    items: Vec<Item>,
}

impl Reading<'_> {
    fn tenants(&mut self, entry: &Entry<'_, '_>, policies: &BTreeMap<String, Named>) {
        let Some(tenants) = entry.table("such as [tenants.acme.endpoints.crm]", self.faults) else {
            return;
        };
        for tenant in (Section { table: tenants, path: &entry.path }).entries(self.index) {
            let Some(table) = tenant.table("such as [tenants.acme.endpoints.crm]", self.faults)
            else {
                continue;
            };
            if tenant.name == DEFAULT_TENANT {
                let message = "is the tenant of what stands in no [tenants.…]: declare it there";
                self.faults.add(tenant.line, &tenant.path, message);
                continue;
            }
            self.check_name(&tenant);
            let section = Section { table, path: &tenant.path };
            for entry in section.entries(self.index) {
                let known = KINDS.iter().map(|(table, _)| *table).chain([POLICIES]);
                if known.clone().all(|known| known != entry.name) {
                    self.faults.add(entry.line, &entry.path, unknown(entry.name, known));
                }
            }
            let fields = Map::from_iter([("name".to_owned(), Json::from(tenant.name))]);
            self.items.push(Item {
                kind: Kind::Tenant,
                tenant: None,
                name: tenant.name.to_owned(),
                shown: fields.clone(),
                body: fields,
                lines: Lines { item: tenant.line, fields: Vec::new() },
            });
            let policies = self.policies(section, policies);
            self.things(section, Some(tenant.name), &policies);
        }
    }

    /// The named policies of a section, beside those that hold everywhere.
    fn policies(
        &mut self,
        section: Section<'_, '_>,
        outer: &BTreeMap<String, Named>,
    ) -> BTreeMap<String, Named> {
        let mut policies = outer.clone();
        for entry in section.entries(self.index).filter(|entry| entry.name == POLICIES) {
            let Some(table) = entry.table("such as [policies.patient]", self.faults) else {
                continue;
            };
            for policy in (Section { table, path: &entry.path }).entries(self.index) {
                let Some(table) = policy.table("such as [policies.patient]", self.faults) else {
                    continue;
                };
                self.check_name(&policy);
                if Preset::named(policy.name).is_some() {
                    let message = "is the name of a preset; give it another";
                    self.faults.add(policy.line, &policy.path, message);
                }
                let section = Section { table, path: &policy.path };
                let mut body = Body::read(section, policy.line, self.index, self.faults);
                unlimit(&mut body.fields);
                let fields = Json::Object(body.fields.clone());
                let sound = self.check(Schema::policy(), &fields, &policy.path, &body.lines);
                if sound {
                    self.check_policy(&fields, &policy.path, &body.lines);
                }
                let named = Named { body: body.fields, lines: body.lines };
                policies.insert(policy.name.to_owned(), named);
            }
        }
        policies
    }

    fn things(
        &mut self,
        section: Section<'_, '_>,
        tenant: Option<&str>,
        policies: &BTreeMap<String, Named>,
    ) {
        for (table, kind) in KINDS {
            for entry in section.entries(self.index).filter(|entry| entry.name == table) {
                let example = format!("such as [{}.NAME]", entry.path);
                let Some(table) = entry.table(&example, self.faults) else { continue };
                for thing in (Section { table, path: &entry.path }).entries(self.index) {
                    let Some(table) = thing.table(&example, self.faults) else { continue };
                    self.check_name(&thing);
                    self.thing(&thing, table, kind, tenant, policies);
                }
            }
        }
    }

    fn thing(
        &mut self,
        entry: &Entry<'_, '_>,
        table: &DeTable<'_>,
        kind: Kind,
        tenant: Option<&str>,
        policies: &BTreeMap<String, Named>,
    ) {
        let section = Section { table, path: &entry.path };
        let Body { mut fields, mut lines } =
            Body::read(section, entry.line, self.index, self.faults);
        if fields.contains_key("name") {
            let message = format!(
                "is not said: what stands in [{}] is called what its table is called",
                entry.path
            );
            self.faults.add(lines.of("name"), within(&entry.path, "name"), message);
        }
        if let Some(Json::Object(policy)) = fields.get_mut("policy") {
            unlimit(policy);
        }
        fields.insert("name".to_owned(), Json::from(entry.name));
        let fields = Json::Object(fields);
        self.check(Schema::of(kind), &fields, &entry.path, &lines);
        let (mut body, mut shown) = (fields.clone(), fields);
        self.fetch(kind, &mut body, &mut shown, "", (&entry.path, &lines));
        let (Json::Object(mut body), Json::Object(shown)) = (body, shown) else { return };
        self.write_out(&mut body, &mut lines, &entry.path, policies);
        let tenant = tenant.map(ToOwned::to_owned);
        self.items.push(Item { kind, tenant, name: entry.name.to_owned(), body, shown, lines });
    }

    fn check_name(&mut self, entry: &Entry<'_, '_>) {
        let name = entry.name;
        let bounded = name.chars().count() <= MAX_NAME_CHARS && !name.trim().is_empty();
        if !bounded || name.chars().any(char::is_control) {
            let message =
                format!("a name has from 1 to {MAX_NAME_CHARS} characters, none for control");
            self.faults.add(entry.line, &entry.path, message);
        }
    }

    /// True if nothing was found.
    fn check(&mut self, schema: Schema, fields: &Json, path: &str, lines: &Lines) -> bool {
        let mut sound = true;
        schema.check(fields, &mut |field, message| {
            sound = false;
            self.faults.add(lines.of(field), keyed(path, field), message);
        });
        sound
    }

    /// A policy that nothing names is judged as well; its fields one by one, so that each has its line.
    fn check_policy(&mut self, fields: &Json, path: &str, lines: &Lines) {
        let mut sound = true;
        for (name, value) in fields.as_object().into_iter().flatten() {
            let one = Json::Object(Map::from_iter([(name.clone(), value.clone())]));
            if let Err(error) = serde_json::from_value::<Spec>(one) {
                sound = false;
                self.faults.add(lines.of(name), within(path, name), error.to_string());
            }
        }
        if let Ok(spec) = serde_json::from_value::<Spec>(fields.clone())
            && sound
            && let Err(invalid) = spec.build(&Presets::default())
        {
            let line = lines.of(&invalid.field);
            self.faults.add(line, keyed(path, &invalid.field), invalid.message);
        }
    }

    /// Puts a policy in the place of its name.
    fn write_out(
        &mut self,
        body: &mut Map<String, Json>,
        lines: &mut Lines,
        path: &str,
        policies: &BTreeMap<String, Named>,
    ) {
        let Some(Json::String(name)) = body.get("policy") else { return };
        if let Some(Named { body: policy, lines: theirs }) = policies.get(name) {
            let fields = theirs.fields.iter();
            lines.fields.extend(fields.map(|(field, line)| (format!("policy.{field}"), *line)));
            body.insert("policy".to_owned(), Json::Object(policy.clone()));
        } else if Preset::named(name).is_none() {
            let presets = Preset::ALL.map(Preset::as_str);
            let known = policies.keys().map(String::as_str).chain(presets);
            let message = match nearest(name, known) {
                Some(near) => format!("no policy is called that; did you mean {near}?"),
                None => format!(
                    "no policy is called that: declare it in [{POLICIES}.…], or name a preset: {}",
                    presets.join(", ")
                ),
            };
            self.faults.add(lines.of("policy"), within(path, "policy"), message);
        }
    }

    /// Puts what references lead to into `body`, and leaves in `shown` what may be shown.
    fn fetch(
        &mut self,
        kind: Kind,
        body: &mut Json,
        shown: &mut Json,
        field: &str,
        (path, lines): (&str, &Lines),
    ) {
        match (&mut *body, &mut *shown) {
            (Json::Object(body), Json::Object(shown)) => {
                for ((name, body), shown) in body.iter_mut().zip(shown.values_mut()) {
                    let inner =
                        if field.is_empty() { name.clone() } else { format!("{field}.{name}") };
                    self.fetch(kind, body, shown, &inner, (path, lines));
                }
                return;
            }
            (Json::Array(body), Json::Array(shown)) => {
                for (at, (body, shown)) in body.iter_mut().zip(shown).enumerate() {
                    self.fetch(kind, body, shown, &format!("{field}[{at}]"), (path, lines));
                }
                return;
            }
            (_, _) => {}
        }
        let holds = holds(kind, field);
        let reference = match &*body {
            Json::String(text) => Reference::read(text),
            _ => None,
        };
        let refused = match (holds, reference) {
            (Holds::Plain, _) | (Holds::Perhaps, None) => return,
            (Holds::Secret | Holds::Perhaps | Holds::Header, Some(reference)) => {
                match reference.fetch(self.outside) {
                    Ok(value) => {
                        *body = Json::String(value.to_string());
                        return;
                    }
                    Err(message) => message,
                }
            }
            (Holds::Secret, None) => {
                *shown = Json::from(HIDDEN);
                WANTED.to_owned()
            }
            (Holds::Header, None) => {
                let parts = body.as_str().unwrap_or_default().split_whitespace();
                let half = parts.skip(1).any(|part| Reference::read(part).is_some());
                *shown = Json::from(HIDDEN);
                if !half {
                    return;
                }
                "a reference is the whole value: put what stands before it where it leads to"
                    .to_owned()
            }
        };
        self.faults.add(lines.of(field), keyed(path, field), refused);
    }
}

/// What stands in a field.
#[derive(Debug, Clone, Copy)]
enum Holds {
    /// Always a secret, so it has to be a reference.
    Secret,
    /// Something that may be secret, so it can be a reference.
    Perhaps,
    /// The same, and it is not shown.
    Header,
    Plain,
}

fn holds(kind: Kind, field: &str) -> Holds {
    let is = |known: &str| {
        let rest = field.strip_prefix(known);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    };
    match kind {
        Kind::Endpoint if is("secret") || is("tls.client_key") => Holds::Secret,
        Kind::Endpoint if is("headers") => Holds::Header,
        Kind::Endpoint if is("url") || is("tls") => Holds::Perhaps,
        Kind::Source if is("verify.secret") || is("verify.secrets") => Holds::Secret,
        Kind::Hub if is("token") => Holds::Secret,
        Kind::Endpoint | Kind::Source | Kind::Hub | Kind::Tenant => Holds::Plain,
    }
}

/// The key of a field as the API names it.
fn keyed(path: &str, field: &str) -> String {
    if field.is_empty() { path.to_owned() } else { format!("{path}.{}", field.escape_debug()) }
}

fn unlimit(policy: &mut Map<String, Json>) {
    for limit in ["max_attempts", "max_age"] {
        if let Some(value) = policy.get_mut(limit)
            && value == NO_LIMIT
        {
            *value = Json::Null;
        }
    }
}

impl Declared {
    /// How many there are of each kind, for people; empty if there is nothing.
    pub(crate) fn counted(&self) -> Vec<String> {
        let kinds = [
            (Kind::Endpoint, "endpoint"),
            (Kind::Source, "source"),
            (Kind::Hub, "hub"),
            (Kind::Tenant, "tenant"),
        ];
        let counted = kinds.into_iter().filter_map(|(kind, word)| {
            match self.items.iter().filter(|item| item.kind == kind).count() {
                0 => None,
                1 => Some(format!("1 {word}")),
                many => Some(format!("{many} {word}s")),
            }
        });
        counted.collect()
    }
}
