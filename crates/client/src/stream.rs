//! What happens at a gateway, as it happens: the notices of `/v1/stream`, read through every
//! interruption.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde_json::Value;
use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::error::{Error, whole_story};
use crate::gateway::Gateway;
use crate::ports;

const PATH: &str = "/v1/stream?topic=gateway%3Awebhooks";
/// The longest line of the stream; a notice has less than a hundredth of it.
const MAX_LINE_BYTES: usize = 256 << 10;
/// The longest notice, where it stands on several lines.
const MAX_NOTICE_BYTES: usize = 1 << 20;
/// A gateway says something every 15 seconds. One that has been silent for so long is gone.
const SILENCE: Duration = Duration::from_secs(45);
const SHORTEST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// What a reader of the stream is told.
#[derive(Debug)]
pub enum Happening {
    /// The gateway has let it in; what happens from here on is told.
    Following,
    Notice(Value),
    /// It was too slow, and so many notices were too many for the gateway to keep. It comes back by
    /// itself, and is told what the gateway still remembers of them.
    Dropped {
        lost: u64,
    },
    /// The stream has ended or cannot be had. It is asked for again after `retry_in`.
    Trouble {
        error: Error,
        retry_in: Duration,
    },
}

/// A reader of the stream. It comes back by itself after an interruption, and asks for what it has
/// missed.
#[derive(Debug)]
pub struct Notices {
    gateway: Gateway,
    last_id: Option<u64>,
    line: Line,
    backoff: Backoff,
}

#[derive(Debug)]
enum Line {
    Closed { not_before: Option<Instant> },
    Open { body: Incoming, frames: Frames },
}

impl Notices {
    /// `after` is the id of the last notice that is known already; without it, what happens from
    /// now on is told. Nothing is sent yet.
    pub fn follow(gateway: Gateway, after: Option<u64>) -> Self {
        Self {
            gateway,
            last_id: after,
            line: Line::Closed { not_before: None },
            backoff: Backoff::new(SHORTEST_WAIT, LONGEST_WAIT),
        }
    }

    /// The id of the last notice that was told.
    pub fn last_id(&self) -> Option<u64> {
        self.last_id
    }

    /// Waits for what happens next. An error is one that coming back cannot help: a key that is
    /// not let in, for example. Dropping the future loses nothing that has been told.
    pub async fn next(&mut self) -> Result<Happening, Error> {
        loop {
            match &mut self.line {
                Line::Closed { not_before } => {
                    if let Some(at) = *not_before {
                        tokio::time::sleep_until(at).await;
                    }
                    match self.gateway.open(PATH, self.last_id).await {
                        Ok(body) => {
                            self.line = Line::Open { body, frames: Frames::default() };
                            return Ok(Happening::Following);
                        }
                        Err(error) if error.is_temporary() => return Ok(self.give_up(error)),
                        Err(error) => return Err(error),
                    }
                }
                Line::Open { body, frames } => {
                    if let Some(frame) = frames.next() {
                        match self.read(&frame) {
                            Ok(Some(happening)) => return Ok(happening),
                            Ok(None) => {}
                            Err(error) => return Ok(self.give_up(error)),
                        }
                        continue;
                    }
                    let taken = match tokio::time::timeout(SILENCE, body.frame()).await {
                        Err(_) => Err("it has fallen silent".to_owned()),
                        Ok(None) => Err("it has ended".to_owned()),
                        Ok(Some(Err(error))) => Err(whole_story(&error)),
                        Ok(Some(Ok(piece))) => frames.take(&piece.into_data().unwrap_or_default()),
                    };
                    if let Err(reason) = taken {
                        let error = self.gateway.unreachable(format!("the stream: {reason}"));
                        return Ok(self.give_up(error));
                    }
                }
            }
        }
    }

    fn read(&mut self, frame: &Frame) -> Result<Option<Happening>, Error> {
        let data: Value = self.gateway.read(frame.data.as_bytes())?;
        // Whoever has told something is not the one that failed a moment ago.
        self.backoff.reset();
        if frame.event.as_deref() == Some("dropped") {
            return Ok(Some(Happening::Dropped { lost: data["lost"].as_u64().unwrap_or(0) }));
        }
        if let Some(id) = frame.id {
            self.last_id = Some(id);
        }
        // Kinds of frames that are not known yet are for others.
        Ok(frame.event.is_none().then_some(Happening::Notice(data)))
    }

