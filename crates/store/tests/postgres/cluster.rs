//! A server of the tests' own: a new cluster in a temporary folder, reached by a socket in it.
//!
//! It runs below a shell that waits for the end of its input. That is a pipe from the tests, so the
//! server stops and the folder goes when they end, however they end.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The user that the database knows, whoever runs the server.
pub(crate) const USER: &str = "postrider";

/// Room for what runs at the same time, each with connections of its own.
const MAX_CONNECTIONS: usize = 200;

/// Starts the server, says so, and stops it when its input ends. The folder is `$1`, the programs
/// are in `$2`. A signal from the terminal, which is meant for the tests, must not come first.
const SUPERVISE: &str = r#"
trap '' INT HUP
"$2/pg_ctl" --pgdata="$1/data" --log="$1/log" --silent --wait start >&2 && echo started
while read -r line; do :; done
"$2/pg_ctl" --pgdata="$1/data" --mode=immediate --silent --wait stop >&2
rm -rf "$1"
"#;

/// Whether what was committed survives a crash of the machine; most tests need not wait for that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Disk {
    Trusted,
    Synced,
}

pub(crate) struct Cluster {
    folder: PathBuf,
    programs: PathBuf,
    owner: Option<Owner>,
    databases: AtomicUsize,
    port: String,
    /// Its input is the pipe; dropping it stops the server.
    _supervisor: Child,
}

/// Whom the server runs as: it refuses to run as root.
#[derive(Clone, Copy)]
struct Owner {
    uid: u32,
    gid: u32,
}

impl Cluster {
    /// The one that most tests share.
    pub(crate) fn shared() -> &'static Self {
        static SHARED: LazyLock<Cluster> = LazyLock::new(|| Cluster::start(Disk::Trusted, ""));
        &SHARED
    }

    /// A new one with further `settings`, one a line.
    pub(crate) fn start(disk: Disk, settings: &str) -> Self {
        Self::start_with(disk, settings, &[], "local all all trust\n")
    }

    /// The same, with further files beside the data that only the server can read, and other rules
    /// about who may connect.
    pub(crate) fn start_with(
        disk: Disk,
        settings: &str,
        files: &[(&str, String)],
        rules: &str,
    ) -> Self {
        let programs = programs();
        let folder = tempfile::Builder::new().prefix("postrider-pg-").tempdir().expect("a folder");
        // The shell removes it, as the user that it belongs to.
        let folder = folder.keep();
        let owner = owner(&folder);
        if let Some(Owner { uid, gid }) = owner {
            chown(&folder, Some(uid), Some(gid)).expect("given away");
        }
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).expect("kept from others");
        let mut initdb = as_owner(programs.join("initdb"), owner);
        initdb.args(["--no-sync", "--no-instructions", "--auth=trust", "--encoding=UTF8"]);
        initdb.args(["--locale=C", "--username", USER, "--pgdata"]).arg(folder.join("data"));
        run(initdb);
        configure(&folder, disk, settings);
        fs::write(folder.join("data/pg_hba.conf"), rules).expect("written");
        for (name, text) in files {
            let path = folder.join("data").join(name);
            fs::write(&path, text).expect("written");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600))
                .expect("kept from others");
            if let Some(Owner { uid, gid }) = owner {
                chown(&path, Some(uid), Some(gid)).expect("given away");
            }
        }
        let mut supervisor = as_owner("sh", owner);
        supervisor.args(["-c", SUPERVISE, "sh"]).arg(&folder).arg(&programs);
        supervisor.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        supervisor.stderr(Stdio::null());
        let mut supervisor = supervisor.spawn().expect("a shell");
        wait_for_start(&mut supervisor, &folder);
        let port = settings.lines().find_map(|line| line.strip_prefix("port = "));
        let port = port.unwrap_or("5432").to_owned();
        let databases = AtomicUsize::new(0);
        Self { folder, programs, owner, databases, port, _supervisor: supervisor }
    }

    /// Makes an empty database; returns its URL.
    pub(crate) fn database(&self) -> String {
        self.copy_of("template1")
    }

    /// Makes a database like another that nobody is connected to; returns its URL.
    pub(crate) fn copy_of(&self, template: &str) -> String {
        let name = format!("test_{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.sql("postgres", &format!("CREATE DATABASE {name} TEMPLATE {template}"));
        self.url(&name)
    }

    pub(crate) fn url(&self, database: &str) -> String {
        format!("postgres:///{database}?host={}&user={USER}", self.folder.display())
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.join(format!(".s.PGSQL.{}", self.port))
    }

    /// Runs SQL as somebody else would; returns what it printed.
    pub(crate) fn sql(&self, database: &str, sql: &str) -> String {
        let mut psql = Command::new(self.programs.join("psql"));
        psql.args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--username", USER]);
        psql.args(["--set", "ON_ERROR_STOP=1", "--dbname", database, "--command", sql]);
        psql.args(["--port", &self.port, "--host"]).arg(&self.folder);
        run(psql)
    }

    /// Ends every connection to `database` but this one.
    pub(crate) fn kill_connections(&self, database: &str) {
        let of = format!("datname = '{database}' AND pid <> pg_backend_pid()");
        self.sql(
            "postgres",
            &format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {of}"),
        );
    }

    /// Stops the server as a crash would, and starts it again.
    pub(crate) fn crash(&self) {
        self.control(&["--mode=immediate", "restart"]);
    }

    pub(crate) fn stop(&self) {
        self.control(&["--mode=fast", "stop"]);
    }

    pub(crate) fn start_again(&self) {
        self.control(&["start"]);
    }

    fn control(&self, arguments: &[&str]) {
        let mut control = as_owner(self.programs.join("pg_ctl"), self.owner);
        control.arg("--pgdata").arg(self.folder.join("data"));
        control.arg("--log").arg(self.folder.join("log"));
        control.args(["--silent", "--wait"]).args(arguments);
        run(control);
    }
}

