//! A headless Chromium, driven through its driver by the `WebDriver` protocol: the few commands that
//! tests and screenshots need. Both programs end with the [`Browser`].

use std::ffi::OsString;
use std::fmt;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpStream;

/// Where the two programs are, if they are not found by name.
const CHROMIUM: &str = "POSTRIDER_CHROMIUM";
const CHROMEDRIVER: &str = "POSTRIDER_CHROMEDRIVER";
const STARTED: &str = "started successfully on port ";
/// The longest that one command may take; loading a page is the longest there is.
const ANSWERED_WITHIN: Duration = Duration::from_mins(1);
/// How long a browser is given to end by itself.
const ENDED_WITHIN: Duration = Duration::from_secs(5);
/// A screenshot is the largest answer.
const MAX_ANSWER_BYTES: usize = 32 << 20;
/// What the protocol calls a reference to an element.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

const SWITCHES: &[&str] = &[
    "--headless=new",
    // The tests may run as root, where the sandbox does not; the pages are this gateway's own.
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-crash-reporter",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-features=Translate,OptimizationHints,MediaRouter",
    "--disable-sync",
    "--no-default-browser-check",
    "--no-first-run",
    // A gateway on this machine is reached without the proxy of an environment.
    "--no-proxy-server",
    "--password-store=basic",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--lang=en-US",
];

/// One window of one browser with a profile of its own. It is gone when this is dropped.
#[derive(Debug)]
pub(crate) struct Browser {
    driver: Driver,
    session: String,
    /// Removed after the browser has ended: fields are dropped in this order.
    _profile: TempDir,
}

/// Something on a page. Worthless once the page has put another in its place.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Element(String);

/// A line of the browser's console.
#[derive(Debug, Clone)]
pub(crate) struct Logged {
    pub(crate) level: String,
    pub(crate) message: String,
}

/// The width and height of what a page is shown in, and how many dots there are to each of its pixels.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Screen {
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) scale: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scheme {
    Light,
    Dark,
}

impl Scheme {
    pub(crate) const BOTH: [Self; 2] = [Self::Light, Self::Dark];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Light => "light",
            Self::Dark => "dark",
        }
    }
}

impl fmt::Display for Logged {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}: {}", self.level, self.message)
    }
}

impl Browser {
    pub(crate) async fn start() -> Result<Self> {
        let chromium = program(CHROMIUM, &["chromium", "chromium-browser", "google-chrome"])?;
        let profile = tempfile::Builder::new().prefix("postrider-browser-").tempdir()?;
        let driver = Driver::start(&profile)?;
        let user_data = format!("--user-data-dir={}", profile.path().join("user").display());
        let switches: Vec<&str> = SWITCHES
            .iter()
            .copied()
            .chain([user_data.as_str(), "--window-size=1280,900"])
            .collect();
        let capabilities = json!({
            "browserName": "chrome",
            "goog:loggingPrefs": { "browser": "ALL" },
            "goog:chromeOptions": { "binary": chromium, "args": switches },
            // What a page asks by `alert` is a failure of the next command, not an answer.
            "unhandledPromptBehavior": "ignore",
        });
        let wanted = json!({ "capabilities": { "alwaysMatch": capabilities } });
        let begun = driver.command(Method::POST, "/session", &wanted).await?;
        let session = text(&begun["sessionId"])?;
        Ok(Self { driver, session, _profile: profile })
    }

    pub(crate) async fn go(&self, url: &str) -> Result<()> {
        self.post("url", &json!({ "url": url })).await.map(drop)
    }

    pub(crate) async fn url(&self) -> Result<String> {
        text(&self.get("url").await?)
    }

    pub(crate) async fn title(&self) -> Result<String> {
        text(&self.get("title").await?)
    }

    pub(crate) async fn back(&self) -> Result<()> {
        self.post("back", &json!({})).await.map(drop)
    }

    /// Runs a function's body in the page and returns what it returns.
    pub(crate) async fn run(&self, script: &str, arguments: &[Value]) -> Result<Value> {
        self.post("execute/sync", &json!({ "script": script, "args": arguments })).await
    }

