//! Standard Webhooks.

use std::time::Duration;

use postrider_core::Timestamp;
use postrider_core::verification::{MAX_SIGNATURES, Refusal};

use crate::case::Case;

/// The vectors published with Standard Webhooks.
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const SIGNATURE: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
const PUBLIC: &str = "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4=";
const PUBLIC_SIGNATURE: &str =
    "v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg==";

/// The key with the bytes 0 to 31; its signature was computed with Python's `hmac`.
const ROTATED: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const ROTATED_SIGNATURE: &str = "v1,O4Gjv1HqPqsMrjmczoggs/sWA8gZD0VyHG+fLh4+ktI=";

/// The public key of RFC 8032 section 7.1, test 1.
const OTHER_PUBLIC: &str = "whpk_11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=";

fn case(secret: &'static str, other_secret: &'static str, signature: &str) -> Case {
    Case {
        verify: r#"{"scheme":"standard"}"#,
        secret,
        other_secret,
        headers: vec![
            ("webhook-id", b"msg_p5jXN8AQM9LWM0D4loKWxJek".to_vec()),
            ("webhook-timestamp", b"1614265330".to_vec()),
            ("webhook-signature", signature.as_bytes().to_vec()),
        ],
        body: br#"{"test": 2432232314}"#.to_vec(),
        signed_at: Timestamp::from_millis(1_614_265_330_000),
        tolerance: Some(Duration::from_mins(5)),
        ..Case::default()
    }
}

#[test]
fn symmetric_signatures() {
    case(SECRET, ROTATED, SIGNATURE).exercise();
}

#[test]
fn asymmetric_signatures() {
    assert_eq!(case(PUBLIC, OTHER_PUBLIC, PUBLIC_SIGNATURE).verify(), Ok(()));
    // Without its padding, which says nothing, no byte can be spared.
    case(PUBLIC, OTHER_PUBLIC, PUBLIC_SIGNATURE.trim_end_matches('=')).exercise();
}

/// The signature was computed with Python's `hmac`.
#[test]
fn an_empty_body_can_be_signed() {
    let empty =
        case(SECRET, ROTATED, "v1,v48jdbgvh29KJz2Qc+ghw8G6vG3nAKnujWBg8oM/62A=").with_body(b"");
    empty.exercise();
}

#[test]
fn the_names_of_svix_are_taken_where_the_others_are_not_there() {
    let mut svix = case(SECRET, ROTATED, SIGNATURE);
    for ((name, _), svix) in
        svix.headers.iter_mut().zip(["svix-id", "svix-timestamp", "svix-signature"])
    {
        *name = svix;
    }
    svix.exercise();
    // Both sets: the standard's own names decide.
    let mut both = svix.clone();
    both.headers.extend(case(SECRET, ROTATED, ROTATED_SIGNATURE).headers);
    assert_eq!(both.verify(), Err(Refusal::NoMatch));
    assert_eq!(both.verify_with(&[ROTATED], both.signed_at), Ok(()));
}

#[test]
fn any_signature_of_any_live_secret_will_do() {
    let all = &[SECRET, ROTATED, PUBLIC][..];
    for (header, secrets, wanted) in [
        (format!("{ROTATED_SIGNATURE} {SIGNATURE}"), &[SECRET][..], Ok(())),
        (format!("{SIGNATURE} {ROTATED_SIGNATURE}"), &[SECRET], Ok(())),
        (format!("  {SIGNATURE}  "), &[SECRET], Ok(())),
        (format!("{SIGNATURE} {PUBLIC_SIGNATURE}"), &[SECRET], Ok(())),
        (format!("{SIGNATURE} {PUBLIC_SIGNATURE}"), &[PUBLIC], Ok(())),
        (format!("{SIGNATURE} {PUBLIC_SIGNATURE}"), &[ROTATED, PUBLIC], Ok(())),
        (format!("v2,x nonsense v1,x v1a,x {SIGNATURE}"), &[SECRET], Ok(())),
        (ROTATED_SIGNATURE.to_owned(), all, Ok(())),
        (PUBLIC_SIGNATURE.to_owned(), all, Ok(())),
        // A version is believed only for the kind of key it belongs to.
        (SIGNATURE.to_owned(), &[PUBLIC], Err(Refusal::NoMatch)),
        (PUBLIC_SIGNATURE.to_owned(), &[SECRET], Err(Refusal::NoMatch)),
        (SIGNATURE.replacen("v1", "v1a", 1) + " v1,x", all, Err(Refusal::NoMatch)),
        (PUBLIC_SIGNATURE.replacen("v1a", "v1", 1), all, Err(Refusal::NoMatch)),
        (format!("{SIGNATURE},"), &[SECRET], Err(Refusal::NoMatch)),
    ] {
        let case = case(SECRET, ROTATED, &header);
        assert_eq!(case.verify_with(secrets, case.signed_at), wanted, "{header}");
    }
}

#[test]
fn headers_without_a_signature_of_a_known_version_are_malformed() {
    for header in ["v1", "v2,abc", "V1,abc", ",", SIGNATURE.trim_start_matches("v1,"), "v1a,AAAA"] {
        let refusal = case(SECRET, ROTATED, header).verify().expect_err(header);
        assert!(matches!(refusal, Refusal::MalformedHeader { .. }), "{header}: {refusal}");
    }
}

#[test]
fn the_number_of_signatures_is_bounded() {
    let many = |count: usize| {
        let header = "v9,x ".repeat(count - 1) + SIGNATURE;
        case(SECRET, ROTATED, &header).verify()
    };
    assert_eq!(many(MAX_SIGNATURES), Ok(()));
    let header = "webhook-signature".to_owned();
    assert_eq!(many(MAX_SIGNATURES + 1), Err(Refusal::TooManySignatures { header }));
}

#[test]
fn times_with_more_than_one_spelling_are_refused() {
    for time in ["01614265330", "+1614265330", "1614265330.0", "1614265330 ", "1614265330000000"] {
        let case = case(SECRET, ROTATED, SIGNATURE);
        let refusal = case.with_header("webhook-timestamp", Some(time.as_bytes())).verify();
        assert!(matches!(refusal, Err(Refusal::MalformedHeader { .. })), "{time}");
    }
}

#[test]
fn the_window_can_be_set() {
    let mut case = case(SECRET, ROTATED, SIGNATURE);
    case.verify = r#"{"scheme":"standard","tolerance":"1h"}"#;
    case.tolerance = Some(Duration::from_hours(1));
    case.exercise();
}
