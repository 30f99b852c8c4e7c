//! A daemon that judges speedruns. `cargo run -p postrider-engine --example runs` shows it in a few
//! seconds. With a path (`… --example runs -- runs.db`) it keeps its state there and goes on until
//! Ctrl-C; started again, it tries what had failed when that is due, and not before.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::policy::{ExponentialSpec, Preset, ScheduleSpec, Spec};
use postrider_engine::Accepted;
use postrider_engine::embedded::{Embedded, Failure, Handled, HandlerOptions, Message};
use postrider_engine::embedded::{NewMessage, Queue};
use postrider_store::sealing::{Keyring, SealingKey};
use postrider_store::sqlite::{self, Sqlite};

/// What the leaderboard answers, in no order.
const DISCOVERED: &str = r#"[
    {"id": "clean", "category": "any%", "submitted": "2026-01-05"},
    {"id": "hopeless", "category": "100%", "submitted": "2026-01-04"},
    {"id": "flaky", "category": "any%", "submitted": "2026-01-01"},
    {"id": "blindfolded", "category": "memes", "submitted": "2026-01-02"},
    {"id": "damaged", "category": "any%", "submitted": "2026-01-03"},
    {"id": "busy", "category": "100%", "submitted": "2026-01-02"}]"#;

/// Only these are judged; runs of other categories are kept, and can be replayed.
const ALLOWED: &str = r#"payload.category in ["any%", "100%"]"#;

#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct Run {
    id: String,
    category: String,
    submitted: String,
}

async fn judge(message: Message) -> Result<Handled, Failure> {
    let run: Run = message.json()?;
    let kind = if message.is_retry() { "retry" } else { "first attempt" };
    tracing::info!(run = run.id, submitted = run.submitted, "{kind}");
    match (run.id.as_str(), message.attempt()) {
        ("damaged", _) => Err(Failure::fatal("the replay is cut short")),
        ("hopeless", _) | ("flaky", 1 | 2) => Err(Failure::retryable("the emulator crashed")),
        ("busy", 1) => Err(Failure::rate_limited("slow down", Some(Duration::from_secs(1)))),
        ("flaky", _) => Ok(Handled::done().result("NeedsReview")),
        _ => Ok(Handled::done().result("Passed")),
    }
}

/// Oldest submission first: that is the order in which runs compete, retries and new ones alike.
/// A run that is known already stays as it is.
async fn discover(queue: &Queue) -> Result<Vec<(Run, Accepted)>, Box<dyn Error>> {
    let mut runs: Vec<Run> = serde_json::from_str(DISCOVERED)?;
    runs.sort_by(|one, other| one.submitted.cmp(&other.submitted));
    let mut messages = Vec::new();
    for run in &runs {
        messages.push(NewMessage::json("run.discovered", run)?.idempotency_key(&run.id));
    }
    let accepted = queue.enqueue_all(messages).await?;
    Ok(runs.into_iter().zip(accepted).collect())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().init();
    let scratch = tempfile::tempdir()?;
    let given = std::env::args_os().nth(1).map(PathBuf::from);
    let path = given.clone().unwrap_or_else(|| scratch.path().join("runs.db"));
    // Seals the secrets of endpoints. Handlers have none, so any key will do that stays the same.
    let keyring = Keyring::new(vec![SealingKey::from_bytes([7; 32])])?;
    let store = Sqlite::open(&path, sqlite::Options::default(), keyring)?;
    // Eight attempts, a minute after the first failure, then doubling up to an hour. That is the
    // preset; only the length of a minute differs where this is just shown.
    let initial = Duration::from_millis(if given.is_some() { 60_000 } else { 20 });
    let backoff =
        ExponentialSpec { initial, multiplier: 2.0, max_delay: initial * 60, jitter: 0.0 };
    let schedule = Some(ScheduleSpec { exponential: Some(backoff), ..ScheduleSpec::default() });
    let policy = Spec { schedule, ..Preset::Runs.into() };
    let options = HandlerOptions::default().policy(policy).concurrency(1).filter(ALLOWED);
    let starting = Embedded::open(Arc::new(store)).handler("judge", ["run.*"], options, judge);
    let queue = starting.start().await?;
    let known = discover(&queue).await?;
    while given.is_some() {
        let nap = tokio::time::sleep(Duration::from_mins(1));
        tokio::select! {
            _ = tokio::signal::ctrl_c() => break,
            () = nap => drop(discover(&queue).await?),
        }
    }
    for (run, accepted) in known.iter().filter(|_| given.is_none()) {
        let Accepted::New { id, .. } = accepted else { continue };
        for end in queue.finished(*id).await? {
            let said = end.result.or(end.last_error).unwrap_or_default();
            println!("{}: {} (attempts: {}): {said}", run.id, end.state.as_str(), end.tries);
        }
    }
    queue.drain(Duration::from_secs(30)).await;
    Ok(())
}