    /// The same for what takes time: the script calls its last argument with what it has found.
    pub(crate) async fn run_until_called(&self, script: &str, given: &[Value]) -> Result<Value> {
        self.post("execute/async", &json!({ "script": script, "args": given })).await
    }

    /// What a script finds, if it is an element.
    pub(crate) async fn find(&self, script: &str, given: &[Value]) -> Result<Option<Element>> {
        let found = self.run(script, given).await?;
        Ok(found[ELEMENT].as_str().map(|id| Element(id.to_owned())))
    }

    pub(crate) async fn click(&self, element: &Element) -> Result<()> {
        self.post(&format!("element/{}/click", element.0), &json!({})).await.map(drop)
    }

    pub(crate) async fn clear(&self, element: &Element) -> Result<()> {
        self.post(&format!("element/{}/clear", element.0), &json!({})).await.map(drop)
    }

    /// Types into an element, key by key.
    pub(crate) async fn type_into(&self, element: &Element, keys: &str) -> Result<()> {
        self.post(&format!("element/{}/value", element.0), &json!({ "text": keys })).await.map(drop)
    }

    /// Presses keys one after the other, wherever the focus is.
    pub(crate) async fn press_keys(&self, keys: &str) -> Result<()> {
        let strokes: Vec<Value> = keys
            .chars()
            .flat_map(|key| ["keyDown", "keyUp"].map(|kind| json!({ "type": kind, "value": key })))
            .collect();
        let keyboard = json!({ "type": "key", "id": "keyboard", "actions": strokes });
        self.post("actions", &json!({ "actions": [keyboard] })).await.map(drop)
    }

    /// What the console has said since this was last asked.
    pub(crate) async fn log(&self) -> Result<Vec<Logged>> {
        let lines = self.post("se/log", &json!({ "type": "browser" })).await?;
        let lines = lines.as_array().context("the log is no list")?;
        let line = |line: &Value| {
            Ok(Logged { level: text(&line["level"])?, message: text(&line["message"])? })
        };
        lines.iter().map(line).collect()
    }

    /// Shows pages as to somebody who prefers these colours.
    pub(crate) async fn prefer(&self, scheme: Scheme) -> Result<()> {
        let feature = json!({ "name": "prefers-color-scheme", "value": scheme.name() });
        // What moves would be photographed, and judged, half-way.
        let still = json!({ "name": "prefers-reduced-motion", "value": "reduce" });
        let media = json!({ "features": [feature, still] });
        self.devtools("Emulation.setEmulatedMedia", &media).await.map(drop)
    }

    pub(crate) async fn resize(&self, screen: Screen) -> Result<()> {
        let metrics = json!({
            "width": screen.width,
            "height": screen.height,
            "deviceScaleFactor": screen.scale,
            "mobile": false,
        });
        self.devtools("Emulation.setDeviceMetricsOverride", &metrics).await.map(drop)
    }

    /// What is seen, as a PNG in base64.
    pub(crate) async fn screenshot(&self) -> Result<String> {
        text(&self.get("screenshot").await?)
    }

    async fn devtools(&self, command: &str, parameters: &Value) -> Result<Value> {
        self.post("goog/cdp/execute", &json!({ "cmd": command, "params": parameters })).await
    }

    async fn get(&self, what: &str) -> Result<Value> {
        let path = format!("/session/{}/{what}", self.session);
        self.driver.command(Method::GET, &path, &Value::Null).await
    }

    async fn post(&self, what: &str, body: &Value) -> Result<Value> {
        let path = format!("/session/{}/{what}", self.session);
        self.driver.command(Method::POST, &path, body).await
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The driver ends the browser and waits for it; if it cannot, both are killed anyway.
        let _ = self.driver.end(&self.session);
    }
}

impl Element {
    /// As an argument of a script.
    pub(crate) fn as_argument(&self) -> Value {
        json!({ ELEMENT: self.0 })
    }
}

/// The program between us and the browser, in a process group that the browser joins.
#[derive(Debug)]
struct Driver {
    child: Child,
    address: SocketAddr,
}