    fn give_up(&mut self, error: Error) -> Happening {
        let retry_in = error.retry_after().unwrap_or_default().max(self.backoff.next());
        self.line = Line::Closed { not_before: Some(ports::now() + retry_in) };
        Happening::Trouble { error, retry_in }
    }
}

/// One event of the stream.
#[derive(Debug, Default, PartialEq, Eq)]
struct Frame {
    id: Option<u64>,
    event: Option<String>,
    data: String,
}

/// Bytes of the stream, put together to frames as the standard of server-sent events says.
#[derive(Debug, Default)]
struct Frames {
    /// What has come and is not read yet.
    bytes: Vec<u8>,
    /// How much of it has been read.
    read: usize,
    frame: Frame,
}

impl Frames {
    /// Takes what has come; everything before it must have been read.
    fn take(&mut self, piece: &Bytes) -> Result<(), String> {
        self.bytes.drain(..std::mem::take(&mut self.read));
        let longest = piece.split(|byte| *byte == b'\n').map(<[u8]>::len).max().unwrap_or(0);
        if self.bytes.len() + longest > MAX_LINE_BYTES {
            return Err(format!("it has a line of more than {MAX_LINE_BYTES} bytes"));
        }
        if self.frame.data.len() > MAX_NOTICE_BYTES {
            return Err(format!("it has a notice of more than {MAX_NOTICE_BYTES} bytes"));
        }
        self.bytes.extend_from_slice(piece);
        Ok(())
    }

    /// The next whole frame.
    fn next(&mut self) -> Option<Frame> {
        while let Some(end) = self.bytes[self.read..].iter().position(|byte| *byte == b'\n') {
            let line = String::from_utf8_lossy(&self.bytes[self.read..self.read + end]);
            let line = line.strip_suffix('\r').unwrap_or(&line);
            let complete = self.frame.add(line);
            self.read += end + 1;
            if complete {
                let frame = std::mem::take(&mut self.frame);
                if !frame.data.is_empty() {
                    return Some(frame);
                }
            }
        }
        None
    }
}

impl Frame {
    /// Adds a line, and says whether it ended the frame. A comment begins with a colon.
    fn add(&mut self, line: &str) -> bool {
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "id" => self.id = value.parse().ok(),
            "event" => self.event = Some(value.to_owned()),
            "data" => {
                if !self.data.is_empty() {
                    self.data.push('\n');
                }
                self.data.push_str(value);
            }
            _ => {}
        }
        line.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(pieces: &[&str]) -> Vec<Frame> {
        let mut frames = Frames::default();
        let mut found = Vec::new();
        for piece in pieces {
            frames.take(&Bytes::copy_from_slice(piece.as_bytes())).expect("short enough");
            found.extend(std::iter::from_fn(|| frames.next()));
        }
        found
    }

    #[test]
    fn frames_are_put_together_wherever_the_bytes_were_cut() {
        let text = ": following\n\nid: 7\ndata: {\"a\":1}\n\r\nevent: dropped\r\ndata: {}\r\n\r\n\
                    data:one\ndata: two\nretry: 9\n\n: still here\n\n";
        let frame = |id, event: Option<&str>, data: &str| Frame {
            id,
            event: event.map(str::to_owned),
            data: data.to_owned(),
        };
        let expected = [
            frame(Some(7), None, "{\"a\":1}"),
            frame(None, Some("dropped"), "{}"),
            frame(None, None, "one\ntwo"),
        ];
        for size in 1..=text.len() {
            let pieces: Vec<&str> = text
                .as_bytes()
                .chunks(size)
                .map(|piece| std::str::from_utf8(piece).expect("ASCII"))
                .collect();
            assert_eq!(all(&pieces), expected, "in pieces of {size}");
        }
    }

    #[test]
    fn a_line_or_a_notice_without_end_is_refused() {
        let piece = Bytes::from(vec![b'x'; MAX_LINE_BYTES / 2 + 1]);
        let mut frames = Frames::default();
        frames.take(&piece).expect("half of it");
        assert!(frames.next().is_none());
        assert!(frames.take(&piece).is_err());

        let mut line = b"data: ".to_vec();
        line.resize(MAX_LINE_BYTES / 2, b'x');
        line.push(b'\n');
        let line = Bytes::from(line);
        let mut frames = Frames::default();
        let mut taken = 0;
        while frames.take(&line).is_ok() {
            assert!(frames.next().is_none());
            taken += line.len();
            assert!(taken < MAX_NOTICE_BYTES * 2, "it grows without end");
        }
    }
}
