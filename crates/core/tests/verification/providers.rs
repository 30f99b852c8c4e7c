//! Stripe, GitHub, Slack, Shopify, Linear and Paddle.

use std::time::Duration;

use postrider_core::Timestamp;
use postrider_core::verification::{Handshake, MAX_SIGNATURES, Refusal};

use crate::case::Case;

fn seconds(seconds: i64) -> Timestamp {
    Timestamp::from_millis(seconds * 1_000)
}

/// Signed with `generate_signature_header` of Stripe's own Python library.
fn stripe(signature: &str) -> Case {
    Case {
        verify: r#"{"scheme":"stripe"}"#,
        secret: "whsec_4nT1dXyXyXyXyXyXyXyXyXyXyXyXyXyX",
        other_secret: "whsec_yet_another",
        headers: vec![("stripe-signature", signature.as_bytes().to_vec())],
        body: r#"{"id":"evt_1","object":"event","name":"Zoë"}"#.as_bytes().to_vec(),
        signed_at: seconds(1_492_774_577),
        tolerance: Some(Duration::from_mins(5)),
        ..Case::default()
    }
}

const STRIPE: &str =
    "t=1492774577,v1=b58bed19db5e0d3f1b9bd4b1cdb4280c5fb7423a827258d7741d2f729d35e47c";
/// Of the same under `whsec_another`.
const STRIPE_ANOTHER: &str = "53a075b4c8ca6ee9a77a4155219f3a7715493e7825d7cccdcf271fa634df5792";

#[test]
fn stripe_signatures() {
    stripe(STRIPE).exercise();
    let empty = "t=1492774577,v1=95b948272ad850d64ffe2595a0bf4ba5e5d4fbecbd7be8f3d7670d316335c721";
    stripe(empty).with_body(b"").exercise();
}

#[test]
fn stripe_may_list_several_signatures() {
    let v1 = STRIPE.strip_prefix("t=1492774577,").expect("a time");
    let hex = v1.strip_prefix("v1=").expect("a signature");
    for (header, ok) in [
        (format!("t=1492774577,v1={STRIPE_ANOTHER},{v1}"), true),
        (format!("t=1492774577,{v1},v1={STRIPE_ANOTHER}"), true),
        (format!("{v1},t=1492774577"), true),
        (format!("t=1492774577,v1=short,x,{v1},v0={STRIPE_ANOTHER}"), true),
        (format!("t=1492774577,{}", v1.to_uppercase().replace("V1", "v1")), true),
        // Only `v1` is believed.
        (format!("t=1492774577,v0={hex}"), false),
        (format!("t=1492774577,v0={hex},v1={STRIPE_ANOTHER}"), false),
        (format!("t=1492774577,V1={hex}"), false),
        // The time that was signed is the only one.
        (format!("t=1492774577,t=1492774578,{v1}"), false),
        (format!("t=1492774577,t=1492774577,{v1}"), false),
        (format!("t=1492774578,{v1}"), false),
        (v1.to_owned(), false),
        (format!("t=,{v1}"), false),
        (format!("t=-1,{v1}"), false),
        ("t=1492774577".to_owned(), false),
        ("t=1492774577,v1=".to_owned(), false),
    ] {
        assert_eq!(stripe(&header).verify().is_ok(), ok, "{header}");
    }
    let rotating = stripe(&format!("{STRIPE},v1={STRIPE_ANOTHER}"));
    assert_eq!(rotating.verify_with(&["whsec_another"], rotating.signed_at), Ok(()));
}

#[test]
fn the_number_of_listed_signatures_is_bounded() {
    let many = |count: usize| {
        let others = format!(",v1={STRIPE_ANOTHER}").repeat(count - 1);
        stripe(&format!("{STRIPE}{others}")).verify()
    };
    assert_eq!(many(MAX_SIGNATURES), Ok(()));
    let header = "stripe-signature".to_owned();
    assert_eq!(many(MAX_SIGNATURES + 1), Err(Refusal::TooManySignatures { header }));
}

/// The vector in GitHub's documentation; that of the empty body is from Python's `hmac`.
fn github(signature: &str) -> Case {
    Case {
        verify: r#"{"scheme":"github"}"#,
        secret: "It's a Secret to Everybody",
        headers: vec![("x-hub-signature-256", signature.as_bytes().to_vec())],
        body: b"Hello, World!".to_vec(),
        ..Case::default()
    }
}

