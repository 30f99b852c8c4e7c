//! `postrider events send --batch`: a file of events, a batch at a time.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use postrider_client::{Error, Gateway};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::Failure;
use crate::output::{OutputArgs, inert_to};
use crate::progress::{Bar, Unit, grouped};
use crate::resource::refused;
use crate::traffic::note;

/// The most events that the API takes at once.
const MAX_BATCH: usize = 1_000;
/// The most bytes of a batch, half of what a gateway takes unless it is told otherwise.
const MAX_BATCH_BYTES: usize = 8 << 20;
/// The longest line, the largest event that a gateway can be configured to take.
const MAX_LINE_BYTES: u64 = 100 << 20;
/// How often a batch is sent again that the gateway was too busy for.
const MAX_TRIES: u32 = 20;
const SHORTEST_WAIT: Duration = Duration::from_millis(500);
const MAX_ERROR_CHARS: usize = 400;

/// Lines that wait to be sent.
#[derive(Debug, Default)]
struct Batch {
    /// Each with its number in the file.
    lines: Vec<(u64, String)>,
    bytes: usize,
}

#[derive(Debug, Default)]
struct Tally {
    sent: u64,
    duplicates: u64,
    refused: u64,
}

pub(super) async fn send(
    gateway: &Gateway,
    file: &Path,
    output: OutputArgs,
) -> Result<ExitCode, Failure> {
    let mut reader: Box<dyn BufRead> = if file == Path::new("-") {
        Box::new(BufReader::new(io::stdin()))
    } else {
        let opened = File::open(file).with_context(|| format!("cannot read {}", file.display()));
        Box::new(BufReader::new(opened.map_err(Failure::usage)?))
    };
    let mut bar = Bar::start("sending", Unit::Things("events"));
    let (mut tally, mut batch) = (Tally::default(), Batch::default());
    let mut number = 0;
    loop {
        let line = read_line(&mut *reader)?;
        let ended = line.is_none();
        let line = line.filter(|line| !line.trim_ascii().is_empty());
        number += 1;
        if let Some(line) = line {
            match check(&line) {
                Ok(text) => {
                    if batch.bytes + text.len() > MAX_BATCH_BYTES {
                        batch.send(gateway, output, &mut tally, &mut bar).await?;
                    }
                    batch.bytes += text.len();
                    batch.lines.push((number, text.to_owned()));
                }
                Err(error) => tally.refuse(output, number, &json!(error), &mut bar)?,
            }
        }
        if ended || batch.lines.len() == MAX_BATCH {
            batch.send(gateway, output, &mut tally, &mut bar).await?;
        }
        if ended {
            break;
        }
    }
    bar.clear();
    let Tally { sent, duplicates, refused } = tally;
    let known = match duplicates {
        0 => String::new(),
        count => format!(" ({} of them known already)", grouped(count)),
    };
    note(&format!("{} events sent{known}, {} refused", grouped(sent), grouped(refused)));
    Ok(if refused == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The next line, without its end.
fn read_line(reader: &mut dyn BufRead) -> Result<Option<Vec<u8>>, Failure> {
    let mut line = Vec::new();
    let read = reader.take(MAX_LINE_BYTES).read_until(b'\n', &mut line);
    if read.context("cannot read the events")? == 0 {
        return Ok(None);
    }
    if line.len() as u64 == MAX_LINE_BYTES && !line.ends_with(b"\n") {
        return Err(Failure::usage(anyhow!("a line has more than {MAX_LINE_BYTES} bytes")));
    }
    Ok(Some(line))
}

/// A line that is no JSON would spoil the batch that it is in.
fn check(line: &[u8]) -> Result<&str, String> {
    let value: &RawValue =
        serde_json::from_slice(line).map_err(|error| format!("is no JSON: {error}"))?;
    if value.get().starts_with('{') {
        Ok(value.get())
    } else {
        Err("is no object with type and payload".to_owned())
    }
}

impl Batch {
    /// Sends what waits, and takes note of what became of each line.
    async fn send(
        &mut self,
        gateway: &Gateway,
        output: OutputArgs,
        tally: &mut Tally,
        bar: &mut Bar,
    ) -> Result<(), Failure> {
        let Self { lines, bytes: _ } = std::mem::take(self);
        let (Some((first, _)), Some((last, _))) = (lines.first(), lines.last()) else {
            return Ok(());
        };
        let events: Vec<&str> = lines.iter().map(|(_, text)| text.as_str()).collect();
        let body = format!("{{\"events\":[{}]}}", events.join(","));
        let answer = persist(gateway, body).await.map_err(|error| {
            bar.clear();
            note(&format!("lines before {first} were sent"));
            if matches!(error, Error::Unreachable { .. }) {
                note(&format!("lines {first} to {last} may have been sent, too"));
            }
            refused(error)
        })?;
        let results = answer["results"].as_array().filter(|results| results.len() == lines.len());
        let results =
            results.ok_or_else(|| anyhow!("{} has not answered for each", gateway.url()))?;
        for ((number, _), result) in lines.iter().zip(results) {
            if result.get("error").is_some() {
                let detail = &result["error"]["detail"];
                tally.refuse(output, *number, detail, bar)?;
                continue;
            }
            tally.sent += 1;
            tally.duplicates += u64::from(result["duplicate"] == true);
            if output.json() {
                print(*number, result.clone())?;
            }
        }
        bar.tell(tally.sent + tally.refused, None);
        Ok(())
    }
}

/// Sends a batch again for as long as the gateway says that it was too busy, which means that
/// nothing of it was stored.
async fn persist(gateway: &Gateway, body: String) -> Result<Value, Error> {
    let body = bytes::Bytes::from(body);
    let mut tries = 0;
    loop {
        tries += 1;
        match gateway.post("/v1/events/batch", "application/json", body.clone()).await {
            Err(error @ Error::Refused { status: 429 | 503, .. }) if tries < MAX_TRIES => {
                let wait = error.retry_after().unwrap_or_default().max(SHORTEST_WAIT);
                tokio::time::sleep(wait).await;
            }
            answered => return answered,
        }
    }
}

impl Tally {
    fn refuse(
        &mut self,
        output: OutputArgs,
        number: u64,
        error: &Value,
        bar: &mut Bar,
    ) -> io::Result<()> {
        self.refused += 1;
        if output.json() {
            return print(number, json!({ "error": error }));
        }
        bar.clear();
        let error = error.as_str().unwrap_or("was refused");
        note(&format!("line {number}: {}", inert_to(error, MAX_ERROR_CHARS)));
        Ok(())
    }
}

/// What became of a line, as a line.
fn print(number: u64, mut result: Value) -> io::Result<()> {
    result["line"] = number.into();
    writeln!(io::stdout().lock(), "{result}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_would_spoil_a_batch_are_told_apart() {
        for (line, passes) in [
            (&b"{\"type\":\"a\",\"payload\":1}\n"[..], true),
            (b" {} \r\n", true),
            (b"[]\n", false),
            (b"{}]}, {\n", false),
            (b"{\"a\":\n", false),
            (b"\xff\n", false),
        ] {
            assert_eq!(check(line).is_ok(), passes, "{}", String::from_utf8_lossy(line));
        }
    }
}
