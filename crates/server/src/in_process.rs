//! The API without a socket, for the process that serves it: what a configuration file declares is made
//! as an admin would make it, by the same routes, with the same checks, and leaves the same rows of who
//! changed what.

use std::fmt;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use postrider_core::TenantId;
use postrider_engine::Engine;
use postrider_store::audit::Actor;
use postrider_store::registry::Role;
use serde::Deserialize;
use serde_json::Value;
use tower_service::Service as _;

use crate::App;
use crate::auth::{Caller, Within};

/// The largest answer that is read. A page of a list has at most 250 entries.
const MAX_ANSWER_BYTES: usize = 64 << 20;

/// Asks the API in the name of the configuration file.
#[derive(Clone)]
pub struct InProcess {
    routes: Router,
    app: Arc<App>,
}

/// Why the API did not do it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub status: StatusCode,
    /// A sentence for people.
    pub detail: String,
    /// Which fields cannot be used, and why.
    pub errors: Vec<(String, String)>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

impl std::error::Error for Refusal {}

impl fmt::Debug for InProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InProcess").finish_non_exhaustive()
    }
}

impl InProcess {
    pub(crate) fn new(routes: Router, app: Arc<App>) -> Self {
        Self { routes, app }
    }

    pub fn engine(&self) -> &Engine {
        &self.app.engine
    }

    /// The tenant of this name; none is `default`.
    pub fn tenant(&self, name: Option<&str>) -> Option<TenantId> {
        name.map_or(Some(TenantId::DEFAULT), |name| self.app.keys.tenant_named(name))
    }

    /// What a tenant is called.
    pub fn tenant_name(&self, tenant: TenantId) -> Option<String> {
        self.app.keys.tenant_name(tenant)
    }

    /// Ends when this node knows of all that other nodes have changed before.
    pub async fn catch_up(&self) -> Result<(), Refusal> {
        let (engine, App { keys, inbound, .. }) = (&self.app.engine, &*self.app);
        let store = &**engine.store();
        let caught_up = async {
            engine.catch_up().await?;
            drop(keys.turn(store).await?);
            drop(inbound.turn(store).await?);
            Ok(())
        };
        caught_up.await.map_err(|error: postrider_store::Error| Refusal {
            status: StatusCode::SERVICE_UNAVAILABLE,
            detail: error.to_string(),
            errors: Vec::new(),
        })
    }

    /// Asks as an admin in a tenant; none is `default`. An answer without a body is `null`.
    pub async fn request(
        &self,
        tenant: Option<&str>,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, Refusal> {
        let Some(place) = self.tenant(tenant) else {
            let detail = format!("there is no tenant {}", tenant.unwrap_or_default());
            return Err(Refusal { status: StatusCode::NOT_FOUND, detail, errors: Vec::new() });
        };
        let caller =
            Caller { tenant: place, actor: Actor::File, role: Role::Admin, reach: Some(place) };
        let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
        let answer = ask(&self.routes, caller, method, path, body).await?;
        if answer.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&answer).map_err(Refusal::internal)
    }
}

/// Asks a route in somebody's name, without a socket. The answer is what a success has for a body.
pub(crate) async fn ask(
    routes: &Router,
    caller: Caller,
    method: Method,
    path: &str,
    body: Body,
) -> Result<Bytes, Unanswered> {
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header(CONTENT_TYPE, "application/json")
        .body(body)
        .map_err(Unanswered::broken)?;
    request.extensions_mut().insert(Within(caller));
    let response = match routes.clone().call(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    };
    let (status, body) = (response.status(), response.into_body());
    let body = Limited::new(body, MAX_ANSWER_BYTES).collect().await;
    let body = body.map_err(Unanswered::Broken)?.to_bytes();
    if status.is_success() { Ok(body) } else { Err(Unanswered::read(status, &body)) }
}

/// Why a route did not do it.
#[derive(Debug)]
pub(crate) enum Unanswered {
    Refused {
        status: StatusCode,
        detail: String,
        errors: Vec<FieldError>,
    },
    /// This process and its own API do not understand one another.
    Broken(Box<dyn std::error::Error + Send + Sync>),
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct FieldError {
    pub(crate) field: String,
    pub(crate) message: String,
}

impl Unanswered {
    fn broken(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Broken(error.into())
    }

    /// What a problem document says.
    pub(crate) fn read(status: StatusCode, document: &[u8]) -> Self {
        #[derive(Deserialize)]
        struct Problem {
            detail: String,
            #[serde(default)]
            errors: Vec<FieldError>,
        }

        match serde_json::from_slice(document) {
            Ok(Problem { detail, errors }) => Self::Refused { status, detail, errors },
            Err(error) => Self::broken(error),
        }
    }
}

impl From<Unanswered> for Refusal {
    fn from(unanswered: Unanswered) -> Self {
        match unanswered {
            Unanswered::Refused { status, detail, errors } => {
                let errors = errors.into_iter().map(|error| (error.field, error.message)).collect();
                Self { status, detail, errors }
            }
            Unanswered::Broken(error) => Self::internal(error),
        }
    }
}

impl Refusal {
    /// This process and its own API do not understand one another.
    fn internal(error: impl fmt::Display) -> Self {
        let detail = format!("the gateway's own API could not be used: {error}");
        Self { status: StatusCode::INTERNAL_SERVER_ERROR, detail, errors: Vec::new() }
    }
}
