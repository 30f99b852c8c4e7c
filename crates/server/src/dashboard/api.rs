//! How a page asks the API: a request that never leaves the process, made by whoever signed in.

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use http::{Method, StatusCode};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::auth::Caller;
use crate::in_process::{self, Unanswered};
use crate::problem::Problem;

pub(crate) use crate::in_process::FieldError;

/// The API, in the name of one visitor.
#[derive(Debug, Clone)]
pub(crate) struct Api {
    routes: Router,
    caller: Caller,
}

/// Why the API did not do it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) status: StatusCode,
    /// A sentence for people.
    pub(crate) detail: String,
    pub(crate) errors: Vec<FieldError>,
}

/// A page of a list.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct List<T> {
    pub(crate) data: Vec<T>,
    pub(crate) next_cursor: Option<String>,
}

impl Api {
    pub(crate) fn new(routes: Router, caller: Caller) -> Self {
        Self { routes, caller }
    }

    /// Asks for something: `api.get("/v1/deliveries?state=dead")`.
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Refused> {
        read(&self.bytes(Method::GET, path, Body::empty()).await?)
    }

    /// The same as it came, such as a payload.
    pub(crate) async fn get_bytes(&self, path: &str) -> Result<Bytes, Refused> {
        self.bytes(Method::GET, path, Body::empty()).await
    }

    /// Sends JSON and reads JSON: `api.send(Method::POST, "/v1/endpoints", &body)`.
    pub(crate) async fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, Refused> {
        let body = serde_json::to_vec(body).map_err(|error| Refused::internal(&error))?;
        read(&self.bytes(method, path, body.into()).await?)
    }

    /// Asks for something to be done that needs no words: `api.call(Method::POST, "/v1/…/pause")`.
    pub(crate) async fn call(&self, method: Method, path: &str) -> Result<(), Refused> {
        self.bytes(method, path, Body::empty()).await.map(drop)
    }

    async fn bytes(&self, method: Method, path: &str, body: Body) -> Result<Bytes, Refused> {
        Ok(in_process::ask(&self.routes, self.caller, method, path, body).await?)
    }
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refused> {
    serde_json::from_slice(body).map_err(|error| Refused::internal(&error))
}

impl From<&Problem> for Refused {
    fn from(problem: &Problem) -> Self {
        #[derive(Deserialize)]
        struct Status {
            status: u16,
        }

        let document = serde_json::to_vec(problem).unwrap_or_default();
        let status = serde_json::from_slice(&document).ok();
        let status = status.and_then(|Status { status }| StatusCode::from_u16(status).ok());
        let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Unanswered::read(status, &document).into()
    }
}

impl From<Unanswered> for Refused {
    fn from(unanswered: Unanswered) -> Self {
        match unanswered {
            Unanswered::Refused { status, detail, errors } => Self { status, detail, errors },
            Unanswered::Broken(error) => Self::internal(&*error),
        }
    }
}

impl Refused {
    /// The page and the API do not understand one another.
    fn internal(error: &dyn std::error::Error) -> Self {
        tracing::error!(%error, "a page could not use an answer of the API");
        Self {
            status: StatusCode::INTERNAL_SERVER_ERROR,
            detail: "the gateway could not make this page; its log says why".into(),
            errors: Vec::new(),
        }
    }

    /// What is wrong with a field, if something is.
    pub(crate) fn of_field(&self, field: &str) -> Option<&str> {
        self.errors.iter().find(|error| error.field == field).map(|error| error.message.as_str())
    }
}
