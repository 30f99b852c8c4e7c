//! `/v1/hubs` and `/v1/hub`, described.

use serde_json::{Value, json};

use super::operation::{Operation, Tag};
use super::schema::{Named, about, answer, count, flag, number, page_of, reference, request, text};

const HUB: &str = "The hub's id.";

pub(crate) fn create() -> Operation {
    Operation::new(
        Tag::Hubs,
        "createHub",
        "Make a hub",
        "An agent, like `postrider hub`, that shows the token dials out to this gateway and \
         forwards the deliveries of every endpoint that names the hub. This answer is the only \
         place where the token can be read; what is stored is its hash.",
    )
    .takes("NewHub", &json!({ "name": "the office" }))
    .gives(201, "The hub, with its token.", "MadeHub", &shown_once())
    .refuses_when(409, "There are as many hubs as are kept, or another hub has this token.")
}

pub(crate) fn rotate_token() -> Operation {
    Operation::new(
        Tag::Hubs,
        "rotateHubToken",
        "Give a hub another token",
        "The old one is dead at once, and the connection of whoever has shown it ends. This answer \
         is the only place where the new one can be read.",
    )
    .path("id", "HubId", HUB)
    .may_take("HubTokenRotation", &json!({}))
    .gives(200, "The hub, with its new token.", "MadeHub", &shown_once())
    .refuses_when(409, "Another hub has this token.")
}

pub(crate) fn list() -> Operation {
    Operation::new(Tag::Hubs, "listHubs", "List hubs", "Newest first, with how they are doing.")
        .page()
        .gives(200, "A page of hubs.", "Hubs", &json!({ "data": [shown()], "next_cursor": null }))
}

pub(crate) fn show() -> Operation {
    Operation::new(
        Tag::Hubs,
        "showHub",
        "Show a hub",
        "Whether it is connected, what it has in its hands, and what waits for it.",
    )
    .path("id", "HubId", HUB)
    .gives(200, "The hub.", "Hub", &shown())
}

pub(crate) fn delete() -> Operation {
    Operation::new(
        Tag::Hubs,
        "deleteHub",
        "Delete a hub",
        "Its connection ends and its token is dead at once. Its endpoints stay, and what goes to \
         them waits until they are given another destination.",
    )
    .path("id", "HubId", HUB)
    .answers(204, json!({ "description": "It is gone." }))
}

pub(crate) fn connect() -> Operation {
    Operation::of_hubs(
        Tag::Hubs,
        "connectHub",
        "Connect as a hub",
        "The handshake of a WebSocket (RFC 6455) with the subprotocol `postrider.hub.v1`, whose \
         frames stand in `docs/hub-protocol.md`. A second connection with one token takes the \
         place of the first. HTTP/1.1 only.",
    )
    .answers(
        101,
        json!({
            "description": "From here on the connection is a WebSocket.",
            "headers": {
                "Sec-WebSocket-Protocol": {
                    "description": "`postrider.hub.v1`",
                    "schema": { "const": "postrider.hub.v1" },
                },
            },
        }),
    )
    .refuses_when(400, "It is no handshake of a WebSocket, or does not offer the subprotocol.")
    .refuses_when(401, "There is no hub token, or it is not known. An API key is none.")
}

fn shown_once() -> Value {
    json!({
        "id": "hub_0a1b2c3d4e5f6",
        "name": "the office",
        "created_at": "2026-01-31T12:00:00.000Z",
        "token": "prh_5d41402abc4b2a76b9719d911017c5925d41402abc4b2a76b9719d911017c592",
    })
}

fn shown() -> Value {
    json!({
        "id": "hub_0a1b2c3d4e5f6",
        "name": "the office",
        "created_at": "2026-01-31T12:00:00.000Z",
        "connected": true,
        "since": "2026-01-31T12:00:00.000Z",
        "agent": "postrider/0.1.0",
        "capacity": 64,
        "in_flight": 2,
        "waiting": 3,
        "lag_seconds": 1.5,
    })
}

pub(super) fn schemas() -> Vec<Named> {
    let token = json!({
        "type": ["string", "null"],
        "minLength": 36,
        "maxLength": 256,
        "pattern": "^prh_[!-~]+$",
        "description": "What its agent will show, if it is not to be made: `prh_` and at least 32 \
             characters that nobody can guess.",
    });
    let new = json!({
        "name": { "type": "string", "minLength": 1, "maxLength": 200, "description": "For people." },
        "token": token,
    });
    vec![
        ("NewHub", request("A hub to be made.", new, &["name"])),
        ("HubTokenRotation", request("A token to be changed.", json!({ "token": token }), &[])),
        ("MadeHub", made()),
        ("Hub", hub()),
        ("Hubs", page_of("Hub")),
    ]
}

fn made() -> Value {
    let properties = json!({
        "id": reference("HubId"),
        "name": text("For people."),
        "created_at": reference("Time"),
        "token": text("What the agent shows. Only in this answer."),
    });
    answer("A hub that was made.", properties, &[])
}

fn hub() -> Value {
    let properties = json!({
        "id": reference("HubId"),
        "name": text("For people."),
        "created_at": reference("Time"),
        "connected": flag("Whether it is connected."),
        "since": about("Time", "Since when it is connected, if it is."),
        "agent": text("What the agent calls itself, while it is connected."),
        "capacity": count("How many deliveries it takes at once, while it is connected."),
        "in_flight": count("Deliveries in its hands."),
        "waiting": count("Deliveries of its endpoints that are not finished, in flight or not."),
        "lag_seconds": number("How old the oldest of these is; left out if there is none."),
    });
    answer("An agent behind NAT.", properties, &["since", "agent", "capacity", "lag_seconds"])
}
