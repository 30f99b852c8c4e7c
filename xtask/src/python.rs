//! The checks that need Python: real signature libraries, and requests made from the API's schema.
//! Packages go into a folder of their own under target/, at the versions that are committed.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use xtask::{cargo, toolchain};

use crate::trials;

const REQUIREMENTS: &str = "xtask/python/requirements.txt";
pub(crate) const KEY: &str = "pr_xtask_0123456789abcdefghijklmnopqrstuvwxyz";
const READY_WITHIN: Duration = Duration::from_mins(1);
const READY_POLL: Duration = Duration::from_millis(20);

const SCHEMA: &str = "docs/openapi.json";
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
                      response_schema_conformance";
/// How many requests are made at random of each operation, beside some eighty that try the bounds
/// of every field. All of them together take about a minute.
const EXAMPLES_PER_OPERATION: &str = "10";
const REQUEST_TIMEOUT_SECONDS: &str = "30";
const SEED: &str = "1";
const SOURCE_TENANT: &str = "xtask-source";

/// What is signed by the libraries that people use is accepted, and the other way round.
pub(crate) fn check_libraries() -> Result<()> {
    let python = environment()?;
    let gateway = Gateway::start()?;
    let mut command = Command::new(python.join("bin/python"));
    command.arg(cargo::root().join("xtask/python/libraries.py")).args([&gateway.url(), KEY]);
    cargo::run(command)
}

/// Makes the environment if it is not there or not of these versions. Returns its folder.
pub(crate) fn environment() -> Result<PathBuf> {
    let target = cargo::target()?;
    let folder = target.join("python");
    let wanted = fs::read_to_string(cargo::root().join(REQUIREMENTS))?;
    let stamp = folder.join("requirements.txt");
    if fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) {
        return Ok(folder);
    }
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    toolchain::require_python()?;
    let mut make = Command::new("python3");
    make.args(["-m", "venv"]).arg(&folder);
    cargo::run(make)?;
    let mut install = Command::new(folder.join("bin/pip"));
    install
        .args(["install", "--quiet", "--disable-pip-version-check", "--requirement"])
        .arg(cargo::root().join(REQUIREMENTS));
    cargo::run(install)?;
    fs::write(stamp, wanted)?;
    Ok(folder)
}

/// A gateway of this build on a free port, with a store of its own; gone when dropped.
pub(crate) struct Gateway {
    child: Child,
    address: SocketAddr,
    data: tempfile::TempDir,
}

