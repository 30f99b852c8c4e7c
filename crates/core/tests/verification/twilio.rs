//! Twilio. The vectors are those in the tests of Twilio's own Python library, or computed with it.

use postrider_core::verification::Refusal;

use crate::case::Case;

const URL: &str = "https://mycompany.com/myapp.php?foo=1&bar=2";
const FORM: &str = "CallSid=CA1234567890ABCDE&Digits=1234&From=%2B14158675309&To=%2B18005551212\
                    &Caller=%2B14158675309";
const FORM_SIGNATURE: &str = "RSOYDt4T1cUTdK1PDd93/VVr8B8=";
const JSON: &str = r#"{"property": "value", "boolean": true}"#;
const JSON_HASH: &str = "0a1ff7634d9ab3b95db5c9a2dfe9416e41502b283a80c7cf19632632f96e6620";
const JSON_SIGNATURE: &str = "a9nBmqA0ju/hNViExpshrM61xv4=";
/// Of the URL alone.
const BARE_SIGNATURE: &str = "zYQTYrRWXE7LtzbG4PfP7/bkkGo=";

fn request(url: &str, signature: &str, content_type: &str, body: &str) -> Case {
    Case {
        verify: r#"{"scheme":"twilio"}"#,
        secret: "12345",
        url: url.to_owned(),
        headers: vec![("x-twilio-signature", signature.as_bytes().to_vec())],
        other_headers: vec![("content-type", content_type.as_bytes().to_vec())],
        body: body.as_bytes().to_vec(),
        ..Case::default()
    }
}

fn form(url: &str, signature: &str, body: &str) -> Case {
    request(url, signature, "application/x-www-form-urlencoded; charset=UTF-8", body)
}

fn json(url: &str, signature: &str, body: &str) -> Case {
    request(url, signature, "application/json", body)
}

fn json_url() -> String {
    format!("{URL}&bodySHA256={JSON_HASH}")
}

#[test]
fn forms_are_signed_field_by_field() {
    assert_eq!(form(URL, FORM_SIGNATURE, FORM).verify(), Ok(()));
    form(URL, FORM_SIGNATURE.trim_end_matches('='), FORM).exercise();
    form(URL, BARE_SIGNATURE.trim_end_matches('='), "").exercise();
}

#[test]
fn other_bodies_are_signed_by_their_hash() {
    assert_eq!(json(&json_url(), JSON_SIGNATURE, JSON).verify(), Ok(()));
    json(&json_url(), JSON_SIGNATURE.trim_end_matches('='), JSON).exercise();
}

#[test]
fn fields_are_sorted_and_repeated_values_count_once() {
    let repeated = "IK+Dwps556ElfBT0I3Rgjkr1wJU=";
    let text = "fJwgR+Jg3tLZuPanjXXWDYDGnls=";
    for (signature, body, ok) in [
        (repeated, "Sid=CA123&SidAccount=AC123&Digits=5678&Digits=1234", true),
        (repeated, "Digits=1234&Digits=5678&SidAccount=AC123&Sid=CA123", true),
        (repeated, "Digits=1234&Digits=1234&Digits=5678&SidAccount=AC123&Sid=CA123", true),
        (repeated, "Digits=1234&SidAccount=AC123&Sid=CA123", false),
        (text, "Body=Gr%C3%BC%C3%9Fe+%26+1%2B1%3D2+&Empty=&body=x", true),
        (text, "body=x&Empty&Body=Gr%c3%bc%c3%9fe%20%26%201%2b1=2%20", true),
        (text, "Body=Gr%C3%BC%C3%9Fe+%26+1%2B1%3D2+&body=x", false),
    ] {
        assert_eq!(form(URL, signature, body).verify().is_ok(), ok, "{body}");
    }
}

#[test]
fn the_url_is_tried_with_and_without_its_port() {
    let with = |from: &str, to: &str| URL.replacen(from, to, 1);
    let plain = with("https", "http");
    for (url, signature, ok) in [
        (with(".com", ".com:1234"), FORM_SIGNATURE, true),
        (with(".com", ".com:443"), FORM_SIGNATURE, true),
        (plain.replacen(".com", ".com:1234", 1), "Zmvh+3yNM1Phv2jhDCwEM3q5ebU=", true),
        (URL.to_owned(), "kvajT1Ptam85bY51eRf/AJRuM3w=", true),
        (with(".com", ".com:443"), "kvajT1Ptam85bY51eRf/AJRuM3w=", true),
        (with(".com", ".com:444"), "kvajT1Ptam85bY51eRf/AJRuM3w=", false),
        (plain.clone(), "0ZXoZLH/DfblKGATFgpif+LLRf4=", true),
        (plain, FORM_SIGNATURE, false),
        (with("bar=2", "bar=3"), FORM_SIGNATURE, false),
        (with("mycompany", "othercompany"), FORM_SIGNATURE, false),
        (with("&bar=2", ""), FORM_SIGNATURE, false),
        (String::new(), FORM_SIGNATURE, false),
    ] {
        assert_eq!(form(&url, signature, FORM).verify().is_ok(), ok, "{url}");
    }
}

