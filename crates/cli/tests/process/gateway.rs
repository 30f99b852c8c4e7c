//! The binary under test: how it is launched, and the process, which never outlives its test.

use std::ffi::{OsStr, OsString};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;

use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::client::{Answer, Connection};
use crate::output::Output;

pub(crate) const KEY: &str = "pr_0123456789abcdefghijklmnopqrstuvwxyz";

/// Ignores the signal of a file that grows beyond its limit, so that the write fails instead.
const SURVIVE_SIZE_LIMIT: &str = r#"trap "" XFSZ; exec "$0" "$@""#;

/// Puts what is the standard input where a service manager puts the first socket.
const PASS_A_SOCKET: &str =
    r#"LISTEN_PID=$$ LISTEN_FDS=1; export LISTEN_PID LISTEN_FDS; exec "$0" "$@" 3<&0 </dev/null"#;

/// A command line with its environment, of which nothing is inherited but the search path.
#[derive(Debug, Clone, Default)]
pub(crate) struct Launch {
    arguments: Vec<OsString>,
    variables: Vec<(&'static str, OsString)>,
    directory: Option<PathBuf>,
    survives_size_limit: bool,
    socket: Option<Arc<OwnedFd>>,
}

impl Launch {
    /// `postrider` with these arguments.
    pub(crate) fn with<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Self {
        Self::default().and(arguments)
    }

    /// `postrider serve` on a free port, with the key [`KEY`], allowed to send to this machine.
    pub(crate) fn serve(data: &Path) -> Self {
        Self::serving().with_data(data)
    }

    /// The same, without a directory.
    pub(crate) fn serving() -> Self {
        Self::with(["serve", "--listen", "127.0.0.1:0", "--allow-destination", "127.0.0.0/8"])
            .variable("POSTRIDER_ADMIN_KEY", KEY)
    }

    pub(crate) fn with_data(self, data: &Path) -> Self {
        self.and([OsStr::new("--data"), data.as_os_str()])
    }

    pub(crate) fn and<A: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.arguments.extend(arguments.into_iter().map(|argument| argument.as_ref().to_owned()));
        self
    }

    pub(crate) fn variable(mut self, name: &'static str, value: impl AsRef<OsStr>) -> Self {
        self.variables.retain(|(known, _)| *known != name);
        self.variables.push((name, value.as_ref().to_owned()));
        self
    }

    pub(crate) fn without(mut self, name: &'static str) -> Self {
        self.variables.retain(|(known, _)| *known != name);
        self
    }

    pub(crate) fn in_directory(mut self, directory: &Path) -> Self {
        self.directory = Some(directory.to_owned());
        self
    }

    pub(crate) fn surviving_size_limit(mut self) -> Self {
        self.survives_size_limit = true;
        self
    }

    /// As a service manager does that listens itself.
    pub(crate) fn passing(mut self, socket: OwnedFd) -> Self {
        self.socket = Some(Arc::new(socket));
        self
    }

    pub(crate) fn spawn(&self) -> Process {
        let binary = env!("CARGO_BIN_EXE_postrider");
        let script = match (self.survives_size_limit, &self.socket) {
            (true, _) => Some(SURVIVE_SIZE_LIMIT),
            (false, Some(_)) => Some(PASS_A_SOCKET),
            (false, None) => None,
        };
        let mut command = if let Some(script) = script {
            let mut shell = Command::new("sh");
            shell.args(["-c", script, binary]);
            shell
        } else {
            Command::new(binary)
        };
        command.args(&self.arguments).env_clear();
        if let Some(path) = std::env::var_os("PATH") {
            command.env("PATH", path);
        }
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        let input = match &self.socket {
            Some(socket) => Stdio::from(socket.try_clone().expect("another descriptor")),
            None => Stdio::null(),
        };
        command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary starts");
        let stdout = Output::of(child.stdout.take().expect("piped"));
        let stderr = Output::of(child.stderr.take().expect("piped"));
        Process { child, stdout, stderr }
    }

