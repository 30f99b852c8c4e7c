//! What holds for every request: no input panics, chance is never believed, and what the gateway
//! signs itself is.

use postrider_core::Timestamp;
use postrider_core::signing::{self, Secret, Signer};
use postrider_core::verification::{Inbound, Scheme, Spec, Template, Verifier};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::case::verifier;

const SCHEMES: [(&str, &str); 15] = [
    (r#"{"scheme":"standard"}"#, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
    (r#"{"scheme":"standard"}"#, "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4="),
    (r#"{"scheme":"stripe"}"#, "swordfish"),
    (r#"{"scheme":"github"}"#, "swordfish"),
    (r#"{"scheme":"slack"}"#, "swordfish"),
    (r#"{"scheme":"shopify"}"#, "swordfish"),
    (r#"{"scheme":"twilio"}"#, "swordfish"),
    (r#"{"scheme":"linear"}"#, "swordfish"),
    (r#"{"scheme":"paddle"}"#, "swordfish"),
    (r#"{"scheme":"telegram"}"#, "swordfish"),
    (
        r#"{"scheme":"hmac","header":"x","signed":"{url}{method}{header:y}{timestamp}{body}","timestamp":{"header":"t","format":"rfc3339"}}"#,
        "swordfish",
    ),
    (r#"{"scheme":"token","header":"x"}"#, "swordfish"),
    (r#"{"scheme":"token","authorization":"bearer"}"#, "swordfish"),
    (r#"{"scheme":"token","authorization":"basic"}"#, "sword:fish"),
    (r#"{"scheme":"token","query":"x"}"#, "swordfish"),
];

const NAMES: [&str; 19] = [
    "authorization",
    "content-type",
    "linear-signature",
    "paddle-signature",
    "stripe-signature",
    "svix-signature",
    "t",
    "webhook-id",
    "webhook-signature",
    "webhook-timestamp",
    "x",
    "x-hub-signature-256",
    "x-shopify-hmac-sha256",
    "x-slack-request-timestamp",
    "x-slack-signature",
    "x-telegram-bot-api-secret-token",
    "x-twilio-signature",
    "x-twilio-webhooks-signature-settings",
    "y",
];

/// Values that get past the first look of one scheme or another, and any others.
fn any_value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        vec(any::<u8>(), 0..100),
        "[0-9]{0,20}".prop_map(String::into_bytes),
        "(sha256=|v0=)?[0-9a-f]{64}".prop_map(String::into_bytes),
        "[A-Za-z0-9+/]{27}=".prop_map(String::into_bytes),
        "[A-Za-z0-9+/]{42}8=".prop_map(String::into_bytes),
        "((v1|v1a|v2),([A-Za-z0-9+/]{43}=|[A-Za-z0-9+/]{85}Q==) ?){0,20}"
            .prop_map(String::into_bytes),
        "((t|ts|v1|h1)=([0-9]{0,12}|[0-9a-f]{64})[,;]?){0,20}".prop_map(String::into_bytes),
        "(Bearer|basic) [A-Za-z0-9+/]{0,20}={0,2}".prop_map(String::into_bytes),
        "(key=x,)?algorithm=HMAC_SHA(1|256)?".prop_map(String::into_bytes),
        "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z".prop_map(String::into_bytes),
        Just(b"application/x-www-form-urlencoded".to_vec()),
    ]
}

fn any_url() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        r"https?://[a-z:@\[\]\.]{0,20}(:[0-9]{0,6})?/?\?(x=[a-z%+]{0,9}&?){0,3}(bodySHA256=[0-9a-f]{64})?(#.{0,5})?",
    ]
}

fn any_body() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        vec(any::<u8>(), 0..200),
        "([a-z%+]{0,5}=[a-zA-Z0-9%+]{0,9}&?){0,9}".prop_map(String::into_bytes),
        r#"\{"webhookTimestamp":-?[0-9]{0,25}\}"#.prop_map(String::into_bytes),
        r#"\{"type":"url_verification","challenge":"[a-z]{0,9}"\}"#.prop_map(String::into_bytes),
    ]
}

proptest! {
    #[test]
    fn no_request_panics_and_none_is_believed_by_chance(
        headers in vec((proptest::sample::select(&NAMES[..]), any_value()), 0..24),
        url in any_url(),
        method in any::<String>(),
        body in any_body(),
        now in any::<i64>(),
    ) {
        let headers: Vec<(&str, &[u8])> =
            headers.iter().map(|(name, value)| (*name, value.as_slice())).collect();
        let request = Inbound { method: &method, url: &url, headers: &headers, body: &body };
        for (verify, secret) in SCHEMES {
            let verifier = verifier(verify, &[secret]);
            let refusal = verifier.verify(&request, Timestamp::from_millis(now));
            let said = refusal.expect_err(verify).to_string();
            prop_assert!(!said.is_empty() && !said.contains("fish"), "{}", said);
            let answer = verifier.handshake(&request);
            prop_assert!(answer.is_none() || verify.contains("slack"));
        }
    }

    #[test]
    fn what_the_gateway_signs_is_believed(
        random in any::<[u8; 32]>(),
        id in "[!-~]{1,60}",
        seconds in 0_i64..253_402_207_200,
        body in vec(any::<u8>(), 0..200),
    ) {
        let now = Timestamp::from_millis(seconds * 1_000);
        let timestamp = seconds.to_string();
        let standard: Scheme = serde_json::from_str(r#"{"scheme":"standard"}"#).expect("valid");
        for scheme in [signing::Scheme::Standard, signing::Scheme::Ed25519] {
            let secret = Secret::generate(&scheme, random);
            let key = secret.public_key().unwrap_or_else(|| secret.text().to_owned());
            let signer = Signer::new(&scheme, &[secret]);
            let signature = signer.sign(&id, seconds, &body).expect("signed");
            let headers: [(&str, &[u8]); 3] = [
                ("webhook-id", id.as_bytes()),
                ("webhook-timestamp", timestamp.as_bytes()),
                (signature.name, signature.value.as_bytes()),
            ];
            let request =
                Inbound { method: "POST", url: "https://a.example/", headers: &headers, body: &body };
            let verifier = Verifier::new(&standard, &[key]).expect("its own key");
            prop_assert_eq!(verifier.verify(&request, now), Ok(()));
        }

        let scheme = signing::Scheme::sha256_hex("X-Hub-Signature-256").expect("valid");
        let secret = Secret::generate(&scheme, random);
        let text = secret.text().to_owned();
        let signer = Signer::new(&scheme, &[secret]);
        let signature = signer.sign(&id, seconds, &body).expect("signed");
        let headers: [(&str, &[u8]); 1] = [(signature.name, signature.value.as_bytes())];
        let request =
            Inbound { method: "POST", url: "https://a.example/", headers: &headers, body: &body };
        prop_assert_eq!(verifier(r#"{"scheme":"github"}"#, &[&text]).verify(&request, now), Ok(()));
    }

    #[test]
    fn no_configuration_panics(
        name in prop_oneof![any::<String>(), "none|standard|stripe|telegram|hmac|token"],
        text in prop_oneof![any::<String>(), "(whsec_|whpk_)[A-Za-z0-9+/]{0,50}={0,2}"],
        signed in prop_oneof![any::<String>(), r"(\{(body|timestamp|url|x|header:[a-z ]?)\}?|[a-z]){0,6}"],
    ) {
        let json = serde_json::json!({"scheme": name, "secret": text, "header": text, "signed": signed});
        for drop in [&[][..], &["header"], &["signed"], &["header", "signed"]] {
            let mut json = json.clone();
            for field in drop {
                json.as_object_mut().expect("an object").remove(*field);
            }
            let Ok(spec) = serde_json::from_value::<Spec>(json) else { continue };
            if let Ok((scheme, secrets)) = spec.build() {
                let _ = Verifier::new(&scheme, &secrets.expect("one secret"));
            }
        }
        if let Ok(template) = Template::parse(&signed) {
            let written = template.to_string();
            prop_assert_eq!(&written, &signed);
            prop_assert_eq!(Template::parse(&written), Ok(template));
        }
    }
}
