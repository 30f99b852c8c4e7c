//! Signatures of inbound webhooks, under every scheme: no request panics, none is believed whose
//! body, secret or time is another, and no refusal tells a secret. The bytes are a request: lines of
//! headers, an empty line, and a body; `:url` and `:method` stand among the headers.

mod senders;

use postrider_core::Timestamp;
use postrider_core::signing::{Scheme as Signing, Secret, Signer};
use postrider_core::verification::{Inbound, Refusal, Scheme, Verifier};

use senders::{SENDERS, Sender};

/// When the requests of the corpus were signed.
const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);
/// What is put behind a body to make it another, also where it is a form.
const APPENDED: &[u8] = b"&another=1";
/// How many headers are looked at: more than any scheme reads.
const MAX_HEADERS: usize = 64;

pub fn signature(bytes: &[u8]) {
    let (head, body) = crate::halves(bytes);
    let request = Request::read(head, body);
    for sender in SENDERS.iter() {
        judge(sender, &request);
    }
    what_is_signed_is_believed(body);
    secrets_are_not_repeated(head);
}

fn judge(sender: &Sender, request: &Request<'_>) {
    let name = sender.name;
    let verdict = request.ask(&sender.verifier, NOW);
    assert_eq!(verdict, request.ask(&sender.verifier, NOW), "{name}: the same request");
    if let Err(refusal) = verdict {
        assert!(name != "none", "{refusal}");
        assert!(!refusal.to_string().contains(sender.secret), "{name}: {refusal}");
        return;
    }
    let Some(other) = &sender.other else { return };
    assert!(request.ask(other, NOW).is_err(), "{name}: believed under another secret");
    if sender.signs_body {
        let body = [request.body, APPENDED].concat();
        let another = Request { body: &body, ..request.clone() };
        assert!(another.ask(&sender.verifier, NOW).is_err(), "{name}: another body");
    }
    if sender.signs_time {
        for now in [Timestamp::MIN, Timestamp::MAX] {
            assert!(request.ask(&sender.verifier, now).is_err(), "{name}: believed at {now}");
        }
    }
    if sender.reads_headers {
        let twice = request.headers.iter().chain(&request.headers).cloned().collect();
        let repeated = Request { headers: twice, ..request.clone() };
        assert!(repeated.ask(&sender.verifier, NOW).is_err(), "{name}: repeated headers");
    }
}

#[derive(Clone)]
struct Request<'a> {
    method: &'a str,
    url: &'a str,
    headers: Vec<(String, &'a [u8])>,
    body: &'a [u8],
}

impl<'a> Request<'a> {
    fn read(head: &'a [u8], body: &'a [u8]) -> Self {
        let (method, url) = ("POST", "https://hooks.example.com/in/abc");
        let mut request = Self { method, url, headers: Vec::new(), body };
        for line in head.split(|byte| *byte == b'\n').take(MAX_HEADERS) {
            // The colon of `:url` is none that ends a name.
            let Some(colon) = line.iter().skip(1).position(|byte| *byte == b':') else { continue };
            let (name, value) = line.split_at(colon + 1);
            let value = value[1..].trim_ascii();
            let Ok(name) = std::str::from_utf8(name) else { continue };
            match (name, std::str::from_utf8(value)) {
                (":url", Ok(url)) => request.url = url,
                (":method", Ok(method)) => request.method = method,
                (name, _) => request.headers.push((name.to_ascii_lowercase(), value)),
            }
        }
        request
    }

    fn ask(&self, verifier: &Verifier, now: Timestamp) -> Result<(), Refusal> {
        let headers: Vec<(&str, &[u8])> =
            self.headers.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        let inbound =
            Inbound { method: self.method, url: self.url, headers: &headers, body: self.body };
        let verdict = verifier.verify(&inbound, now);
        if verdict.is_ok() {
            // Asked of good requests only, as the server does.
            let _ = verifier.handshake(&inbound);
        }
        verdict
    }
}

/// What this gateway signs, a source of the scheme `standard` believes, and nothing else.
fn what_is_signed_is_believed(body: &[u8]) {
    const RANDOM: [u8; 32] = [7; 32];
    let tolerance = std::time::Duration::from_mins(5);
    for signing in [Signing::Standard, Signing::Ed25519] {
        let secret = Secret::generate(&signing, RANDOM);
        let shared = secret.public_key().unwrap_or_else(|| secret.text().to_owned());
        let signer = Signer::new(&signing, &[secret]);
        let signature = signer.sign("evt_1", NOW.as_seconds(), body).expect("it signs");
        let verifier = Verifier::new(&Scheme::Standard { tolerance }, &[shared]).expect("a key");
        let seconds = NOW.as_seconds().to_string();
        let request = Request {
            method: "POST",
            url: "https://hooks.example.com/",
            headers: vec![
                ("webhook-id".to_owned(), b"evt_1".as_slice()),
                ("webhook-timestamp".to_owned(), seconds.as_bytes()),
                (signature.name.to_owned(), signature.value.as_bytes()),
            ],
            body,
        };
        assert_eq!(request.ask(&verifier, NOW), Ok(()), "{signing:?}");
        let another = [body, APPENDED].concat();
        let another = Request { body: &another, ..request };
        assert_eq!(another.ask(&verifier, NOW), Err(Refusal::NoMatch), "{signing:?}");
    }
}

/// A text that is taken as a secret signs; one that is not is refused without being repeated.
fn secrets_are_not_repeated(text: &[u8]) {
    /// A shorter text may stand in a sentence by chance.
    const MIN_CHARS: usize = 24;
    let Ok(text) = std::str::from_utf8(text) else { return };
    let hex = Signing::sha256_hex("X-Signature").expect("a header");
    for signing in [Signing::Standard, Signing::Ed25519, Signing::None, hex] {
        match Secret::parse(text, &signing) {
            Ok(secret) => {
                assert_eq!(secret.text(), text);
                assert!(!format!("{secret:?}").contains(text) || text.len() < MIN_CHARS);
                let signature =
                    Signer::new(&signing, &[secret]).sign("evt_1", 0, b"body").is_some();
                assert_eq!(signature, signing != Signing::None, "{signing:?}");
            }
            Err(error) => {
                let said = error.to_string();
                // A text made of our own words stands in the sentence for another one as well.
                if text.len() >= MIN_CHARS && said.contains(text) {
                    let another = Secret::parse(&format!("{text}~"), &signing);
                    let again = another.err().map(|error| error.to_string());
                    assert_eq!(again.as_deref(), Some(said.as_str()));
                }
            }
        }
    }
}