    /// Runs it to its end.
    pub(crate) async fn run(&self) -> Finished {
        self.spawn().finished().await
    }

    /// Starts it and waits until it says where it listens.
    pub(crate) async fn start(&self) -> Gateway {
        let process = self.spawn();
        let greeted = process.stdout.line(|line| line.starts_with("    -d ")).await;
        assert!(greeted.is_some(), "did not start: {}", process.stderr.text());
        let listening = process.stdout.line(|line| line.contains("listening on")).await;
        let listening = listening.expect("the greeting begins with the address");
        let address = listening.split("http://").nth(1).expect("an address");
        Gateway { address: address.parse().expect("an address"), process }
    }
}

/// A running process. It is killed when it is dropped.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    pub(crate) stdout: Output,
    pub(crate) stderr: Output,
}

impl Drop for Process {
    fn drop(&mut self) {
        // One that has ended cannot be killed, and need not be.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Process {
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// `kill -9`, and it is gone when this returns.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it is running");
        let status = self.child.wait().expect("it can be waited for");
        assert_eq!(status.code(), None, "killed, not ended: {}", self.stderr.text());
    }

    pub(crate) fn signal(&self, name: &str) {
        let command = format!("kill -{name} {}", self.child.id());
        let sent = Command::new("sh").args(["-c", &command]).status().expect("sh runs");
        assert!(sent.success(), "no {name} could be sent");
    }

    pub(crate) async fn finished(mut self) -> Finished {
        self.stdout.ended().await;
        self.stderr.ended().await;
        let status = self.child.wait().expect("it can be waited for");
        Finished { status, stdout: self.stdout.text(), stderr: self.stderr.text() }
    }
}

/// A process that has ended by itself.
#[derive(Debug)]
pub(crate) struct Finished {
    status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Finished {
    #[track_caller]
    pub(crate) fn expect_code(self, code: i32) -> Self {
        assert_eq!(self.status.code(), Some(code), "{}\n{}", self.stdout, self.stderr);
        self
    }
}

/// A gateway that listens.
#[derive(Debug)]
pub(crate) struct Gateway {
    pub(crate) address: SocketAddr,
    pub(crate) process: Process,
}

impl Gateway {
    pub(crate) async fn connect(&self) -> Connection {
        Connection::open(self.address, KEY).await.expect("it listens")
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        let answer = self.call(Method::GET, path, String::new()).await;
        assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.body);
        answer.body
    }

    pub(crate) async fn call(&self, method: Method, path: &str, body: String) -> Answer {
        self.connect().await.call(method, path, body).await.expect("an answer")
    }

    /// Makes an endpoint and returns its id.
    pub(crate) async fn create_endpoint(&self, spec: Value) -> String {
        let answer = self.call(Method::POST, "/v1/endpoints", spec.to_string()).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.body);
        text(&answer.body, "id")
    }

    /// Sends an event and returns its id.
    pub(crate) async fn send(&self, number: u64) -> String {
        let answer = self.connect().await.send_event(number).await.expect("an answer");
        assert_eq!(answer.status, StatusCode::ACCEPTED, "{}", answer.body);
        text(&answer.body, "id")
    }

    /// The only delivery of an event.
    pub(crate) async fn delivery_of(&self, event: &str) -> Value {
        let list = self.get(&format!("/v1/events/{event}/deliveries")).await;
        let [delivery] = list["data"].as_array().expect("a list").as_slice() else {
            panic!("not one delivery: {list}");
        };
        delivery.clone()
    }

    /// Asks it to stop, and waits for that: what was in flight has been settled then.
    pub(crate) async fn stop(self) -> Finished {
        self.process.signal("TERM");
        self.process.finished().await.expect_code(0)
    }
}

#[track_caller]
pub(crate) fn text(value: &Value, field: &str) -> String {
    value[field].as_str().unwrap_or_else(|| panic!("no {field} in {value}")).to_owned()
}

/// The body of an event as a producer writes it and as a sink has to get it.
pub(crate) fn payload(number: u64) -> String {
    json!({ "number": number, "filling": "x".repeat(64) }).to_string()
}
