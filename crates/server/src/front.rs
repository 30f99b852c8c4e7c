//! The front door: every request from outside comes through here and is counted, and events go straight
//! to whoever takes them in. What is asked for ten thousand times a second need not be looked up among
//! a hundred routes.

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, HttpBody};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, ready};
use http::{Method, Request};
use tower_service::Service;

use crate::App;
use crate::auth;
use crate::events;
use crate::metrics::Route;
use crate::problem::Problem;

/// All that is reached from outside.
#[derive(Clone)]
pub struct Front {
    routes: Router,
    app: Arc<App>,
}

impl fmt::Debug for Front {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Front").finish_non_exhaustive()
    }
}

/// Marks the answer to a request for what there is not.
#[derive(Debug, Clone, Copy)]
struct Nowhere;

pub(crate) async fn nowhere() -> Response {
    let mut response = Problem::no_route().into_response();
    response.extensions_mut().insert(Nowhere);
    response
}

impl Front {
    pub(crate) fn new(routes: Router, app: Arc<App>) -> Self {
        Self { routes, app }
    }

    /// An event for whoever has a key.
    fn take_in(&self, request: Request<Body>) -> BoxFuture<'static, Response> {
        let (parts, body) = request.into_parts();
        match auth::identify(&parts, &self.app) {
            Ok(caller) => {
                let taken = events::take_in(Arc::clone(&self.app), caller.tenant, parts, body);
                taken.map(IntoResponse::into_response).boxed()
            }
            Err(problem) => ready(problem.into_response()).boxed(),
        }
    }
}

impl<B> Service<Request<B>> for Front
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<axum::BoxError>,
{
    type Response = Response;
    type Error = Infallible;
    type Future = Answering;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Answering {
        let route = Route::of(request.method(), request.uri().path());
        let method = tracing::enabled!(tracing::Level::DEBUG).then(|| request.method().clone());
        let started = self.app.engine.clock().monotonic();
        let answer = if route == Route::Events && *request.method() == Method::POST {
            self.take_in(request.map(Body::new))
        } else {
            let answer = self.routes.call(request);
            Box::pin(async move { answer.await.unwrap_or_else(|never| match never {}) })
        };
        Answering { app: Arc::clone(&self.app), answer, route, method, started }
    }
}

/// An answer in the making.
pub struct Answering {
    app: Arc<App>,
    answer: BoxFuture<'static, Response>,
    route: Route,
    /// Where somebody wants to know of every request.
    method: Option<Method>,
    started: Duration,
}

impl fmt::Debug for Answering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answering").field("route", &self.route).finish_non_exhaustive()
    }
}

impl Future for Answering {
    type Output = Result<Response, Infallible>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let response = task::ready!(self.answer.as_mut().poll(context));
        let found = response.extensions().get::<Nowhere>().is_none();
        let route = if found { self.route } else { Route::Unknown };
        let took = self.app.engine.clock().monotonic().saturating_sub(self.started);
        let status = response.status();
        self.app.requests.note(route, status, took);
        if let Some(method) = &self.method {
            // The path may hold the token of a source.
            let (route, status) = (route.as_str(), status.as_u16());
            tracing::debug!(%method, route, status, ?took, "request answered");
        }
        Poll::Ready(Ok(response))
    }
}
