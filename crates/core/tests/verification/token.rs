//! The schemes `token`, `telegram` and `none`.

use postrider_core::verification::Refusal;

use crate::case::{Case, verifier};

fn token(verify: &'static str, header: &'static str, value: &str) -> Case {
    Case {
        verify,
        secret: "s3cr3t-T0ken",
        headers: vec![(header, value.as_bytes().to_vec())],
        body: b"anything".to_vec(),
        body_is_signed: false,
        ..Case::default()
    }
}

#[test]
fn a_token_stands_in_a_header() {
    token(r#"{"scheme":"token","header":"X-Gitlab-Token"}"#, "x-gitlab-token", "s3cr3t-T0ken")
        .exercise();
    let prefixed = r#"{"scheme":"token","header":"X-Auth","prefix":"Key "}"#;
    token(prefixed, "x-auth", "Key s3cr3t-T0ken").exercise();
    let refusal = token(prefixed, "x-auth", "s3cr3t-T0ken").verify();
    assert!(matches!(refusal, Err(Refusal::MalformedHeader { .. })));
}

#[test]
fn telegram_has_a_header_of_its_own() {
    let header = "x-telegram-bot-api-secret-token";
    token(r#"{"scheme":"telegram"}"#, header, "s3cr3t-T0ken").exercise();
}

#[test]
fn a_token_stands_in_bearer_credentials() {
    let bearer =
        |value| token(r#"{"scheme":"token","authorization":"bearer"}"#, "authorization", value);
    bearer("Bearer s3cr3t-T0ken").exercise();
    for (value, ok) in [
        ("bearer s3cr3t-T0ken", true),
        ("BEARER   s3cr3t-T0ken", true),
        ("Bearer s3cr3t-T0ken ", false),
        ("Bearers3cr3t-T0ken", false),
        ("Basic s3cr3t-T0ken", false),
        ("s3cr3t-T0ken", false),
        ("Bearer", false),
        ("Bearer ", false),
    ] {
        assert_eq!(bearer(value).verify().is_ok(), ok, "{value}");
    }
}

/// The example of RFC 7617, and the secret with a colon in the password.
#[test]
fn a_token_stands_in_basic_credentials() {
    let basic = |value| Case {
        secret: "Aladdin:open sesame",
        other_secret: "Aladdin:",
        ..token(r#"{"scheme":"token","authorization":"basic"}"#, "authorization", value)
    };
    assert_eq!(basic("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==").verify(), Ok(()));
    basic("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ").exercise();
    let colons = Case { secret: "u:p:w", ..basic("Basic dTpwOnc=") };
    assert_eq!(colons.verify(), Ok(()));
    let refusal = basic("Basic Aladdin:open sesame").verify();
    assert!(matches!(refusal, Err(Refusal::MalformedHeader { .. })));
}

#[test]
fn a_token_stands_in_the_query() {
    let name = || "to ken".to_owned();
    for (query, secret, wanted) in [
        ("?to+ken=s3cr3t%2DT0ken", "s3cr3t-T0ken", Ok(())),
        ("?a=b&to%20ken=s3cr3t-T0ken&c", "s3cr3t-T0ken", Ok(())),
        ("?to+ken=s%2B%20%26%C3%A9", "s+ &é", Ok(())),
        ("?to+ken=s3cr3t-T0ke", "s3cr3t-T0ken", Err(Refusal::NoMatch)),
        ("?to+ken=", "s3cr3t-T0ken", Err(Refusal::NoMatch)),
        ("?to+ken=%FF", "s3cr3t-T0ken", Err(Refusal::NoMatch)),
        ("?token=s3cr3t-T0ken", "s3cr3t-T0ken", Err(Refusal::MissingParameter { name: name() })),
        ("", "s3cr3t-T0ken", Err(Refusal::MissingParameter { name: name() })),
        ("#?to+ken=s3cr3t-T0ken", "s3cr3t-T0ken", Err(Refusal::MissingParameter { name: name() })),
        (
            "?to+ken=s3cr3t-T0ken&to+ken=s3cr3t-T0ken",
            "s3cr3t-T0ken",
            Err(Refusal::RepeatedParameter { name: name() }),
        ),
    ] {
        let case = Case {
            secret,
            url: format!("https://hooks.example.com/in/abc{query}"),
            headers: Vec::new(),
            ..token(r#"{"scheme":"token","query":"to ken"}"#, "x", "")
        };
        assert_eq!(case.verify(), wanted, "{query}");
    }
}

#[test]
fn without_a_scheme_everything_is_believed() {
    let case = Case { verify: r#"{"scheme":"none"}"#, ..Case::default() };
    assert_eq!(case.verify_with(&[], case.signed_at), Ok(()));
    assert_eq!(format!("{:?}", verifier(case.verify, &[])), "Verifier(none, 0 secrets)");
}
