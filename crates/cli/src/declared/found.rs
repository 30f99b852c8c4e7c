//! What is there at a gateway, of which a file may declare that it should be otherwise.

use std::collections::HashMap;

use http::Method;
use postrider_core::TenantId;
use postrider_server::{InProcess, Refusal};
use postrider_store::declarations::{Applied, DeclaredKind};
use serde_json::Value;
use url::form_urlencoded::Serializer;

use super::Trouble;
use super::subject::{Subject, kind_of, number, path};
use crate::config::declared::Kind;

/// The entries of a page, which is as many as the API gives.
const PAGE: usize = 250;
/// More pages than any tenant can fill.
const MAX_PAGES: usize = 1_000;

/// One thing that is there.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Object {
    pub(super) id: String,
    pub(super) view: Value,
}

impl Object {
    pub(super) fn name(&self) -> Option<&str> {
        self.view.get("name").and_then(Value::as_str)
    }
}

/// What a file has declared before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Noted {
    pub(super) subject: Subject,
    pub(super) object: i64,
    pub(super) applied: Applied,
}

/// All that has to be known of a gateway.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Those that are asked for, and there.
    pub(super) tenants: Vec<String>,
    objects: HashMap<(Option<String>, Kind), Vec<Object>>,
    pub(super) noted: Vec<Noted>,
}

impl Found {
    /// Looks at the tenants that are named by the file, or were.
    pub(super) async fn look(
        api: &InProcess,
        named: impl Iterator<Item = Option<String>>,
    ) -> Result<Self, Trouble> {
        let mut found = Self::default();
        for declaration in api.engine().store().declarations().await? {
            let tenant = match declaration.tenant {
                TenantId::DEFAULT => None,
                // A tenant is never deleted.
                other => match api.tenant_name(other) {
                    Some(name) => Some(name),
                    None => continue,
                },
            };
            let subject =
                Subject { kind: kind_of(declaration.kind), tenant, name: declaration.name };
            let (object, applied) = (declaration.object, declaration.applied);
            found.noted.push(Noted { subject, object, applied });
        }
        let noted: Vec<_> = found.noted.iter().map(|noted| noted.subject.tenant.clone()).collect();
        let mut tenants: Vec<Option<String>> = named.chain(noted).collect();
        tenants.sort_unstable();
        tenants.dedup();
        for tenant in tenants {
            if api.tenant(tenant.as_deref()).is_none() {
                continue;
            }
            for kind in [Kind::Hub, Kind::Source, Kind::Endpoint] {
                let objects = list(api, tenant.as_deref(), kind).await?;
                found.objects.insert((tenant.clone(), kind), objects);
            }
            found.tenants.extend(tenant);
        }
        Ok(found)
    }

    fn of(&self, subject: &Subject) -> &[Object] {
        let objects = self.objects.get(&(subject.tenant.clone(), subject.kind));
        objects.map_or(&[], Vec::as_slice)
    }

    /// What is noted of something that the file declares.
    pub(super) fn noted(&self, subject: &Subject) -> Option<&Noted> {
        self.noted.iter().find(|noted| noted.subject == *subject)
    }

    /// The thing that was made of a declaration, whatever it is called by now.
    pub(super) fn made_of(&self, noted: &Noted, kind: DeclaredKind) -> Option<&Object> {
        let is_it = |object: &&Object| number(kind, &object.id) == Some(noted.object);
        self.of(&noted.subject).iter().find(is_it)
    }

    pub(super) fn named(&self, subject: &Subject) -> Vec<&Object> {
        let is_it = |object: &&Object| object.name() == Some(&subject.name);
        self.of(subject).iter().filter(is_it).collect()
    }
}

async fn list(api: &InProcess, tenant: Option<&str>, kind: Kind) -> Result<Vec<Object>, Refusal> {
    let mut objects = Vec::new();
    let mut cursor: Option<String> = None;
    for _ in 0..MAX_PAGES {
        let query = [("limit", PAGE.to_string())].into_iter();
        let query = query.chain(cursor.take().map(|cursor| ("cursor", cursor)));
        let query = Serializer::new(String::new()).extend_pairs(query).finish();
        let asked = format!("{}?{query}", path(kind));
        let page = api.request(tenant, Method::GET, &asked, None).await?;
        for view in page.get("data").and_then(Value::as_array).into_iter().flatten() {
            if let Some(id) = view.get("id").and_then(Value::as_str) {
                objects.push(Object { id: id.to_owned(), view: view.clone() });
            }
        }
        cursor = page.get("next_cursor").and_then(Value::as_str).map(ToOwned::to_owned);
        if cursor.is_none() {
            break;
        }
    }
    Ok(objects)
}
