//! A server of the bench's own: a new cluster in a folder on the disk the figures are for.
//!
//! It runs below a shell that waits for the end of its input. That is a pipe from the bench, so the
//! server stops and its folders go when the bench ends, however it ends.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use xtask::postgres::programs;

use super::super::gateway::tail;
use super::super::process::family_processor;
use super::session::Session;

/// What is set beyond the way in; all else is as `initdb` leaves it, above all what keeps a commit.
pub(crate) const SETTINGS: &[&str] = &["shared_buffers = 256MB", "max_wal_size = 4GB"];

/// Counts statements; comes with the server, but perhaps in a package of its own.
const STATEMENTS: &str = "pg_stat_statements";

/// The user that the database knows, whoever runs the server.
const USER: &str = "postrider";

/// The database that is there from the start.
const FIRST: &str = "postgres";

/// On a disk, for where the server's user has no way to the bench's own folder.
const ELSEWHERE: &str = "/var/tmp";

/// Starts the server, says so, and stops it when its input ends. The folder is `$1`, the programs are
/// in `$2`, the socket is in `$3`. A signal from the terminal, which is meant for the bench, must not
/// come first.
const SUPERVISE: &str = r#"
trap '' INT HUP
"$2/pg_ctl" --pgdata="$1/data" --log="$1/log" --silent --wait start >&2 && echo started
while read -r line; do :; done
"$2/pg_ctl" --pgdata="$1/data" --mode=immediate --silent --wait stop >&2
rm -rf "$1" "$3"
"#;

/// Stopped and gone when dropped.
#[derive(Debug)]
pub(crate) struct Cluster {
    sockets: PathBuf,
    /// The process that all others of the server are children of.
    server: Option<u32>,
    supervisor: Child,
    counts_statements: bool,
}

/// What a cluster is for beside the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Watch {
    Nothing,
    /// How many statements are made, where the server can count them.
    Statements,
}

/// Whom the server runs as: it refuses to run as root.
#[derive(Debug, Clone, Copy)]
struct Owner {
    uid: u32,
    gid: u32,
}

impl Cluster {
    /// Makes it in a new folder inside `folder`, or, where that is closed to the server's user, in a
    /// temporary one.
    pub(crate) async fn start(folder: &Path, watch: Watch) -> Result<Self> {
        let programs = programs().context("a PostgreSQL server is not installed")?;
        let owner = owner(folder)?;
        let home = home(folder, owner)?;
        // The path of a socket has to be short.
        let sockets = private_folder(&std::env::temp_dir(), owner)?;
        let mut initdb = as_owner(programs.join("initdb"), owner);
        initdb.args(["--no-sync", "--no-instructions", "--auth=trust", "--encoding=UTF8"]);
        initdb.args(["--locale=C", "--username", USER, "--pgdata"]).arg(home.join("data"));
        run(initdb)?;
        let counts_statements = watch == Watch::Statements && has_statements(&programs);
        configure(&home.join("data/postgresql.conf"), &sockets, counts_statements)?;

        let mut supervisor = as_owner("sh", owner);
        supervisor.args(["-c", SUPERVISE, "sh"]).arg(&home).arg(&programs).arg(&sockets);
        supervisor.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        supervisor.stderr(Stdio::null());
        let supervisor = supervisor.spawn().context("a shell")?;
        let mut cluster = Self { sockets, server: None, supervisor, counts_statements };
        cluster.until_started(&home.join("log"))?;
        cluster.server = server(&home.join("data/postmaster.pid"));
        cluster.require_durability().await?;
        Ok(cluster)
    }

    /// Makes an empty database; returns its URL.
    pub(crate) async fn database(&self, name: &str) -> Result<String> {
        self.first().await?.run(&format!("CREATE DATABASE {name}")).await?;
        Ok(self.url(name))
    }

    /// A connection that is to none of the databases under measurement.
    pub(crate) async fn first(&self) -> Result<Session> {
        Session::open(&self.url(FIRST)).await
    }

    /// Whether [`STATEMENTS`] is there to be asked, after `CREATE EXTENSION`.
    pub(crate) fn counts_statements(&self) -> bool {
        self.counts_statements
    }

    /// The processor time that all processes of the server have used; none where there is no `/proc`.
    pub(crate) fn processor(&self) -> Option<Duration> {
        family_processor(self.server?)
    }

    fn url(&self, database: &str) -> String {
        format!("postgres:///{database}?host={}&user={USER}", self.sockets.display())
    }

    fn until_started(&mut self, log: &Path) -> Result<()> {
        let said = self.supervisor.stdout.take().context("the supervisor's output")?;
        let mut line = String::new();
        BufReader::new(said).read_line(&mut line)?;
        ensure!(line.trim() == "started", "the server did not start; {}", tail("the server", log));
        Ok(())
    }

