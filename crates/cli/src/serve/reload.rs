//! What a gateway makes of its configuration file: at the start, on SIGHUP, and with `--watch` whenever
//! the file, or one that it refers to, has changed.

use std::convert::Infallible;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use postrider_engine::Options;
use postrider_server::InProcess;
use serde_json::Value;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use crate::Failure;
use crate::config::declared::Declared;
use crate::config::flags::FileSetting;
use crate::config::{self, Loaded, Refused};
use crate::declared::{self, NewToken, Plan, Rehearsal, Trouble};
use crate::output::Style;
use crate::settings::Inbox;

/// How often files are looked at.
const LOOK: Duration = Duration::from_secs(1);
/// After something could not be applied that is none of the file's fault, the wait before the next try.
const AGAIN: Duration = Duration::from_secs(15);
/// The most files that are looked at beside the configuration file.
const MAX_FILES: usize = 1_000;

/// SIGHUP, which from here on ends nothing by itself.
pub(super) fn hangups() -> std::io::Result<Signal> {
    signal(SignalKind::hangup())
}

/// Rehearses what a file declares, before anything of the gateway is touched.
pub(super) async fn rehearse(
    loaded: Option<&Loaded>,
    options: &Options,
) -> Result<Rehearsal, Failure> {
    let Some(Loaded { path, declared, .. }) = loaded else { return Ok(Rehearsal::default()) };
    let rehearsal = declared::rehearsed(declared, options.clone()).await?;
    rehearsal.map_err(|faults| Refused { path: path.clone(), faults }.into())
}

/// A gateway, and the file that says how it should be.
pub(super) struct Reloader {
    api: InProcess,
    /// What the gateway itself judges by.
    options: Options,
    followed: Option<Followed>,
    watches: bool,
    /// When to try again what could not be done.
    again_at: Option<Instant>,
}

/// A file that was read.
struct Followed {
    path: PathBuf,
    settings: Vec<FileSetting>,
    inbox: Inbox,
    /// Those it refers to.
    files: Vec<PathBuf>,
    /// How they all were before they were read.
    seen: Snapshot,
    /// How they were at the last look, if that was otherwise.
    changing: Option<Snapshot>,
}

impl Reloader {
    /// Applies the file for the first time, before anybody can reach the gateway. Fails if the file is
    /// at fault; whatever else is in the way is tried again later.
    pub(super) async fn start(
        api: InProcess,
        options: Options,
        loaded: Option<&Loaded>,
        rehearsal: &Rehearsal,
        watches: bool,
    ) -> Result<Self, Failure> {
        let followed = loaded.map(Followed::of);
        let mut reloader = Self { api, options, followed, watches, again_at: None };
        if let Some(Loaded { path, declared, .. }) = loaded {
            let announce = |plan: &Plan| print_plan(path, plan);
            reloader.apply(path, declared, rehearsal, announce).await?;
        }
        Ok(reloader)
    }

    /// Follows the file for as long as the gateway runs.
    pub(super) async fn run(mut self, mut hangups: Signal) -> Infallible {
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let again_at = self.again_at.unwrap_or_else(Instant::now);
            tokio::select! {
                _ = hangups.recv() => {
                    if self.followed.is_none() {
                        tracing::info!("SIGHUP: there is no configuration file to read again");
                    }
                    self.read_again().await;
                }
                _ = looks.tick(), if self.watches => {
                    if self.followed.as_mut().is_some_and(Followed::has_changed) {
                        self.read_again().await;
                    }
                }
                () = sleep_until(again_at), if self.again_at.is_some() => self.read_again().await,
            }
        }
    }

    /// Reads the file, and makes the gateway be as it declares. One that cannot be used changes nothing.
    async fn read_again(&mut self) {
        self.again_at = None;
        let Some(followed) = &mut self.followed else { return };
        let path = followed.path.clone();
        followed.look();
        let loaded = match config::reload(&path) {
            Ok(loaded) => loaded,
            Err(refused) => return complain(&refused),
        };
        followed.renew(&loaded);
        let declared = &loaded.declared;
        let rehearsal = match declared::rehearsed(declared, self.options.clone()).await {
            Ok(Ok(rehearsal)) => rehearsal,
            Ok(Err(faults)) => return complain(&Refused { path, faults }),
            Err(error) => return self.postpone(&format!("{error:#}")),
        };
        let announce = |plan: &Plan| log_plan(&path, plan);
        if let Err(refused) = self.apply(&path, declared, &rehearsal, announce).await {
            complain(&refused);
        }
    }

    async fn apply(
        &mut self,
        path: &Path,
        declared: &Declared,
        rehearsal: &Rehearsal,
        announce: impl FnOnce(&Plan),
    ) -> Result<(), Refused> {
        let mut changes = false;
        let planned = |plan: &Plan| {
            changes = !plan.is_empty();
            announce(plan);
        };
        let tokens = match declared::apply(&self.api, declared, rehearsal, planned).await {
            Ok(tokens) => {
                let file = path.display();
                match (changes, declared.items.is_empty()) {
                    (true, _) => tracing::info!(%file, "the gateway is as its file declares"),
                    (false, false) => tracing::info!(%file, "nothing to change"),
                    (false, true) => {}
                }
                tokens
            }
            Err(Trouble::Faults(faults)) => return Err(Refused { path: path.to_owned(), faults }),
            Err(Trouble::Untouched(error)) => {
                self.postpone(&format!("nothing was changed: {error:#}"));
                Vec::new()
            }
            Err(Trouble::Halfway(halfway)) => {
                self.postpone(&halfway.to_string());
                halfway.tokens
            }
        };
        if show_tokens(&tokens).is_err() {
            tracing::warn!(
                "the token of a hub could not be shown: `postrider hubs` gives it another"
            );
        }
        Ok(())
    }

    fn postpone(&mut self, why: &str) {
        tracing::error!(again_in = ?AGAIN, "{why}");
        self.again_at = Some(Instant::now() + AGAIN);
    }
}

