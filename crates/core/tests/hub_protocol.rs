//! `docs/hub-protocol.md` shows frames: each of them is one, and each kind is shown.

use std::collections::BTreeSet;

use bytes::Bytes;
use postrider_core::hub::{self, FromGateway, FromHub, Met};

const PAGE: &str = include_str!("../../../docs/hub-protocol.md");

/// The examples of one side: heads in blocks that are marked with its name.
fn examples(side: &str) -> Vec<&'static str> {
    let fence = format!("```json {side}\n");
    let blocks = PAGE.split(&fence).skip(1);
    blocks.map(|block| block.split_once("\n```").expect("a closed block").0).collect()
}

fn framed(head: &str) -> Bytes {
    let length = u32::try_from(head.len()).expect("a short head").to_be_bytes();
    [&length[..], head.as_bytes()].concat().into()
}

#[test]
fn every_example_of_a_hub_decodes_and_every_kind_is_shown() {
    let mut shown = BTreeSet::new();
    for head in examples("from-hub") {
        let frame = FromHub::decode(framed(head)).expect(head);
        shown.insert(match &frame {
            FromHub::Hello(_) => "hello",
            FromHub::Answer(answer) => match answer.met {
                Met::Status { .. } => "status",
                Met::Network { .. } => "network",
                Met::Timeout { .. } => "timeout",
            },
        });
        assert_eq!(FromHub::decode(frame.encode()), Ok(frame));
    }
    assert_eq!(shown, BTreeSet::from(["hello", "network", "status", "timeout"]));
}

#[test]
fn every_example_of_a_gateway_decodes_and_every_kind_is_shown() {
    let mut shown = BTreeSet::new();
    for head in examples("from-gateway") {
        let frame = FromGateway::decode(framed(head)).expect(head);
        // Ours writes the fields in the order of the page, and no others.
        assert_eq!(frame.encode(), framed(head));
        shown.insert(match frame {
            FromGateway::Welcome(_) => "welcome",
            FromGateway::Deliver(_) => "deliver",
        });
    }
    assert_eq!(shown, BTreeSet::from(["deliver", "welcome"]));
}

#[test]
fn every_block_of_json_is_checked() {
    let blocks = PAGE.matches("```json").count();
    assert_eq!(blocks, examples("from-hub").len() + examples("from-gateway").len());
}

#[test]
fn the_page_names_what_the_code_does() {
    let kib = |bytes: usize| format!("{} KiB |", bytes >> 10);
    let mib = |bytes: usize| format!("{} MiB |", bytes >> 20);
    for said in [
        hub::PROTOCOL.to_owned(),
        format!("head of a frame from a hub | {}", kib(hub::MAX_HUB_HEAD_BYTES)),
        format!("head of a frame from a gateway | {}", mib(hub::MAX_GATEWAY_HEAD_BYTES)),
        format!("headers in a frame | {} |", hub::MAX_HEADERS),
        format!("body of a `deliver` | {}", mib(hub::MAX_BODY_BYTES)),
        format!("body of an `answer` | {}", kib(hub::MAX_EXCERPT_BYTES)),
        format!("`agent` | 1 to {} characters |", hub::MAX_AGENT_CHARS),
        format!("ping every {} seconds", hub::HEARTBEAT.as_secs()),
        format!("heard nothing for {} seconds", hub::SILENCE.as_secs()),
        format!("within {} seconds of the handshake", hub::GREETING.as_secs()),
        format!("| {} | hub |", hub::close::NORMAL),
        format!("| {} | gateway |", hub::close::STOPPING),
        format!("| {} | both |", hub::close::MALFORMED),
        format!("| {} | gateway |", hub::close::REVOKED),
        format!("| {} | both |", hub::close::TOO_LARGE),
        format!("| {} | gateway |", hub::close::TAKEN_OVER),
    ] {
        assert!(PAGE.contains(&said), "the page does not say: {said}");
    }
}
