//! A gateway without a past, in memory, to which everything is applied first. It
//! refuses what a real one would refuse, and shows what would come of what it takes.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use http::Method;
use postrider_engine::ports::{Entropy as _, SystemEntropy};
use postrider_engine::{Engine, NodeOptions, Options};
use postrider_server::{InProcess, Refusal, ServerOptions};
use postrider_store::sealing::{Keyring, SealingKey};
use postrider_store::sqlite::{self, Sqlite};
use serde_json::{Map, Value};

use super::Fault;
use super::subject::{Subject, path};
use super::views::{Ids, Missing, Names, comparable, resolved, whole};
use super::{secrets, subject};
use crate::config::declared::{Declared, Item, Kind};
use crate::serve::{Ready, ready};

/// Nothing is in flight there.
const DRAIN: Duration = Duration::from_secs(1);

/// What would come of each item, in the order of the items.
#[derive(Default)]
pub(crate) struct Rehearsal {
    pub(super) wanted: Vec<Wanted>,
}

/// What comes of one item.
#[derive(Default)]
pub(super) struct Wanted {
    /// As the API shows it, with everything that the file leaves to the gateway.
    pub(super) fields: Map<String, Value>,
    /// The signing secret, if the file says which.
    pub(super) secret: Option<String>,
}

/// Applies everything that is declared, or says what is wrong with it.
pub(crate) async fn rehearsed(
    declared: &Declared,
    options: Options,
) -> anyhow::Result<Result<Rehearsal, Vec<Fault>>> {
    if declared.items.is_empty() {
        return Ok(Ok(Rehearsal::default()));
    }
    let stage = Stage::open(options).await?;
    let outcome = stage.play(declared).await;
    stage.engine.drain(DRAIN).await;
    Ok(outcome)
}

/// The gateway without a past.
pub(super) struct Stage {
    engine: Engine,
    pub(super) api: InProcess,
}

impl Stage {
    pub(super) async fn open(options: Options) -> anyhow::Result<Self> {
        let key = SealingKey::from_bytes(SystemEntropy.secret_bytes());
        let keyring = Keyring::new(vec![key])?;
        let store = Sqlite::in_memory(&sqlite::Options::default(), keyring);
        let store = Arc::new(store.context("cannot rehearse the configuration file")?);
        // What is judged by, and nothing by which others would hear of it.
        let options = Options { node: NodeOptions::default(), spans: None, ..options };
        let Ready { engine, keys, inbound, new_key: _ } =
            ready(options, store, None).await.map_err(|failure| failure.error)?;
        let server = ServerOptions::default();
        let (_, api) = postrider_server::router_and_api(engine.clone(), keys, inbound, server);
        Ok(Self { engine, api })
    }

    async fn play(&self, declared: &Declared) -> Result<Rehearsal, Vec<Fault>> {
        let (mut ids, mut names) = (Ids::new(), Names::new());
        let (mut wanted, mut faults) = (Vec::new(), Vec::new());
        // What refers to one of these is not to blame.
        let mut failed: HashSet<Subject> = HashSet::new();
        for item in &declared.items {
            let subject = Subject::of(item);
            let home = subject.tenant.as_deref().map(|tenant| Subject {
                kind: Kind::Tenant,
                tenant: None,
                name: tenant.to_owned(),
            });
            if home.is_some_and(|home| failed.contains(&home)) {
                failed.insert(subject);
                continue;
            }
            let body = match resolved(&subject, &whole(item), &ids) {
                Ok(body) => body,
                Err(Missing { subject: missing, .. }) if failed.contains(&missing) => {
                    failed.insert(subject);
                    continue;
                }
                Err(missing) => {
                    faults.push(undeclared(&subject, item, &missing));
                    failed.insert(subject);
                    continue;
                }
            };
            match self.make(&subject, item, &body, &names).await {
                Ok((id, made)) => {
                    names.insert(id.clone(), item.name.clone());
                    ids.insert(subject, id);
                    wanted.push(made);
                }
                Err(refusal) => {
                    faults.extend(refused(&subject, item, refusal));
                    failed.insert(subject);
                }
            }
        }
        if failed.is_empty() {
            return Ok(Rehearsal { wanted });
        }
        faults.sort_by_key(|fault| fault.line);
        Err(faults)
    }

    async fn make(
        &self,
        subject: &Subject,
        item: &Item,
        body: &Value,
        names: &Names,
    ) -> Result<(String, Wanted), Refusal> {
        let Subject { kind, tenant, .. } = subject;
        let tenant = tenant.as_deref();
        let made = self.api.request(tenant, Method::POST, path(*kind), Some(body)).await?;
        let fields = comparable(*kind, &made, names);
        let id = made.get("id").and_then(Value::as_str).unwrap_or_default().to_owned();
        // As it is kept, which may be written otherwise than it was given.
        let secret = secrets::signing(&item.body).and_then(|_| made.get("secret")?.as_str());
        Ok((id, Wanted { fields, secret: secret.map(ToOwned::to_owned) }))
    }
}

fn undeclared(subject: &Subject, item: &Item, missing: &Missing) -> Fault {
    let Missing { field, subject: missing } = missing;
    let word = subject::word(missing.kind);
    let message = format!(
        "there is no {word} `{}` in this file; declare it by [{}], which takes over one of that name \
         that is there already",
        missing.name.escape_debug(),
        missing.key("")
    );
    Fault::new(item.lines.of(field), subject.key(field), message)
}

fn refused(subject: &Subject, item: &Item, refusal: Refusal) -> Vec<Fault> {
    let Refusal { detail, errors, .. } = refusal;
    if errors.is_empty() {
        return vec![Fault::new(item.lines.item, subject.key(""), detail)];
    }
    let fault = |(field, message): (String, String)| {
        Fault::new(item.lines.of(&field), subject.key(&field), message)
    };
    errors.into_iter().map(fault).collect()
}
