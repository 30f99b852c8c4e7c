//! A gateway with something to show: a busy week behind it, one receiver that is down, one that asks
//! for patience, one that comes and goes.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use postrider_store::{Journal as _, Measures as _};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::bench::backlog::now;
use crate::bench::gateway::Gateway;
pub(super) use crate::bench::peer::KEY;
use crate::bench::store_cycle;
use crate::history::{self, Share};

const EVENTS: u64 = 24;
const READY_WITHIN: Duration = Duration::from_mins(1);
const LOOK_AGAIN: Duration = Duration::from_millis(100);
const MAX_BODY_BYTES: usize = 64 << 10;

/// Where deliveries go, and how that is.
#[derive(Debug, Clone, Copy)]
struct Part {
    name: &'static str,
    path: &'static str,
    /// The events that go there.
    kind: &'static str,
    /// Waits between attempts.
    waits: &'static [&'static str],
    status: StatusCode,
    answer: &'static str,
    per_minute: u64,
    failing: u64,
    dying: u64,
    millis: u64,
}

const PARTS: [Part; 4] = [
    Part {
        name: "Orders to the warehouse",
        path: "/warehouse/orders",
        kind: "order.created",
        waits: &["5s", "5m", "30m"],
        status: StatusCode::NO_CONTENT,
        answer: "",
        per_minute: 900,
        failing: 4,
        dying: 0,
        millis: 11,
    },
    Part {
        name: "Invoices to accounting",
        path: "/accounting/invoices",
        kind: "invoice.paid",
        waits: &["1s", "1s"],
        status: StatusCode::BAD_GATEWAY,
        answer: "{\"error\":\"the ledger is being closed for the month\"}",
        per_minute: 240,
        failing: 30,
        dying: 3,
        millis: 24,
    },
    Part {
        name: "Customers to the CRM",
        path: "/crm/customers",
        kind: "customer.updated",
        waits: &["1s", "2s", "10m", "2h", "6h"],
        status: StatusCode::INTERNAL_SERVER_ERROR,
        answer: "{\"error\":\"deadlock detected\",\"retry\":true}",
        per_minute: 130,
        failing: 90,
        dying: 1,
        millis: 64,
    },
    Part {
        name: "Everything to analytics",
        path: "/analytics/ingest",
        kind: "page.viewed",
        waits: &["30s", "2m", "10m"],
        status: StatusCode::ACCEPTED,
        answer: "{\"queued\":true}",
        per_minute: 1_400,
        failing: 2,
        dying: 0,
        millis: 6,
    },
];

#[derive(Debug)]
pub(super) struct Stage {
    pub(super) gateway: Gateway,
    /// One that has been tried and will be tried again.
    pub(super) delivery: String,
    _receivers: Receivers,
}

/// Where deliveries go, until dropped.
#[derive(Debug)]
struct Receivers(JoinHandle<()>);

impl Drop for Receivers {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Stage {
    pub(super) async fn set(binary: &Path, data: &Path) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let receivers = Receivers(tokio::spawn(receive(listener)));

        let gateway = Gateway::start(binary, data).await?;
        let mut shares = Vec::new();
        for part in &PARTS {
            let endpoint = gateway.create_endpoint(&part.endpoint(address)).await?.parse()?;
            let Part { per_minute, failing, dying, millis, .. } = *part;
            shares.push(Share { endpoint, per_minute, failing, dying, millis });
        }
        let source = json!({ "name": "shop", "verify": { "scheme": "none" } });
        gateway.create("/v1/sources", &source).await?;
        gateway.stop().await?;

        let store = store_cycle::open(data)?;
        store.add_measures(history::measures(&shares, now())).await?;
        store.close().await;

        let gateway = Gateway::start(binary, data).await?;
        for number in 0..EVENTS {
            for part in &PARTS {
                gateway.send_event(&part.event(number)).await?;
            }
        }
        let tried = until(&gateway, "/v1/deliveries?state=retrying&limit=1", |list| {
            list["data"][0]["attempts"] == json!(3)
        });
        let delivery = tried.await?["data"][0]["id"].as_str().map(str::to_owned);
        until(&gateway, "/v1/dead-letters?limit=250", |list| {
            list["data"].as_array().is_some_and(|dead| dead.len() as u64 >= EVENTS / 4)
        })
        .await?;
        Ok(Self {
            gateway,
            delivery: delivery.context("a delivery has an id")?,
            _receivers: receivers,
        })
    }
}

impl Part {
    fn endpoint(&self, address: SocketAddr) -> Value {
        json!({
            "name": self.name,
            "url": format!("http://{address}{}", self.path),
            "event_types": [self.kind],
            "policy": {
                "schedule": { "list": self.waits, "jitter": 0.1 },
                "max_attempts": self.waits.len() + 1,
            },
        })
    }

    fn event(&self, number: u64) -> Value {
        json!({
            "type": self.kind,
            "idempotency_key": format!("{}-{number}", self.kind),
            "payload": { "id": 48_210 + number, "customer": format!("cus_{:04}", 17 * number % 977), "total": { "amount": 1_999 + 250 * number, "currency": "EUR" } },
        })
    }
}

/// Reads a list again and again until it is as wanted.
async fn until(gateway: &Gateway, path: &str, wanted: impl Fn(&Value) -> bool) -> Result<Value> {
    let started = Instant::now();
    loop {
        let list = gateway.read(path).await?;
        if wanted(&list) {
            return Ok(list);
        }
        ensure!(started.elapsed() < READY_WITHIN, "{path} did not become as wanted: {list}");
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

async fn receive(listener: TcpListener) {
    while let Ok((stream, _)) = listener.accept().await {
        let connection =
            http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(answer));
        // A gateway that stops breaks its connections off.
        tokio::spawn(async move { drop(connection.await) });
    }
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path().to_owned();
    // What it said does not matter here, only that it was said.
    let _ = Limited::new(request.into_body(), MAX_BODY_BYTES).collect().await;
    let part = PARTS.iter().find(|part| part.path == path);
    let (status, answer) =
        part.map_or((StatusCode::NOT_FOUND, ""), |part| (part.status, part.answer));
    let mut response = Response::new(Full::from(answer));
    *response.status_mut() = status;
    let json = header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    Ok(response)
}