impl Gateway {
    pub(crate) fn start() -> Result<Self> {
        let binary = trials::gateway()?;
        let data = tempfile::tempdir()?;
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let child = Command::new(binary)
            .args(["serve", "--listen", &address.to_string(), "--data"])
            .arg(data.path())
            .args(["--allow-destination", "127.0.0.0/8", "--log", "warn"])
            .env("POSTRIDER_ADMIN_KEY", KEY)
            .stdout(Stdio::null())
            .spawn()?;
        let mut gateway = Self { child, address, data };
        gateway.wait()?;
        Ok(gateway)
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    fn wait(&mut self) -> Result<()> {
        let started = Instant::now();
        while TcpStream::connect(self.address).is_err() {
            if let Some(status) = self.child.try_wait()? {
                bail!("the gateway ended while it started ({status})");
            }
            ensure!(started.elapsed() < READY_WITHIN, "the gateway did not listen in time");
            std::thread::sleep(READY_POLL);
        }
        Ok(())
    }

    /// Makes something by a POST. The answer has to be a 201.
    fn post(&self, path: &str, tenant: Option<&str>, body: &Value) -> Result<Value> {
        let body = body.to_string();
        let tenant = tenant.map(|name| format!("postrider-tenant: {name}\r\n"));
        let mut stream = TcpStream::connect(self.address)?;
        write!(
            stream,
            "POST {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {KEY}\r\n{}connection: \
             close\r\ncontent-length: {}\r\n\r\n{body}",
            self.address,
            tenant.unwrap_or_default(),
            body.len()
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
        ensure!(head.starts_with("HTTP/1.1 201 "), "{path} was answered with {answer}");
        Ok(serde_json::from_str(body)?)
    }

    /// Somewhere for what a tool leaves behind.
    fn folder(&self) -> &Path {
        self.data.path()
    }

    /// Whether it is still running: a request that brought it down must not go unnoticed.
    pub(crate) fn is_alive(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Requests made from the committed description of the API find no failure of the server and no
/// answer that is not described.
pub(crate) fn check_schema() -> Result<()> {
    let python = environment()?;
    let mut gateway = Gateway::start()?;
    let schema = gateway.folder().join("openapi.json");
    fs::write(&schema, closed_schema()?.to_string())?;
    let settings = gateway.folder().join("schemathesis.toml");
    fs::write(&settings, settings_for(&make_source(&gateway)?))?;
    let mut command = Command::new(python.join("bin/schemathesis"));
    command
        .arg("--config-file")
        .arg(settings)
        .arg("run")
        .arg(schema)
        .args(["--url", &gateway.url()])
        .args(["--header", &format!("Authorization: Bearer {KEY}")])
        .args(["--checks", CHECKS])
        .args(["--max-examples", EXAMPLES_PER_OPERATION])
        // Its answer has no end, which is a failure to a client that waits for it.
        .args(["--exclude-path", "/v1/stream"])
        .args(["--request-timeout", REQUEST_TIMEOUT_SECONDS])
        .args(["--seed", SEED, "--workers", "1", "--no-color", "--continue-on-failure"])
        // What is mostly refused is counted by the tool as a warning; it is no failure.
        .args(["--warnings", "off"])
        .current_dir(gateway.folder());
    cargo::run(command)?;
    ensure!(gateway.is_alive()?, "the gateway did not survive the requests");
    Ok(())
}

/// The committed description, read strictly: an object has no fields but those that are described.
/// To clients it says less, because answers may get more fields.
fn closed_schema() -> Result<Value> {
    let text = fs::read_to_string(cargo::root().join(SCHEMA)).context(SCHEMA)?;
    let mut schema: Value = serde_json::from_str(&text).context(SCHEMA)?;
    close(&mut schema["components"]["schemas"]);
    Ok(schema)
}

fn close(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            let described = fields.get("type").is_some_and(|kind| kind == "object")
                && fields.contains_key("properties");
            if described {
                fields.entry("additionalProperties").or_insert(Value::Bool(false));
            }
            fields.values_mut().for_each(close);
        }
        Value::Array(values) => values.iter_mut().for_each(close),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// A source that believes everything, in a tenant of its own, where the requests that delete things
/// do not find it. Returns its token, which nobody could guess.
fn make_source(gateway: &Gateway) -> Result<String> {
    gateway.post("/v1/tenants", None, &json!({ "name": SOURCE_TENANT }))?;
    let source = json!({ "name": "open", "verify": { "scheme": "none" } });
    let made = gateway.post("/v1/sources", Some(SOURCE_TENANT), &source)?;
    let token = made["url"].as_str().and_then(|url| url.strip_prefix("/in/"));
    token.map(str::to_owned).with_context(|| format!("no URL in {made}"))
}

fn settings_for(token: &str) -> String {
    format!(
        "[[operations]]\ninclude-path = \"/in/{{token}}\"\nparameters = {{ token = \"{token}\" }}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_described_fields_is_closed_and_what_is_open_on_purpose_is_not() {
        let mut schema = json!({
            "type": "object",
            "properties": {
                "list": { "type": "array", "items": { "type": "object", "properties": {} } },
                "any": { "type": "object", "additionalProperties": true, "properties": {} },
                "map": { "type": "object" },
            },
        });
        close(&mut schema);
        assert_eq!(schema["additionalProperties"], false);
        let fields = &schema["properties"];
        assert_eq!(fields["list"]["items"]["additionalProperties"], false);
        assert_eq!(fields["any"]["additionalProperties"], true);
        assert_eq!(fields["map"], json!({ "type": "object" }));
    }

    #[test]
    fn every_package_has_a_version() -> Result<()> {
        let text = fs::read_to_string(cargo::root().join(REQUIREMENTS)).context(REQUIREMENTS)?;
        let packages = text.lines().filter(|line| !line.starts_with('#'));
        for package in packages {
            assert!(package.contains("=="), "{package}");
        }
        Ok(())
    }
}
