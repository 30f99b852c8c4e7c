//! What Prometheus itself thinks of the metrics and the alert rules: its own tool, on a scrape of the
//! real binary under some load.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use xtask::{cargo, toolchain};

use crate::python::{Gateway, KEY};

const RULES: &str = "ops/prometheus/postrider-alerts.yml";
const RULES_TEST: &str = "ops/prometheus/postrider-alerts-test.yml";
const CONFIGURATION: &str = "ops/prometheus/prometheus.yml";

/// Events that are sent before the scrape.
const EVENTS: usize = 200;
const DELIVERED_WITHIN: Duration = Duration::from_mins(1);
const POLL: Duration = Duration::from_millis(50);

/// Checks the metrics of a gateway that has work, the rules, and what the rules do.
pub(crate) fn check() -> Result<()> {
    let promtool = program()?;
    let root = cargo::root();
    for (arguments, file) in [
        (["check", "rules"], RULES),
        (["check", "config"], CONFIGURATION),
        (["test", "rules"], RULES_TEST),
    ] {
        let mut command = Command::new(&promtool);
        command.args(arguments).arg(root.join(file));
        cargo::run(command)?;
    }
    let scrape = scrape_under_load()?;
    let mut lint = Command::new(&promtool)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .spawn()
        .context("promtool could not be started")?;
    if let Some(mut input) = lint.stdin.take() {
        input.write_all(scrape.as_bytes())?;
    }
    let status = lint.wait()?;
    ensure!(status.success(), "promtool check metrics found what is printed above ({status})");
    println!("{} lines of metrics are as Prometheus wants them", scrape.lines().count());
    Ok(())
}

/// Finds promtool: on the search path, or as it was unpacked before, or from Debian's package. That is
/// unpacked under target/ rather than installed: to install it would start a server.
fn program() -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let installed = std::env::split_paths(&path).map(|folder| folder.join("promtool"));
    let folder = cargo::target()?.join("prometheus");
    let unpacked = folder.join("usr/bin/promtool");
    let mut places = installed.chain([unpacked.clone()]);
    if let Some(found) = places.find(|place| place.is_file()) {
        return Ok(found);
    }
    if !toolchain::answers(Command::new("apt-get").arg("--version")) {
        bail!(
            "promtool is needed to check metrics and alert rules: install prometheus (Debian), or \
             what your system calls it, or put promtool on the search path"
        );
    }
    fs::create_dir_all(&folder)?;
    if download(&folder).is_err() && toolchain::is_root() {
        let mut update = Command::new("apt-get");
        update.arg("update");
        cargo::run(update)?;
        download(&folder)?;
    }
    let package = fs::read_dir(&folder)?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|ending| ending == "deb"))
        .context("apt-get could not download Debian's package prometheus: try apt-get update")?;
    let mut unpack = Command::new("dpkg-deb");
    unpack.arg("-x").arg(package).arg(&folder);
    cargo::run(unpack)?;
    ensure!(unpacked.is_file(), "Debian's package prometheus has no promtool in it");
    Ok(unpacked)
}

fn download(folder: &Path) -> Result<()> {
    let mut command = Command::new("apt-get");
    command.args(["download", "prometheus"]).current_dir(folder);
    cargo::run(command)
}

/// What a gateway says of itself after it has delivered some, failed at some, and refused some.
fn scrape_under_load() -> Result<String> {
    let gateway = Gateway::start()?;
    let gateway = Client { address: gateway.url().trim_start_matches("http://").parse()?, gateway };
    let sink = TcpListener::bind("127.0.0.1:0")?;
    let place = sink.local_addr()?;
    std::thread::spawn(move || {
        for stream in sink.incoming().flatten() {
            // A connection that breaks is tried again by the gateway.
            drop(answer(stream));
        }
    });
    for path in ["good", "bad"] {
        let spec = json!({ "url": format!("http://{place}/{path}"), "event_types": ["a.*"] });
        gateway.post("/v1/endpoints", &spec, 201)?;
    }
    for number in 0..EVENTS {
        gateway.post("/v1/events", &json!({ "type": "a.b", "payload": number }), 202)?;
    }
    gateway.post("/v1/events", &json!({ "payload": 1 }), 422)?;
    let delivered = format!("postrider_deliveries_ended_total{{state=\"delivered\"}} {EVENTS}\n");
    let started = Instant::now();
    loop {
        let scrape = gateway.call("GET", "/metrics", "", 200)?;
        if scrape.contains(&delivered) {
            return Ok(scrape);
        }
        ensure!(started.elapsed() < DELIVERED_WITHIN, "not all was delivered in time:\n{scrape}");
        std::thread::sleep(POLL);
    }
}

/// Reads a request and answers it: 500 if its path says so.
fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    let mut request = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let read = stream.read(&mut piece)?;
        request.extend_from_slice(&piece[..read]);
        if read == 0 || is_whole(&request) {
            break;
        }
    }
    let status = if request.starts_with(b"POST /bad") { "500 Broken" } else { "200 OK" };
    write!(stream, "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
}

fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        if name.eq_ignore_ascii_case("content-length") { value.trim().parse().ok() } else { None }
    });
    body.len() >= length.unwrap_or(0)
}

/// One connection for each request.
struct Client {
    address: SocketAddr,
    /// Runs for as long as this is there.
    #[allow(dead_code, reason = "held for its end")]
    gateway: Gateway,
}

impl Client {
    fn post(&self, path: &str, body: &Value, expected: u16) -> Result<String> {
        self.call("POST", path, &body.to_string(), expected)
    }

    fn call(&self, method: &str, path: &str, body: &str, expected: u16) -> Result<String> {
        let mut stream = TcpStream::connect(self.address)?;
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {KEY}\r\nconnection: \
             close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
        let expected = format!("HTTP/1.1 {expected} ");
        ensure!(head.starts_with(&expected), "{path} was answered with {answer}");
        Ok(body.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_whole_when_its_body_is() {
        for (request, expected) in [
            ("POST / HTTP/1.1\r\n", false),
            ("POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n", false),
            ("POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\nab", true),
            ("POST / HTTP/1.1\r\nhost: a\r\n\r\n", true),
        ] {
            assert_eq!(is_whole(request.as_bytes()), expected, "{request}");
        }
    }
}