#[test]
fn github_signatures() {
    let hex = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
    github(&format!("sha256={hex}")).exercise();
    github("sha256=66a0c074deaa0f489ead6537e0d32f9a344b90bbeda705b6ed45ecd3b413fb40")
        .with_body(b"")
        .exercise();
    for header in [hex, &format!("sha1={hex}"), &format!("sha256={hex},sha256={hex}"), "sha256="] {
        let refusal = github(header).verify().expect_err(header);
        assert!(matches!(refusal, Refusal::MalformedHeader { .. }), "{header}: {refusal}");
    }
}

#[test]
fn the_older_signature_of_github_is_not_looked_at() {
    // HMAC-SHA1 of the same, from Python's `hmac`.
    let mut old = github("");
    old.headers =
        vec![("x-hub-signature", b"sha1=01dc10d0c83e72ed246219cdd91669667fe2ca59".to_vec())];
    let header = "x-hub-signature-256".to_owned();
    assert_eq!(old.verify(), Err(Refusal::MissingHeader { header }));
}

/// The vector in Slack's documentation.
fn slack() -> Case {
    Case {
        verify: r#"{"scheme":"slack"}"#,
        secret: "8f742231b10e8888abcd99yyyzzz85a5",
        headers: vec![
            (
                "x-slack-signature",
                b"v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503".to_vec(),
            ),
            ("x-slack-request-timestamp", b"1531420618".to_vec()),
        ],
        body: b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow\
                &channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner\
                &command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com\
                %2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN\
                &trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
            .to_vec(),
        signed_at: seconds(1_531_420_618),
        tolerance: Some(Duration::from_mins(5)),
        ..Case::default()
    }
}

/// The others are signed with Slack's own Python library.
fn slack_signed(signature: &str, body: &[u8]) -> Case {
    slack().with_header("x-slack-signature", Some(signature.as_bytes())).with_body(body)
}

#[test]
fn slack_signatures() {
    slack().exercise();
    let empty = "v0=55f41ec73231010289b54e669149ea021fccab11b5524355523533ce930cb739";
    slack_signed(empty, b"").exercise();
    for header in [&empty[3..], &empty.replace("v0", "v1"), "v0=", "v0=00"] {
        let refusal = slack_signed(header, b"").verify().expect_err(header);
        assert!(matches!(refusal, Refusal::MalformedHeader { .. }), "{header}: {refusal}");
    }
}