impl Driver {
    fn start(profile: &TempDir) -> Result<Self> {
        let program = program(CHROMEDRIVER, &["chromedriver"])?;
        let mut command = Command::new(program);
        command
            .arg("--port=0")
            .env_clear()
            .env("HOME", profile.path())
            .env("TMPDIR", profile.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0);
        if let Some(path) = std::env::var_os("PATH") {
            command.env("PATH", path);
        }
        let mut child = command.spawn().context("the driver could not be started")?;
        let stdout = child.stdout.take();
        let mut driver = Self { child, address: (Ipv4Addr::LOCALHOST, 0).into() };
        let mut stdout = BufReader::new(stdout.context("its output is ours")?);
        let said = stdout.by_ref().lines().map_while(Result::ok).find_map(|line| {
            let port = line.split_once(STARTED)?.1.trim_end_matches('.');
            port.parse().ok()
        });
        // A full pipe would stop it, and a closed one might end it.
        thread::spawn(move || io::copy(&mut stdout, &mut io::sink()));
        driver.address.set_port(said.context("the driver ended before it listened")?);
        Ok(driver)
    }

    /// One command, answered with its value. A connection each: they are few, and none is in the way
    /// of another after a failure.
    async fn command(&self, method: Method, path: &str, body: &Value) -> Result<Value> {
        let answered = tokio::time::timeout(ANSWERED_WITHIN, self.exchange(method, path, body));
        let (status, answer) =
            answered.await.with_context(|| format!("no answer to {path} in time"))??;
        let value = answer["value"].clone();
        if status.is_success() {
            return Ok(value);
        }
        let (error, message) = (&value["error"], &value["message"]);
        // The first line says it; those after it are addresses in the driver.
        let message = message.as_str().unwrap_or_default().lines().next().unwrap_or_default();
        bail!("{}: {message}", error.as_str().unwrap_or("unknown error"))
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: &Value,
    ) -> Result<(StatusCode, Value)> {
        let stream = TcpStream::connect(self.address).await.context("the driver is gone")?;
        let (mut sender, connection) = handshake(TokioIo::new(stream)).await?;
        // How it ends is seen by the request.
        tokio::spawn(async move { drop(connection.await) });
        let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, self.address.to_string())
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(body))?;
        let (parts, body) = sender.send_request(request).await?.into_parts();
        let bytes = Limited::new(body, MAX_ANSWER_BYTES).collect().await;
        let bytes = bytes.map_err(|error| anyhow!("reading an answer: {error}"))?.to_bytes();
        Ok((parts.status, serde_json::from_slice(&bytes)?))
    }

    /// Ends the browser without a runtime: a browser may be dropped where there is none any more.
    fn end(&self, session: &str) -> Result<()> {
        let mut stream = std::net::TcpStream::connect_timeout(&self.address, ENDED_WITHIN)?;
        stream.set_read_timeout(Some(ENDED_WITHIN))?;
        let address = self.address;
        write!(
            stream,
            "DELETE /session/{session} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n"
        )?;
        stream.read_to_end(&mut Vec::new())?;
        Ok(())
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // The whole group, with a browser that would not end. One that has ended is no failure.
        let group = format!("kill -KILL -- -{}", self.child.id());
        let _ = Command::new("sh").args(["-c", &group]).stderr(Stdio::null()).status();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where a program is: as the environment says, or on the search path.
fn program(variable: &str, names: &[&str]) -> Result<PathBuf> {
    if let Some(path) = std::env::var_os(variable) {
        return Ok(path.into());
    }
    let path: OsString = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .flat_map(|folder| names.iter().map(move |name| folder.join(name)))
        .find(|file| file.is_file());
    found.with_context(|| {
        format!(
            "there is no {}: install chromium and chromium-driver (Debian), or what your system \
             calls them, or say in {variable} where it is",
            names[0]
        )
    })
}

fn text(value: &Value) -> Result<String> {
    value.as_str().map(str::to_owned).with_context(|| format!("no text but {value}"))
}
