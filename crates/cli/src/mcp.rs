//! `postrider mcp`: lets an assistant look at a gateway, by the Model Context Protocol on standard
//! input and output.

mod calls;
mod protocol;
mod tools;
mod trim;

use std::io::{self, BufRead, Read as _, Write as _};

use crate::Failure;
use crate::connect::Connect;
use crate::traffic::is_closed_pipe;
use calls::Desk;
use protocol::{Code, Session};

/// The longest message that is read.
const MAX_MESSAGE_BYTES: usize = 1 << 20;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
A program that talks to a model starts this command and talks to it over its standard input and \
output; it is of no use at a terminal. It speaks the revision 2026-07-28 of the protocol, and those \
from 2024-11-05 to 2025-11-25.

Tools: list_endpoints, list_events, show_event, list_deliveries, show_delivery, explain_delivery, \
list_dead_letters, dead_letter_groups, stats, health. With --allow-changes also retry_delivery, \
replay_dead_letters, pause_endpoint, resume_endpoint. Each answer is cut to what a model can read, and \
says which of it came from outside.

What the tools may see and do is what the key may: give it a key of the one tenant that it is about.

Exit codes: 0 when the standard input ends, 1 failure, 2 wrong usage or configuration.

Example, as the configuration of such a program:
  {\"mcpServers\": {\"postrider\": {\"command\": \"postrider\", \"args\": [\"mcp\"],
    \"env\": {\"POSTRIDER_GATEWAY\": \"http://127.0.0.1:7070\", \"POSTRIDER_KEY\": \"pr_…\"}}}}")]
pub(crate) struct Args {
    #[command(flatten)]
    connect: Connect,

    /// Also offer the tools that change something: retry, replay, pause, resume
    #[arg(long, env = "POSTRIDER_MCP_ALLOW_CHANGES")]
    allow_changes: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let gateway = args.connect.gateway()?;
    // Connections are kept alive while the next message is waited for.
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let mut session = Session::new(Desk::new(gateway, args.allow_changes));
    let mut input = io::stdin().lock();
    loop {
        let answer = match read_message(&mut input)? {
            Message::End => return Ok(()),
            Message::Blank => None,
            Message::TooLong => Some(protocol::refusal(
                Code::InvalidRequest,
                &format!("a message has more than {MAX_MESSAGE_BYTES} bytes"),
            )),
            Message::Line(line) => runtime.block_on(session.answer(&line)),
        };
        if let Some(answer) = answer {
            let mut out = io::stdout().lock();
            let written = writeln!(out, "{answer}").and_then(|()| out.flush());
            match written {
                Err(error) if is_closed_pipe(&error) => return Ok(()),
                written => written?,
            }
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Message {
    Line(Vec<u8>),
    Blank,
    TooLong,
    End,
}

/// The next line. Of one that is too long nothing is kept.
fn read_message(input: &mut impl BufRead) -> io::Result<Message> {
    let mut line = Vec::new();
    let limit = u64::try_from(MAX_MESSAGE_BYTES).unwrap_or(u64::MAX);
    if input.by_ref().take(limit).read_until(b'\n', &mut line)? == 0 {
        return Ok(Message::End);
    }
    if line.len() == MAX_MESSAGE_BYTES && !line.ends_with(b"\n") {
        input.skip_until(b'\n')?;
        return Ok(Message::TooLong);
    }
    if line.trim_ascii().is_empty() {
        return Ok(Message::Blank);
    }
    Ok(Message::Line(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_a_line_of_bounded_length() {
        let mut input = b"one\n\r\n".to_vec();
        input.extend(vec![b'x'; MAX_MESSAGE_BYTES * 3]);
        input.extend(b"\ntwo");
        let mut input = input.as_slice();
        let mut next = || read_message(&mut input).expect("memory can be read");
        assert_eq!(next(), Message::Line(b"one\n".to_vec()));
        assert_eq!(next(), Message::Blank);
        assert_eq!(next(), Message::TooLong);
        assert_eq!(next(), Message::Line(b"two".to_vec()));
        assert_eq!(next(), Message::End);
    }
}