    async fn require_durability(&self) -> Result<()> {
        let session = self.first().await?;
        for setting in ["fsync", "synchronous_commit", "full_page_writes"] {
            let sql = "SELECT current_setting($1)";
            let value: String = session.client.query_one(sql, &[&setting]).await?.try_get(0)?;
            ensure!(value == "on", "{setting} is {value}: the figures would be worth nothing");
        }
        Ok(())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // Both fail only where the shell has ended; then there is nothing left to stop.
        drop(self.supervisor.stdin.take());
        let _ = self.supervisor.wait();
    }
}

/// Somebody without rights, if this is root.
fn owner(folder: &Path) -> Result<Option<Owner>> {
    if fs::metadata(folder)?.uid() != 0 {
        return Ok(None);
    }
    let users = fs::read_to_string("/etc/passwd").context("the list of users")?;
    let find = |name: &str| {
        let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut ids = line.split(':').skip(2).map(str::parse);
        Some(Owner { uid: ids.next()?.ok()?, gid: ids.next()?.ok()? })
    };
    let found = find("postgres").or_else(|| find("nobody"));
    Ok(Some(found.context("there is no user without rights to run the server as")?))
}

/// A new folder that the server's user can reach.
fn home(folder: &Path, owner: Option<Owner>) -> Result<PathBuf> {
    if owner.is_some() {
        // Others may pass through, but not look around.
        fs::set_permissions(folder, fs::Permissions::from_mode(0o711))?;
        let mut enter = as_owner("test", owner);
        if !enter.arg("-x").arg(folder).status()?.success() {
            eprintln!("the server's user cannot reach {}", folder.display());
            eprintln!("its data is in {ELSEWHERE} instead, which may be another disk");
            return private_folder(Path::new(ELSEWHERE), owner);
        }
    }
    private_folder(folder, owner)
}

/// A new folder of the server's user. The shell removes it.
fn private_folder(within: &Path, owner: Option<Owner>) -> Result<PathBuf> {
    let folder = tempfile::Builder::new().prefix("postrider-pg-").tempdir_in(within)?.keep();
    if let Some(Owner { uid, gid }) = owner {
        chown(&folder, Some(uid), Some(gid))?;
    }
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700))?;
    Ok(folder)
}

fn as_owner(program: impl AsRef<OsStr>, owner: Option<Owner>) -> Command {
    let mut command = Command::new(program);
    if let Some(Owner { uid, gid }) = owner {
        command.uid(uid).gid(gid);
    }
    // The folder that the bench runs in may be closed to that user.
    command.current_dir("/").stdin(Stdio::null());
    command
}

fn configure(file: &Path, sockets: &Path, counts_statements: bool) -> Result<()> {
    let mut text = fs::read_to_string(file)?;
    let socket = format!("unix_socket_directories = '{}'", sockets.display());
    let library = format!("shared_preload_libraries = '{STATEMENTS}'");
    let mut lines = vec!["listen_addresses = ''", &socket];
    lines.extend(SETTINGS);
    if counts_statements {
        lines.push(&library);
    }
    text.push_str(&lines.join("\n"));
    text.push('\n');
    Ok(fs::write(file, text)?)
}

/// Debian keeps libraries beside the programs; elsewhere, statements are not counted.
fn has_statements(programs: &Path) -> bool {
    programs.with_file_name("lib").join(format!("{STATEMENTS}.so")).is_file()
}

/// The first line is the id of the process.
fn server(file: &Path) -> Option<u32> {
    fs::read_to_string(file).ok()?.lines().next()?.trim().parse().ok()
}

fn run(mut command: Command) -> Result<()> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?} failed: {said}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_dropped_cluster_is_gone() {
        let folder = tempfile::tempdir().expect("a folder");
        let cluster = Cluster::start(folder.path(), Watch::Nothing).await.expect("a server");
        let url = cluster.database("one").await.expect("a database");
        let session = Session::open(&url).await.expect("a connection");
        session.run("CREATE TABLE a ()").await.expect("a table");
        assert!(cluster.processor().is_some_and(|used| used > Duration::ZERO));
        let sockets = cluster.sockets.clone();
        drop(cluster);
        assert!(!sockets.exists());
        assert!(Session::open(&url).await.is_err());
        assert!(session.run("SELECT").await.is_err());
        let left = fs::read_dir(folder.path()).expect("a folder").flatten();
        let left: Vec<_> = left.map(|entry| entry.path().join("data")).collect();
        assert!(left.iter().all(|data| !data.exists()), "{left:?}");
    }
}
