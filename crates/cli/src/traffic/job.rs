//! A long piece of work of a gateway, and how it is followed to its end.

use std::io::{self, Write};
use std::time::Duration;

use postrider_client::{Gateway, Method};
use postrider_core::{JobId, Timestamp};
use serde_json::Value;

use super::get;
use crate::Failure;
use crate::output::{cell, moment, pairs};
use crate::progress::{Bar, Unit, grouped};
use crate::resource::refused;
use crate::signals::Signals;

/// Between two looks at a job.
const LOOK_AGAIN: Duration = Duration::from_millis(300);
/// Between two looks while the gateway does not answer: it may be restarted, and the job with it.
const WAIT: Duration = Duration::from_secs(2);

pub(crate) async fn show(gateway: &Gateway, id: JobId) -> Result<Value, Failure> {
    get(gateway, &format!("/v1/jobs/{id}")).await
}

pub(crate) fn is_finished(job: &Value) -> bool {
    job["state"] == "finished"
}

/// Shows how far a job has come until it has finished. None is that the user has stopped watching;
/// the job goes on without.
pub(crate) async fn follow(gateway: &Gateway, id: JobId) -> Result<Option<Value>, Failure> {
    let mut signals = Signals::catch()?;
    let mut bar = Bar::start("replaying", Unit::Things("deliveries"));
    let followed = async {
        loop {
            let path = format!("/v1/jobs/{id}");
            let wait = match gateway.request(Method::GET, &path, None).await {
                Ok(job) if is_finished(&job) => return Ok(job),
                Ok(job) => {
                    let count = |field: &str| job[field].as_u64().unwrap_or(0);
                    bar.tell(count("replayed") + count("skipped"), job["matched"].as_u64());
                    LOOK_AGAIN
                }
                Err(error) if error.is_temporary() => error.retry_after().unwrap_or(WAIT).max(WAIT),
                Err(error) => return Err(refused(error)),
            };
            tokio::time::sleep(wait).await;
        }
    };
    let ended = tokio::select! {
        job = followed => job.map(Some),
        () = signals.next() => Ok(None),
    };
    bar.clear();
    ended
}

pub(crate) fn write(job: &Value, now: Timestamp, out: &mut dyn Write) -> io::Result<()> {
    let count = |field: &str| grouped(job[field].as_u64().unwrap_or(0));
    pairs(
        out,
        [
            ("id", cell(&job["id"])),
            ("kind", cell(&job["kind"])),
            ("state", cell(&job["state"])),
            ("matched", count("matched")),
            ("replayed", count("replayed")),
            ("skipped", count("skipped")),
            ("rate a second", cell(&job["rate_per_second"])),
            ("created", moment(&job["created_at"], now)),
            ("updated", moment(&job["updated_at"], now)),
        ],
    )
}
