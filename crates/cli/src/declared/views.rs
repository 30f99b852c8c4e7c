//! What the API shows of a thing, cut down to what a file can say of it, so that two can be compared;
//! and the names of a file put in place of ids, and back.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::subject::Subject;
use crate::config::declared::{Item, Kind};

/// What the gateway says of its own accord, and what is compared otherwise.
const NOT_SAID: [&str; 5] = ["id", "created_at", "updated_at", "state", "secret"];

/// What an endpoint's deliveries go to: one of these.
pub(super) const DESTINATIONS: [&str; 5] = ["url", "command", "hub", "pull", "handler"];

/// Where things are, by what the file calls them.
pub(super) type Ids = HashMap<Subject, String>;
/// What the file calls things, by where they are.
pub(super) type Names = HashMap<String, String>;

/// What is left of an answer of the API. Ids of things that the file declares become their names.
pub(super) fn comparable(kind: Kind, view: &Value, names: &Names) -> Map<String, Value> {
    let mut fields = view.as_object().cloned().unwrap_or_default();
    fields.retain(|name, _| !NOT_SAID.contains(&name.as_str()));
    match kind {
        Kind::Tenant | Kind::Hub => fields.retain(|name, _| name == "name"),
        Kind::Source => {
            fields.remove("url");
            if let Some(Value::Object(verify)) = fields.get_mut("verify") {
                verify.remove("secrets");
            }
        }
        Kind::Endpoint => {
            let name = |id: &mut Value| {
                if let Some(name) = id.as_str().and_then(|id| names.get(id)) {
                    *id = Value::from(name.as_str());
                }
            };
            if let Some(hub) = fields.get_mut("hub") {
                name(hub);
            }
            if let Some(Value::Array(sources)) = fields.get_mut("sources") {
                sources.iter_mut().for_each(name);
                // By their ids they stand in another order at every gateway.
                sources.sort_by(|one, other| one.as_str().cmp(&other.as_str()));
            }
        }
    }
    fields
}

/// A name that leads nowhere.
#[derive(Debug)]
pub(super) struct Missing {
    pub(super) field: &'static str,
    pub(super) subject: Subject,
}

/// What is sent to the API: names of hubs and sources become ids.
pub(super) fn resolved(
    subject: &Subject,
    fields: &Map<String, Value>,
    ids: &Ids,
) -> Result<Value, Missing> {
    let mut fields = fields.clone();
    if subject.kind == Kind::Endpoint {
        let find = |field, kind, value: &mut Value| {
            // What is no text is for the API to refuse.
            let Some(name) = value.as_str() else { return Ok(()) };
            let subject = subject.beside(kind, name);
            match ids.get(&subject) {
                Some(id) => {
                    *value = Value::from(id.as_str());
                    Ok(())
                }
                None => Err(Missing { field, subject }),
            }
        };
        if let Some(hub) = fields.get_mut("hub") {
            find("hub", Kind::Hub, hub)?;
        }
        if let Some(Value::Array(sources)) = fields.get_mut("sources") {
            for source in sources {
                find("sources", Kind::Source, source)?;
            }
        }
    }
    Ok(Value::Object(fields))
}

/// The body that makes an item, without names put in place of ids.
pub(super) fn whole(item: &Item) -> Map<String, Value> {
    let mut body = item.body.clone();
    body.insert("name".to_owned(), Value::from(item.name.as_str()));
    body
}
