//! Which secrets a verifier takes, and that it never shows one.

use postrider_core::verification::{
    Inbound, MAX_PUBLIC_KEYS, MAX_SECRET_BYTES, MAX_SECRETS, Scheme, Spec, Verifier,
};

const WHSEC: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const WHPK: &str = "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4=";

fn build(verify: &str, secrets: &[&str]) -> Result<Verifier, (String, String)> {
    let scheme: Scheme = serde_json::from_str(verify).expect(verify);
    let secrets: Vec<String> = secrets.iter().map(|secret| (*secret).to_owned()).collect();
    Verifier::new(&scheme, &secrets).map_err(|invalid| (invalid.field, invalid.message))
}

#[test]
fn secrets_that_cannot_verify_are_refused_by_name() {
    let standard = r#"{"scheme":"standard"}"#;
    let stripe = r#"{"scheme":"stripe"}"#;
    let telegram = r#"{"scheme":"telegram"}"#;
    let basic = r#"{"scheme":"token","authorization":"basic"}"#;
    let long = "x".repeat(MAX_SECRET_BYTES + 1);
    let long_telegram = "x".repeat(257);
    for (verify, secrets, field, message) in [
        (r#"{"scheme":"none"}"#, &["x"][..], "secret", "has no use"),
        (stripe, &[], "secret", "is needed by the scheme stripe"),
        (stripe, &["x"; MAX_SECRETS + 1], "secrets", "at most 8"),
        (stripe, &[""], "secret", "must not be empty"),
        (stripe, &[" \t\n"], "secret", "must not be empty"),
        (stripe, &["x", ""], "secrets[1]", "must not be empty"),
        (stripe, &["x\n"], "secret", "white space"),
        (stripe, &["x", "y", " x"], "secrets[2]", "white space"),
        (stripe, &[&long], "secret", "513 bytes"),
        (standard, &["MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"], "secret", "whsec_ for a shared key"),
        (standard, &["whsk_AAAA"], "secret", "whsec_ for a shared key"),
        (standard, &["whsec_*"], "secret", "not base64"),
        (standard, &[WHSEC, "whsec_AAAA"], "secrets[1]", "key of 3 bytes"),
        (standard, &["whpk_*"], "secret", "not base64"),
        (standard, &[WHSEC, "whpk_AAAA"], "secrets[1]", "not an ed25519 public key"),
        (
            standard,
            // The point of order one: every signature of a certain form is good under it.
            &["whpk_AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="],
            "secret",
            "not an ed25519 public key",
        ),
        (standard, &[WHPK; MAX_PUBLIC_KEYS + 1], "secrets", "more than 2 public keys"),
        (telegram, &["with space"], "secret", "not a secret token of Telegram"),
        (telegram, &["ok", "é"], "secrets[1]", "not a secret token of Telegram"),
        (telegram, &[&long_telegram], "secret", "not a secret token of Telegram"),
        (basic, &["user:password", "user"], "secrets[1]", "user:password"),
    ] {
        let (named, said) = build(verify, secrets).expect_err(verify);
        assert_eq!(named, field, "{verify} {secrets:?}");
        assert!(said.contains(message), "{verify} {secrets:?}: {said}");
    }
}

#[test]
fn secrets_at_the_limits_are_taken() {
    for (verify, secrets) in [
        (r#"{"scheme":"stripe"}"#, &["x"; MAX_SECRETS][..]),
        (r#"{"scheme":"stripe"}"#, &[&"x".repeat(MAX_SECRET_BYTES)]),
        (r#"{"scheme":"github"}"#, &["It's a Secret to Everybody"]),
        (r#"{"scheme":"telegram"}"#, &[&"-_aZ".repeat(64)]),
        (r#"{"scheme":"standard"}"#, &[WHPK; MAX_PUBLIC_KEYS]),
        (r#"{"scheme":"standard"}"#, &[WHSEC, WHPK, WHSEC.trim_end_matches('=')]),
        (r#"{"scheme":"token","authorization":"basic"}"#, &["user:"]),
    ] {
        assert!(build(verify, secrets).is_ok(), "{verify} {secrets:?}");
    }
}

#[test]
fn nothing_secret_is_shown() {
    let hidden = "swordfish";
    for verify in [
        r#"{"scheme":"stripe"}"#,
        r#"{"scheme":"twilio"}"#,
        r#"{"scheme":"telegram"}"#,
        r#"{"scheme":"hmac","header":"X-Sig"}"#,
        r#"{"scheme":"token","header":"X-Token"}"#,
    ] {
        let shown = format!("{:?}", build(verify, &[hidden]).expect(verify));
        assert!(shown.starts_with("Verifier(") && shown.len() < 40, "{shown}");
        assert!(!shown.contains(hidden), "{shown}");
    }
    let (_, said) =
        build(r#"{"scheme":"standard"}"#, &["whsec_swordfish!"]).expect_err("not base64");
    assert!(!said.contains(hidden), "{said}");

    let json = r#"{"scheme":"github","secret":"swordfish"}"#;
    let spec: Spec = serde_json::from_str(json).expect(json);
    assert_eq!(format!("{spec:?}"), r#"Spec({"scheme":"github"})"#);

    let request = Inbound {
        method: "POST",
        url: "https://hooks.example.com/in/swordfish",
        headers: &[("authorization", b"Bearer swordfish")],
        body: b"{}",
    };
    assert_eq!(format!("{request:?}"), "Inbound(POST, 1 headers, 2 bytes)");
}
