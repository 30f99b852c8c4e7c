//! The scheme `hmac`, set up for providers that have no scheme of their own.

use std::time::Duration;

use postrider_core::Timestamp;
use postrider_core::verification::{MAX_SIGNATURES, Refusal};

use crate::case::Case;

/// The vector in Atlassian's documentation of Bitbucket.
fn bitbucket(signature: &str) -> Case {
    Case {
        verify: r#"{"scheme":"hmac","header":"X-Hub-Signature","prefix":"sha256="}"#,
        secret: "It's a Secret to Everybody",
        headers: vec![("x-hub-signature", signature.as_bytes().to_vec())],
        body: b"Hello World!".to_vec(),
        ..Case::default()
    }
}

const BITBUCKET: &str = "sha256=a4771c39fbe90f317c7824e83ddef3caae9cb3d976c214ace1f2937e133263c9";

#[test]
fn bitbucket_signs_the_body() {
    bitbucket(BITBUCKET).exercise();
}

/// From Python's `hmac`.
#[test]
fn intercom_signs_with_sha1() {
    Case {
        verify: r#"{"scheme":"hmac","header":"X-Hub-Signature","prefix":"sha1=","algorithm":"sha1"}"#,
        secret: "intercom-client-secret",
        headers: vec![("x-hub-signature", b"sha1=941ff7fcd8244a68faffd37016f6a1ee9566549f".to_vec())],
        body: br#"{"type":"notification_event"}"#.to_vec(),
        ..Case::default()
    }
    .exercise();
}

/// The second is the vector in an older edition of Zendesk's documentation, which has the time
/// behind the body; the others are from Python's `hmac`.
#[test]
fn zendesk_signs_an_rfc_3339_time_and_the_body() {
    let first = r#"{"scheme":"hmac","header":"X-Zendesk-Webhook-Signature","encoding":"base64","signed":"{timestamp}{body}","timestamp":{"header":"X-Zendesk-Webhook-Signature-Timestamp","format":"rfc3339"}}"#;
    let last = r#"{"scheme":"hmac","header":"X-Zendesk-Webhook-Signature","encoding":"base64","signed":"{body}{timestamp}","timestamp":{"header":"X-Zendesk-Webhook-Signature-Timestamp","format":"rfc3339"}}"#;
    let body = br#"{"say": "hello"}"#;
    for (verify, signature, body) in [
        (first, "Rry/4TtIdFyawtXXp8QdI6tlAUUQ/5kL1OTp5qo/ZIk", &body[..]),
        (last, "tRDSF7URY8BLCDlaBcQ7FHu051Zk+aAB0NKMP53teMw", body),
        (first, "w5trw5FKEo50LrnVWF2q1INuAA5hUwq35WCqAZIPOJ0", b""),
    ] {
        Case {
            verify,
            secret: "HRkRd4BeOAoUkfZr-mhauJT64rvBASlJRoIyPsd3zeA=",
            headers: vec![
                ("x-zendesk-webhook-signature", signature.as_bytes().to_vec()),
                ("x-zendesk-webhook-signature-timestamp", b"2021-07-25T10:00:00Z".to_vec()),
            ],
            body: body.to_vec(),
            signed_at: "2021-07-25T10:00:00Z".parse().expect("a time"),
            tolerance: Some(Duration::from_mins(5)),
            ..Case::default()
        }
        .exercise();
    }
}

/// From Python's `hmac`.
#[test]
fn everything_of_a_request_can_be_signed() {
    let case = Case {
        verify: r#"{"scheme":"hmac","header":"X-Sig","algorithm":"sha512","encoding":"base64url","signed":"{method}\n{url}\n{timestamp}\n{header:X-Message-Id}\n{body}","timestamp":{"header":"X-Time","format":"unix_ms","tolerance":"10s"}}"#,
        secret: "key-of-512",
        url: "https://hooks.example.com/in/abc?x=1".to_owned(),
        headers: vec![
            (
                "x-sig",
                b"aOZLxPSOS9afHilwh5sIVKdrKV_QI5Ou3YL1DhZy25e4lphzFdnVXJffBdiGQM1TYtyuENO2CONfnKGnRNBFnw"
                    .to_vec(),
            ),
            ("x-time", b"1700000000000".to_vec()),
            ("x-message-id", b"msg-7".to_vec()),
        ],
        body: br#"{"a":1}"#.to_vec(),
        tolerance: Some(Duration::from_secs(10)),
        ..Case::default()
    };
    case.exercise();
    let get = Case { method: "GET", ..case.clone() };
    assert_eq!(get.verify(), Err(Refusal::NoMatch));
    let elsewhere = Case { url: case.url.replace("x=1", "x=2"), ..case };
    assert_eq!(elsewhere.verify(), Err(Refusal::NoMatch));
}

/// From Python's `hmac`.
#[test]
fn a_time_is_joined_with_a_dot_where_nothing_else_is_said() {
    Case {
        verify: r#"{"scheme":"hmac","header":"X-Signature","timestamp":{"header":"X-Timestamp"}}"#,
        secret: "s3cret",
        headers: vec![
            (
                "x-signature",
                b"1698a50bc74d1ff1db85c4e0a5297c2ad9fdba245d5737cdb789e4cc6e098940".to_vec(),
            ),
            ("x-timestamp", b"1700000000".to_vec()),
        ],
        body: br#"{"a":1}"#.to_vec(),
        signed_at: Timestamp::from_millis(1_700_000_000_000),
        tolerance: Some(Duration::from_mins(5)),
        ..Case::default()
    }
    .exercise();
}

#[test]
fn several_signatures_are_separated_by_commas() {
    let other = format!("sha256={}", "0".repeat(64));
    for (header, ok) in [
        (format!("{other},{BITBUCKET}"), true),
        (format!("{BITBUCKET}, {other}"), true),
        (format!("v2=x, ,{BITBUCKET}"), true),
        (format!("{other},{other}"), false),
        (format!("{other} {BITBUCKET}"), false),
        (BITBUCKET.replace("sha256=", ""), false),
        (BITBUCKET.replace("sha256=", "SHA256="), false),
        (",,,".to_owned(), false),
    ] {
        assert_eq!(bitbucket(&header).verify().is_ok(), ok, "{header}");
    }
    let many = |count: usize| bitbucket(&("x,".repeat(count - 1) + BITBUCKET)).verify();
    assert_eq!(many(MAX_SIGNATURES), Ok(()));
    let header = "x-hub-signature".to_owned();
    assert_eq!(many(MAX_SIGNATURES + 1), Err(Refusal::TooManySignatures { header }));
}
