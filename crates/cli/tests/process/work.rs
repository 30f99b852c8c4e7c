//! `postrider work`: programs that are run for the deliveries of a pull endpoint.

mod ends;
mod gives;
mod several;
mod stops;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::gateway::{Gateway, KEY, Launch, Process, text};
use crate::within;

/// How often something is looked at that nobody tells of.
const LOOK: Duration = Duration::from_millis(20);

/// A gateway with one pull endpoint.
struct Shop {
    gateway: Gateway,
    endpoint: String,
    /// For what programs leave behind.
    directory: tempfile::TempDir,
}

impl Shop {
    /// An endpoint that gives up at the first failure, so that its class can be read off its state.
    async fn strict() -> Self {
        Self::with(json!({ "max_attempts": 1 })).await
    }

    async fn with(policy: Value) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let gateway = Launch::serve(&directory.path().join("data")).start().await;
        let spec = json!({ "name": "jobs", "pull": true, "policy": policy });
        let endpoint = gateway.create_endpoint(spec).await;
        Self { gateway, endpoint, directory }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    /// `postrider work` on the endpoint; what is missing is the program.
    fn work(&self) -> Launch {
        let url = format!("http://{}", self.gateway.address);
        Launch::with(["work", "--gateway", &url, "--endpoint", &self.endpoint])
            .variable("POSTRIDER_KEY", KEY)
    }

    /// A worker whose program is this script; the directory for its files is `$0`.
    fn script(&self, options: &[&str], script: &str) -> Process {
        let program = self.work().and(options).and(["--", "sh", "-c", script]);
        program.and([self.path()]).spawn()
    }

    /// Sends an event and returns the id of its delivery.
    async fn send(&self, event: Value) -> String {
        let answer = self.gateway.call(Method::POST, "/v1/events", event.to_string()).await;
        assert_eq!(answer.status, StatusCode::ACCEPTED, "{}", answer.body);
        text(&self.gateway.delivery_of(&text(&answer.body, "id")).await, "id")
    }

    async fn send_payload(&self, payload: Value) -> String {
        self.send(json!({ "type": "job", "payload": payload })).await
    }

    async fn delivery(&self, id: &str) -> Value {
        self.gateway.get(&format!("/v1/deliveries/{id}")).await
    }

    /// Sends bytes as they are and returns the id of their event.
    fn send_bytes(&self, path: &str, content_type: &str, body: &[u8]) -> String {
        let mut stream = TcpStream::connect(self.gateway.address).expect("it listens");
        write!(
            stream,
            "POST {path} HTTP/1.1\r\nhost: gateway\r\nauthorization: Bearer {KEY}\r\n\
             content-type: {content_type}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
            body.len()
        )
        .expect("it reads");
        stream.write_all(body).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        let (_, body) = answer.split_once("\r\n\r\n").expect("a head");
        text(&serde_json::from_str(body).expect(&answer), "id")
    }

    async fn appears(&self, file: &str) -> String {
        let path = self.path().join(file);
        until(file, || std::fs::read_to_string(&path).ok().filter(|text| text.ends_with('\n')))
            .await
    }
}

/// The line that a worker writes when it is through with a delivery.
async fn line_about(worker: &Process, delivery: &str) -> String {
    let line = worker.stderr.line(|line| line.starts_with(delivery)).await;
    line.unwrap_or_else(|| panic!("nothing about {delivery}: {}", worker.stderr.text()))
}

/// Looks until there is something.
async fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let looking = async {
        loop {
            if let Some(found) = look() {
                return found;
            }
            tokio::time::sleep(LOOK).await;
        }
    };
    within(what, looking).await
}

/// Waits until a process has ended, which may be waiting to be buried.
async fn ended(process: &str) {
    let path = format!("/proc/{}/stat", process.trim());
    let is_over = || match std::fs::read_to_string(&path) {
        Ok(stat) => stat.rsplit(')').next().is_some_and(|rest| rest.trim().starts_with('Z')),
        Err(_) => true,
    };
    until("the end of a program", || is_over().then_some(())).await;
}
