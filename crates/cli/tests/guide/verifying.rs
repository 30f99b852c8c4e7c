//! What the guide says about verifying a webhook, tried on one that the gateway signed and on forged ones,
//! in every language that it says it in.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::walk::{Walk, rows};
use crate::{root, verify};

/// The program, its arguments before the file, and the file. `cargo xtask test` sees to it that they are
/// there.
const LANGUAGES: [(&str, &[&str], &str); 6] = [
    ("python3", &[], "verify.py"),
    ("node", &[], "verify.mjs"),
    ("java", &[], "Verify.java"),
    ("go", &["run"], "verify.go"),
    ("ruby", &[], "verify.rb"),
    ("php", &[], "verify.php"),
];

/// A webhook as a receiver has it.
#[derive(Debug, Clone)]
struct Webhook {
    secret: String,
    id: String,
    timestamp: String,
    signature: String,
    body: String,
}

impl Webhook {
    /// From what the receivers of the guide print.
    #[track_caller]
    fn printed(received: &str, secret: String) -> Self {
        let header = |name: &str| {
            let found = received.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
            found.unwrap_or_else(|| panic!("no {name} in {received}")).trim().to_owned()
        };
        let body = received.lines().rev().find(|line| line.contains('{'));
        Self {
            secret,
            id: header("webhook-id"),
            timestamp: header("webhook-timestamp"),
            signature: header("webhook-signature"),
            body: body.unwrap_or_else(|| panic!("no body in {received}")).trim().to_owned(),
        }
    }

    /// This one with something about it changed, each in one way, and what that is.
    fn forged(&self) -> Vec<(&'static str, Self)> {
        let change = |change: fn(&mut Self)| {
            let mut forged = self.clone();
            change(&mut forged);
            forged
        };
        vec![
            ("another body", change(|webhook| webhook.body.push(' '))),
            ("another id", change(|webhook| webhook.id.push('0'))),
            ("another time", change(|webhook| webhook.timestamp = shifted(&webhook.timestamp, 1))),
            ("no time", change(|webhook| "soon".clone_into(&mut webhook.timestamp))),
            ("no signature", change(|webhook| webhook.signature = String::new())),
            ("another version", change(|webhook| webhook.signature.insert(1, '9'))),
            (
                "another secret",
                change(|webhook| {
                    "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".clone_into(&mut webhook.secret);
                }),
            ),
        ]
    }

    /// This one, signed rightly so long ago that it must be somebody who kept it.
    fn kept(&self) -> Self {
        use base64::Engine as _;
        use base64::engine::general_purpose::STANDARD;
        use hmac::{Hmac, KeyInit as _, Mac as _};
        let mut kept = self.clone();
        kept.timestamp = shifted(&self.timestamp, -3600);
        let key = STANDARD.decode(self.secret.trim_start_matches("whsec_")).expect("base64");
        let signed = format!("{}.{}.{}", kept.id, kept.timestamp, kept.body);
        let mac = Hmac::<sha2::Sha256>::new_from_slice(&key).expect("a key");
        let sum = mac.chain_update(signed).finalize().into_bytes();
        kept.signature = format!("v1,{}", STANDARD.encode(sum));
        kept
    }
}

fn shifted(timestamp: &str, by: i64) -> String {
    (timestamp.parse::<i64>().expect("a number") + by).to_string()
}

/// What the receiver printed is a webhook of an endpoint, which is the oldest if it has no name.
#[track_caller]
pub(crate) fn printed_webhook_is_genuine(walk: &Walk, endpoint: Option<&str>) {
    let webhook = printed(walk, endpoint);
    assert!(is_genuine_to("python3", &[], "verify.py", &webhook), "{webhook:?}");
}

#[track_caller]
fn printed(walk: &Walk, endpoint: Option<&str>) -> Webhook {
    let list = walk.world.get("/v1/endpoints");
    let wanted = endpoint.map(|name| ("name", name));
    let found = rows(&list, wanted.as_slice());
    let id = found.last().and_then(|found| found["id"].as_str());
    let id = id.unwrap_or_else(|| panic!("no endpoint: {list}"));
    let secrets = walk.world.get(&format!("/v1/endpoints/{id}/secret"));
    let secret = secrets["secret"].as_str().unwrap_or_else(|| panic!("no secret of {id}"));
    Webhook::printed(&walk.running("serve_forever").output(), secret.to_owned())
}

fn is_genuine_to(program: &str, arguments: &[&str], file: &str, webhook: &Webhook) -> bool {
    let path = root().join("docs/guide/verify").join(file);
    let mut child = Command::new(program)
        .args(arguments)
        .arg(path)
        .args([&webhook.secret, &webhook.id, &webhook.timestamp, &webhook.signature])
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{program}: {error}"));
    let mut stdin = child.stdin.take().expect("piped");
    // One that refuses before it has read all says so by its exit code.
    let _ = stdin.write_all(webhook.body.as_bytes());
    drop(stdin);
    match child.wait().expect("it ends").code() {
        Some(0) => true,
        Some(1) => false,
        other => panic!("{program} ended with {other:?}"),
    }
}

#[test]
fn every_language_takes_a_genuine_webhook_and_refuses_forged_ones() {
    let mut walk = Walk::of("docs/guide/quick-start.md");
    walk.types("Start the gateway", "serve");
    walk.types("Start a receiver", "serve_forever");
    walk.types("Send an event", "order.created");
    walk.sees("/v1/deliveries", |list| {
        (rows(list, &[("state", "delivered")]).len() == 1).then_some(())
    });
    let genuine = printed(&walk, None);
    let mut rotating = genuine.clone();
    rotating.signature = format!("v1,AAAA {}", genuine.signature);
    let mut forged = genuine.forged();
    forged.push(("an old one", genuine.kept()));

    for (program, arguments, file) in LANGUAGES {
        for webhook in [&genuine, &rotating] {
            assert!(is_genuine_to(program, arguments, file, webhook), "{file}: {webhook:?}");
        }
        for (what, webhook) in &forged {
            assert!(!is_genuine_to(program, arguments, file, webhook), "{file} takes {what}");
        }
    }

    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    let to_rust = |webhook: &Webhook| {
        let Webhook { secret, id, timestamp, signature, body } = webhook;
        verify::verify(secret, id, timestamp, signature, body.as_bytes(), now)
    };
    assert!(to_rust(&genuine) && to_rust(&rotating));
    for (what, webhook) in &forged {
        assert!(!to_rust(webhook), "verify.rs takes {what}");
    }
}