#[test]
fn slack_is_answered_with_its_challenge() {
    // The example in Slack's documentation.
    let body = br#"{"token":"Jhj5dZrVaK7ZwHHjRyZWjbDl","challenge":"3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P","type":"url_verification"}"#;
    let signature = "v0=f9bd80929259f3f6d5fe3a3186c453c89cd1ad4862815a15837584f31c993652";
    let challenge = slack_signed(signature, body);
    challenge.exercise();
    let answer = Handshake {
        status: 200,
        content_type: "text/plain; charset=utf-8",
        body: "3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P".to_owned(),
    };
    assert_eq!(challenge.handshake(), Some(answer));
    assert_eq!(slack().handshake(), None);
    let too_long = format!(r#"{{"type":"url_verification","challenge":"{}"}}"#, "x".repeat(1025));
    let padded = format!("{}{}", String::from_utf8_lossy(body), " ".repeat(16 * 1024));
    for body in [
        "",
        "{",
        "[]",
        "null",
        r#"{"type":"url_verification"}"#,
        r#"{"type":"url_verification","challenge":7}"#,
        r#"{"type":"event_callback","challenge":"x"}"#,
        r#"{"challenge":"x"}"#,
        &too_long,
        &padded,
        &"[".repeat(10_000),
    ] {
        assert_eq!(slack().with_body(body.as_bytes()).handshake(), None, "{body}");
    }
    // Nobody else asks for one.
    assert_eq!(github("sha256=00").with_body(body).handshake(), None);
}

/// Shopify publishes no vector; these are from Python's `hmac`.
fn shopify(signature: &str, body: &[u8]) -> Case {
    Case {
        verify: r#"{"scheme":"shopify"}"#,
        secret: "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",
        headers: vec![("x-shopify-hmac-sha256", signature.as_bytes().to_vec())],
        body: body.to_vec(),
        ..Case::default()
    }
}

#[test]
fn shopify_signatures() {
    let body = br#"{"id":820982911946154508,"email":"jon@example.com"}"#;
    shopify("3Q2bpVGVwDFrmr3qzG0EbeXFAjeEN9dQWVWKmZlqkbo", body).exercise();
    shopify("vBJ/Nd5v7e0DBUt2cir+oo+mcK9l9i+g8uvo/8e7dgM", b"").exercise();
    assert_eq!(shopify("3Q2bpVGVwDFrmr3qzG0EbeXFAjeEN9dQWVWKmZlqkbo=", body).verify(), Ok(()));
}

/// Linear publishes no vector; these are from Python's `hmac`.
fn linear(signature: &str, body: &str) -> Case {
    Case {
        verify: r#"{"scheme":"linear"}"#,
        secret: "lin_wh_8f3c1bA7",
        headers: vec![("linear-signature", signature.as_bytes().to_vec())],
        body: body.as_bytes().to_vec(),
        signed_at: Timestamp::from_millis(1_676_056_940_508),
        tolerance: Some(Duration::from_mins(1)),
        ..Case::default()
    }
}

#[test]
fn linear_signatures() {
    linear(
        "c82d85522fbe72576ddc23d197bed5ab3bc5ddb70f42f4d5f7d90aa027bbbb2b",
        r#"{"action":"create","type":"Issue","webhookTimestamp":1676056940508,"data":{"title":"Zoë"}}"#,
    )
    .exercise();
}

#[test]
fn linear_must_say_when_it_signed() {
    let expected = "a JSON object with webhookTimestamp in milliseconds";
    for (signature, body) in [
        (
            "22b21b31afaee6ddab8d3b75036a8fd47c73d89cd37e7358ed58e4b7848123ff",
            r#"{"action":"create"}"#,
        ),
        ("a7686bc79c6fabc68cf2c36226d3fd5deac022d4977476b8fd86eaafd32a3fb0", ""),
        (
            "de28c039e0cf9ba2c20c1d55c454f23bc018fa7161f9c504bf99a635bf3c26a1",
            r#"{"webhookTimestamp":"1676056940508"}"#,
        ),
        (
            "878664b7e6496894d7222653885ded5983d3c3ba04409afc1d23cc80de02e912",
            r#"{"webhookTimestamp":1676056940508,"webhookTimestamp":1676056940508}"#,
        ),
        (
            "09d0fafaec07e8edfc6bb33b9b1a6e5abc7c18d96367916634b4292e9705fdb2",
            r#"{"data":{"webhookTimestamp":1676056940508}}"#,
        ),
    ] {
        let refusal = linear(signature, body).verify();
        assert_eq!(refusal, Err(Refusal::MalformedBody { expected }), "{body}");
    }
}

/// The vectors in the tests of Paddle's own Node library; that of the empty body is from Python's
/// `hmac`.
fn paddle(signature: &str) -> Case {
    Case {
        verify: r#"{"scheme":"paddle"}"#,
        secret: "VALID_SECRET",
        other_secret: "INVALID_VALID_SECRET",
        headers: vec![("paddle-signature", signature.as_bytes().to_vec())],
        body: br#"{"data": ["1", "2"]}"#.to_vec(),
        signed_at: seconds(1_698_796_800),
        tolerance: Some(Duration::from_secs(5)),
        ..Case::default()
    }
}

#[test]
fn paddle_signatures() {
    let hex = "a300428748dce5c70e4da19bffd60769591ea969c99dea3105d0ec9612cf43f9";
    let other = "28981e941fae76e53db32f3d2a83cb69db41476595e84e1970a1b5d98f62b261";
    paddle(&format!("ts=1698796800;h1={hex}")).exercise();
    paddle("ts=1698796800;h1=6e1e7fd0275c36dfc6faf3f24f8ff152a7d81bfd5cd6df88f478287a0386dabe")
        .with_body(b"")
        .exercise();
    for (header, body, ok) in [
        (
            format!("ts=1698796800;h1={other};h1={other};h2=RANDOM_HASH"),
            r#"{"data": "value"}"#,
            true,
        ),
        (format!("ts=1698796800;h1={other};h1={hex}"), r#"{"data": ["1", "2"]}"#, true),
        (format!("ts=1698796800;h1={hex}"), r#"{ "data": [ "1", "2" ]}"#, false),
        (format!("ts=9876;h1={hex}"), r#"{"data": ["1", "2"]}"#, false),
        (format!("ts=1698796800;h2={hex}"), r#"{"data": ["1", "2"]}"#, false),
        (format!("ts=1698796800,h1={hex}"), r#"{"data": ["1", "2"]}"#, false),
        (format!("h1={hex}"), r#"{"data": ["1", "2"]}"#, false),
        ("ts=1234;h1=invalid_signature".to_owned(), r#"{"data": ["1", "2"]}"#, false),
    ] {
        let refused = paddle(&header).with_body(body.as_bytes()).verify();
        assert_eq!(refused.is_ok(), ok, "{header}");
    }
}