/// The folder of the server's programs: Debian keeps them out of the way, by version.
fn programs() -> PathBuf {
    let mut folders: Vec<PathBuf> = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path().join("bin"))
        .collect();
    let version =
        |folder: &PathBuf| -> Option<u32> { folder.parent()?.file_name()?.to_str()?.parse().ok() };
    folders.sort_unstable_by_key(version);
    folders.reverse();
    let path = std::env::var_os("PATH").unwrap_or_default();
    folders.extend(std::env::split_paths(&path));
    folders
        .into_iter()
        .find(|folder| folder.join("initdb").is_file() && folder.join("postgres").is_file())
        .expect(
            "the tests need the programs of a PostgreSQL server: install postgresql (Debian), or \
             what your system calls it",
        )
}

/// Somebody without rights, if this is root.
fn owner(folder: &Path) -> Option<Owner> {
    if fs::metadata(folder).expect("just made").uid() != 0 {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").expect("a list of users");
    let find = |name: &str| {
        let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut ids = line.split(':').skip(2).map(str::parse);
        Some(Owner { uid: ids.next()?.ok()?, gid: ids.next()?.ok()? })
    };
    Some(find("postgres").or_else(|| find("nobody")).expect("a user without rights"))
}

fn as_owner(program: impl AsRef<OsStr>, owner: Option<Owner>) -> Command {
    let mut command = Command::new(program);
    if let Some(Owner { uid, gid }) = owner {
        command.uid(uid).gid(gid);
    }
    // The folder that the tests run in may be closed to that user.
    command.current_dir("/").stdin(Stdio::null());
    command
}

fn configure(folder: &Path, disk: Disk, settings: &str) {
    let synced = match disk {
        Disk::Trusted => "fsync = off\nfull_page_writes = off\n",
        Disk::Synced => "",
    };
    let own = format!(
        "listen_addresses = ''\nunix_socket_directories = '{}'\n\
         max_connections = {MAX_CONNECTIONS}\nshared_buffers = 64MB\n{synced}{settings}\n",
        folder.display()
    );
    let path = folder.join("data/postgresql.conf");
    let mut text = fs::read_to_string(&path).expect("made by initdb");
    text.push_str(&own);
    fs::write(&path, text).expect("written");
}

fn wait_for_start(supervisor: &mut Child, folder: &Path) {
    use std::io::{BufRead as _, BufReader};

    let output = supervisor.stdout.take().expect("a pipe");
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line).expect("readable");
    let log = || fs::read_to_string(folder.join("log")).unwrap_or_default();
    assert_eq!(line.trim(), "started", "the server did not start:\n{}", log());
}

fn run(mut command: Command) -> String {
    let output = command.output().expect("it can be started");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?} failed: {said}");
    String::from_utf8(output.stdout).expect("text").trim().to_owned()
}