#[test]
fn shared_keys_sign_with_the_hash_that_the_settings_name() {
    const SETTINGS: &str = "x-twilio-webhooks-signature-settings";
    let sha256 = "033hgUJA9M/hXIZsYjwkerEP/DBm35nEri5FhCYjA5s=";
    for (settings, signature, ok) in [
        (&["key=webhooks_sharedkey_1,algorithm=HMAC_SHA256"][..], sha256, true),
        (&["algorithm = HMAC_SHA256"], sha256, true),
        (&["key=webhooks_sharedkey_1,algorithm=HMAC_SHA1"], FORM_SIGNATURE, true),
        (&["key=webhooks_sharedkey_1"], FORM_SIGNATURE, true),
        (&["algorithm=HMAC_SHA256"], FORM_SIGNATURE, false),
        (&[], sha256, false),
        (&["algorithm=HMAC_MD5"], FORM_SIGNATURE, false),
        (&["algorithm=HMAC_SHA1", "algorithm=HMAC_SHA256"], sha256, false),
        (&["algorithm=HMAC_SHA1", "algorithm=HMAC_SHA256"], FORM_SIGNATURE, false),
    ] {
        let mut case = form(URL, signature, FORM);
        for line in settings {
            case.other_headers.push((SETTINGS, line.as_bytes().to_vec()));
        }
        assert_eq!(case.verify().is_ok(), ok, "{settings:?}");
    }
}

/// The content type and the place of the body are not signed, so each way of passing off a body
/// under a signature that covers none must fail.
#[test]
fn a_body_that_is_not_covered_is_refused() {
    let url = json_url();
    let unhashed = |name: &str| Refusal::RepeatedParameter { name: name.to_owned() };
    for (case, refusal) in [
        (json(URL, BARE_SIGNATURE, JSON), Refusal::UnsignedBody),
        (request(URL, BARE_SIGNATURE, "", FORM), Refusal::UnsignedBody),
        (request(URL, BARE_SIGNATURE, "text/plain", " "), Refusal::UnsignedBody),
        (json(URL, FORM_SIGNATURE, FORM), Refusal::UnsignedBody),
        (form(&url, JSON_SIGNATURE, ""), Refusal::OtherBody),
        (form(&url, JSON_SIGNATURE, "&&"), Refusal::OtherBody),
        (form(&url, JSON_SIGNATURE, FORM), Refusal::NoMatch),
        (json(&url, JSON_SIGNATURE, ""), Refusal::OtherBody),
        (json(&url, JSON_SIGNATURE, "{}"), Refusal::OtherBody),
        (json(&format!("{url}&bodySHA256=00"), JSON_SIGNATURE, JSON), unhashed("bodySHA256")),
        (
            json(&format!("{URL}#&bodySHA256={JSON_HASH}"), JSON_SIGNATURE, JSON),
            Refusal::UnsignedBody,
        ),
    ] {
        assert_eq!(case.verify(), Err(refusal), "{} {:?}", case.url, case.body);
    }
    for hash in ["", "00", &JSON_HASH[1..], &format!("{JSON_HASH}00"), "%FF", "z"] {
        let refusal = json(&format!("{URL}&bodySHA256={hash}"), JSON_SIGNATURE, JSON).verify();
        assert!(matches!(refusal, Err(Refusal::MalformedParameter { .. })), "{hash}");
    }
}

#[test]
fn what_cannot_be_told_apart_is_refused() {
    let mut twice = form(URL, FORM_SIGNATURE, FORM);
    twice.other_headers.push(("content-type", b"application/json".to_vec()));
    let header = "content-type".to_owned();
    assert_eq!(twice.verify(), Err(Refusal::RepeatedHeader { header }));
    let many = "a=1&".repeat(1_001);
    let refusal = form(URL, FORM_SIGNATURE, &many).verify();
    assert!(matches!(refusal, Err(Refusal::MalformedBody { .. })));
    let refusal = form(&format!("{URL}&{many}"), FORM_SIGNATURE, FORM).verify();
    assert_eq!(refusal, Err(Refusal::TooManyParameters));
}