/// One line a fault.
fn complain(refused: &Refused) {
    for fault in &refused.faults {
        tracing::error!("{}", config::told(&refused.path, fault));
    }
    tracing::error!("nothing was changed: the file cannot be used as it is");
}

fn print_plan(path: &Path, plan: &Plan) {
    let mut out = std::io::stdout().lock();
    let lines: Vec<String> = plan.painted(Style::of_stdout()).collect();
    if lines.is_empty() {
        return;
    }
    // Whoever does not listen need not be told.
    let _told = writeln!(out, "{} makes these changes:", path.display());
    for line in lines {
        let _told = writeln!(out, "  {line}");
    }
}

fn log_plan(path: &Path, plan: &Plan) {
    let file = path.display();
    for line in plan.lines() {
        tracing::info!(%file, "{line}");
    }
}

/// Shown once, and not in the log, which others keep.
fn show_tokens(tokens: &[NewToken]) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    for NewToken { hub, token } in tokens {
        writeln!(out, "  token         {}", token.as_str())?;
        writeln!(out, "                (of {hub}; shown this once; keep it)")?;
    }
    out.flush()
}

impl Followed {
    fn of(loaded: &Loaded) -> Self {
        let files = referred(loaded);
        let seen = Snapshot::of(&loaded.path, &files);
        Self {
            path: loaded.path.clone(),
            settings: loaded.settings.clone(),
            inbox: loaded.inbox.clone(),
            files,
            seen,
            changing: None,
        }
    }

    /// Takes note of how the files are, before they are read: what changes while they are is seen.
    fn look(&mut self) {
        self.seen = Snapshot::of(&self.path, &self.files);
        self.changing = None;
    }

    /// Whether the files have changed, and stayed so for a look.
    fn has_changed(&mut self) -> bool {
        let now = Snapshot::of(&self.path, &self.files);
        if now == self.seen {
            self.changing = None;
            return false;
        }
        let stays = self.changing.as_ref() == Some(&now);
        self.changing = Some(now);
        stays
    }

    /// Goes by what was read. Settings hold from the start of a process to its end.
    fn renew(&mut self, loaded: &Loaded) {
        for key in changed_settings(&self.settings, &loaded.settings) {
            tracing::warn!(
                file = %self.path.display(),
                "{key} has changed, which needs a restart to take effect"
            );
        }
        if self.inbox != loaded.inbox {
            tracing::warn!(
                file = %self.path.display(),
                "[inbox] has changed, which needs a restart to take effect"
            );
        }
        let files = referred(loaded);
        if files != self.files {
            self.files = files;
            self.seen = Snapshot::of(&self.path, &self.files);
        }
    }
}

/// The names of settings that are not as they were at the start.
fn changed_settings<'a>(before: &'a [FileSetting], after: &'a [FileSetting]) -> Vec<&'a str> {
    let value = |settings: &'a [FileSetting], key: &str| {
        settings.iter().find(|setting| setting.key == key).map(|setting| &setting.values)
    };
    let mut keys: Vec<&str> =
        before.iter().chain(after).map(|setting| setting.key.as_str()).collect();
    keys.sort_unstable();
    keys.dedup();
    keys.retain(|key| value(before, key) != value(after, key));
    keys
}

/// The files that a file refers to for secrets.
fn referred(loaded: &Loaded) -> Vec<PathBuf> {
    fn walk<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
        match value {
            Value::String(text) => found.extend(text.strip_prefix("file:")),
            Value::Array(values) => values.iter().for_each(|value| walk(value, found)),
            Value::Object(fields) => fields.values().for_each(|value| walk(value, found)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    let mut found = Vec::new();
    for item in &loaded.declared.items {
        item.shown.values().for_each(|value| walk(value, &mut found));
    }
    found.sort_unstable();
    found.dedup();
    found.truncate(MAX_FILES);
    let folder = loaded.path.parent().unwrap_or(Path::new(""));
    found.into_iter().map(|path| folder.join(path)).collect()
}

/// How files are, as far as that can be seen without reading them.
#[derive(Debug, PartialEq, Eq)]
struct Snapshot(Vec<Option<Marks>>);

/// Another file in the same place has another number.
#[derive(Debug, PartialEq, Eq)]
struct Marks {
    device: u64,
    number: u64,
    bytes: u64,
    seconds: i64,
    nanoseconds: i64,
}

impl Snapshot {
    fn of(path: &Path, others: &[PathBuf]) -> Self {
        let paths = std::iter::once(path).chain(others.iter().map(PathBuf::as_path));
        Self(paths.map(Marks::of).collect())
    }
}

impl Marks {
    fn of(path: &Path) -> Option<Self> {
        let about = std::fs::metadata(path).ok()?;
        Some(Self {
            device: about.dev(),
            number: about.ino(),
            bytes: about.len(),
            seconds: about.mtime(),
            nanoseconds: about.mtime_nsec(),
        })
    }
}
