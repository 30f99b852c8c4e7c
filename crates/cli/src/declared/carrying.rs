//! Carries out a plan, step by step, through the API.

use std::fmt;

use http::{Method, StatusCode};
use postrider_core::TenantId;
use postrider_server::{InProcess, Refusal};
use postrider_store::declarations::{Declaration, DeclaringTurn};
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::Halfway;
use super::plan::{Change, Plan, Step, What};
use super::secrets::digest;
use super::subject::{Subject, number, path, stored};
use super::views::{Ids, resolved, whole};
use crate::config::declared::{Declared, Item, Kind};

/// The token of a hub that was made, to be shown once.
pub(crate) struct NewToken {
    pub(crate) hub: String,
    pub(crate) token: Zeroizing<String>,
}

/// Without the token.
impl fmt::Debug for NewToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewToken").field("hub", &self.hub).finish_non_exhaustive()
    }
}

/// Does everything, or says how far it came.
pub(super) async fn carry_out(
    api: &InProcess,
    declared: &Declared,
    plan: &Plan,
    turn: &DeclaringTurn,
) -> Result<Vec<NewToken>, Halfway> {
    let mut carrying =
        Carrying { api, items: &declared.items, ids: plan.ids.clone(), tokens: Vec::new() };
    for (index, step) in plan.steps.iter().enumerate() {
        let made = if turn.is_held() {
            carrying.step(step).await
        } else {
            Err("the connection to the store was lost, and another node may be at it".to_owned())
        };
        if let Err(why) = made {
            let lines = |steps: &[Step]| {
                let told = steps.iter().filter(|step| step.line().is_some());
                told.map(|step| step.subject.to_string()).collect()
            };
            let why = format!("{}: {why}", step.subject);
            let (done, left) = plan.steps.split_at(index);
            let tokens = carrying.tokens;
            return Err(Halfway { done: lines(done), left: lines(left), why, tokens });
        }
    }
    Ok(carrying.tokens)
}

struct Carrying<'a> {
    api: &'a InProcess,
    items: &'a [Item],
    ids: Ids,
    tokens: Vec<NewToken>,
}

impl Carrying<'_> {
    async fn step(&mut self, Step { subject, what }: &Step) -> Result<(), String> {
        match what {
            What::Create { item } => self.create(subject, &self.items[*item]).await,
            What::Change(change) => self.change(subject, change).await,
            What::Note { item, id } => self.note(subject, &self.items[*item], id).await,
            What::Delete { id } => self.delete(subject, id).await,
            What::Keep => Ok(()),
            What::Forget => self.forget(subject).await,
        }
    }

    async fn create(&mut self, subject: &Subject, item: &Item) -> Result<(), String> {
        let body = self.resolved(subject, &whole(item))?;
        let made = self.ask(subject, Method::POST, path(subject.kind), Some(&body)).await?;
        let Some(id) = made.get("id").and_then(Value::as_str) else {
            // A tenant has none.
            return Ok(());
        };
        self.ids.insert(subject.clone(), id.to_owned());
        if subject.kind == Kind::Hub
            && !item.body.contains_key("token")
            && let Some(token) = made.get("token").and_then(Value::as_str)
        {
            let token = Zeroizing::new(token.to_owned());
            self.tokens.push(NewToken { hub: subject.to_string(), token });
        }
        self.note(subject, item, id).await
    }

    async fn change(&self, subject: &Subject, change: &Change) -> Result<(), String> {
        let Change { item, id, patch, rotate, .. } = change;
        let item = &self.items[*item];
        let one = format!("{}/{id}", path(subject.kind));
        if !patch.is_empty() {
            let patch = self.resolved(subject, patch)?;
            self.ask(subject, Method::PATCH, &one, Some(&patch)).await?;
        }
        if *rotate {
            let (path, field) = match subject.kind {
                Kind::Hub => ("rotate-token", "token"),
                Kind::Tenant | Kind::Source | Kind::Endpoint => ("rotate-secret", "secret"),
            };
            let body = json!({ field: item.body.get(field) });
            self.ask(subject, Method::POST, &format!("{one}/{path}"), Some(&body)).await?;
        }
        self.note(subject, item, id).await
    }

    async fn delete(&self, subject: &Subject, id: &str) -> Result<(), String> {
        let one = format!("{}/{id}", path(subject.kind));
        let tenant = subject.tenant.as_deref();
        match self.api.request(tenant, Method::DELETE, &one, None).await {
            // Or somebody was faster.
            Ok(_) | Err(Refusal { status: StatusCode::NOT_FOUND, .. }) => {
                self.forget(subject).await
            }
            Err(refusal) => Err(refusal.to_string()),
        }
    }

    /// Notes what was made of an item, and of which secrets.
    async fn note(&self, subject: &Subject, item: &Item, id: &str) -> Result<(), String> {
        let Some(kind) = stored(subject.kind) else { return Ok(()) };
        let object = number(kind, id).ok_or_else(|| format!("`{id}` is no id"))?;
        let declaration = Declaration {
            tenant: self.tenant(subject)?,
            kind,
            name: subject.name.clone(),
            object,
            applied: digest(item),
        };
        let store = self.api.engine().store();
        store.put_declaration(declaration).await.map_err(|error| error.to_string())
    }

    async fn forget(&self, subject: &Subject) -> Result<(), String> {
        let Some(kind) = stored(subject.kind) else { return Ok(()) };
        let (tenant, store) = (self.tenant(subject)?, self.api.engine().store());
        let removed = store.remove_declaration(tenant, kind, subject.name.clone());
        removed.await.map_err(|error| error.to_string())
    }

    async fn ask(
        &self,
        subject: &Subject,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, String> {
        let answer = self.api.request(subject.tenant.as_deref(), method, path, body).await;
        answer.map_err(|refusal| refusal.to_string())
    }

    fn resolved(
        &self,
        subject: &Subject,
        fields: &serde_json::Map<String, Value>,
    ) -> Result<Value, String> {
        resolved(subject, fields, &self.ids)
            .map_err(|missing| format!("{} is not there", missing.subject))
    }

    fn tenant(&self, subject: &Subject) -> Result<TenantId, String> {
        let tenant = self.api.tenant(subject.tenant.as_deref());
        tenant.ok_or_else(|| "its tenant is not there".to_owned())
    }
}
