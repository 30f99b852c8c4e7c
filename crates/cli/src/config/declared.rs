//! What a file declares beside settings: tenants, hubs, sources and endpoints, as the API wants them.

use std::fmt;

use serde_json::{Map, Value};

/// In the order in which it can be made: what refers to something comes after it.
#[derive(Debug, Default)]
pub(crate) struct Declared {
    /// What was declared before and is not any more is deleted, instead of being left and named.
    pub(crate) prune: bool,
    pub(crate) items: Vec<Item>,
}

/// One thing that should be there.
pub(crate) struct Item {
    pub(crate) kind: Kind,
    /// None is the tenant `default`.
    pub(crate) tenant: Option<String>,
    pub(crate) name: String,
    /// What `POST /v1/…` takes, with named policies written out and secrets put in. `hub` and
    /// `sources` of an endpoint are names as they stand in the file.
    pub(crate) body: Map<String, Value>,
    /// The same as it may be shown: with references instead of what they lead to, with named policies
    /// by name, and without what headers hold.
    pub(crate) shown: Map<String, Value>,
    pub(crate) lines: Lines,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Kind {
    Tenant,
    Hub,
    Source,
    Endpoint,
}

/// Where an item and its fields stand.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lines {
    pub(crate) item: usize,
    /// By the field as the API names it in its errors: `url`, `policy.max_attempts`.
    pub(crate) fields: Vec<(String, usize)>,
}

impl Lines {
    /// The line of a field, or of the nearest thing around it that is in the file.
    pub(crate) fn of(&self, field: &str) -> usize {
        let mut field = field;
        loop {
            if let Some((_, line)) = self.fields.iter().find(|(known, _)| known == field) {
                return *line;
            }
            match field.rfind(['.', '[']) {
                Some(end) => field = &field[..end],
                None => return self.item,
            }
        }
    }
}

/// Without its body, which has secrets in it.
impl fmt::Debug for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, tenant, name, body: _, shown: _, lines } = self;
        f.debug_struct("Item")
            .field("kind", kind)
            .field("tenant", tenant)
            .field("name", name)
            .field("line", &lines.item)
            .finish_non_exhaustive()
    }
}
