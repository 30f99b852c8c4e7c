//! The JSON form of a scheme.

use postrider_core::verification::{Scheme, Spec};

#[test]
fn schemes_read_and_write_their_document() {
    for (json, normal) in [
        (r#"{"scheme":"none"}"#, r#"{"scheme":"none"}"#),
        (r#"{"scheme":"standard"}"#, r#"{"scheme":"standard","tolerance":"5m"}"#),
        (
            r#"{"tolerance":"90s","scheme":"standard"}"#,
            r#"{"scheme":"standard","tolerance":"1m30s"}"#,
        ),
        (r#"{"scheme":"stripe","tolerance":"1d"}"#, r#"{"scheme":"stripe","tolerance":"1d"}"#),
        (r#"{"scheme":"stripe"}"#, r#"{"scheme":"stripe","tolerance":"5m"}"#),
        (r#"{"scheme":"github","tolerance":null}"#, r#"{"scheme":"github"}"#),
        (r#"{"scheme":"slack"}"#, r#"{"scheme":"slack","tolerance":"5m"}"#),
        (r#"{"scheme":"shopify"}"#, r#"{"scheme":"shopify"}"#),
        (r#"{"scheme":"twilio"}"#, r#"{"scheme":"twilio"}"#),
        (r#"{"scheme":"linear"}"#, r#"{"scheme":"linear","tolerance":"1m"}"#),
        (r#"{"scheme":"paddle"}"#, r#"{"scheme":"paddle","tolerance":"5s"}"#),
        (r#"{"scheme":"telegram"}"#, r#"{"scheme":"telegram"}"#),
        (
            r#"{"scheme":"hmac","header":"X-Sig"}"#,
            r#"{"scheme":"hmac","header":"X-Sig","algorithm":"sha256","encoding":"hex","prefix":"","signed":"{body}"}"#,
        ),
        (
            r#"{"scheme":"hmac","header":"X-Sig","timestamp":{"header":"X-Time"}}"#,
            r#"{"scheme":"hmac","header":"X-Sig","algorithm":"sha256","encoding":"hex","prefix":"","signed":"{timestamp}.{body}","timestamp":{"header":"X-Time","format":"unix","tolerance":"5m"}}"#,
        ),
        (
            r#"{"scheme":"hmac","header":"X-Sig","algorithm":"sha512","encoding":"base64url","prefix":"v1=","signed":"{method} {url}\n{header:X-Id}:{timestamp}:{body}!","timestamp":{"header":"X-Time","format":"rfc3339","tolerance":"1s"}}"#,
            r#"{"scheme":"hmac","header":"X-Sig","algorithm":"sha512","encoding":"base64url","prefix":"v1=","signed":"{method} {url}\n{header:x-id}:{timestamp}:{body}!","timestamp":{"header":"X-Time","format":"rfc3339","tolerance":"1s"}}"#,
        ),
        (
            r#"{"scheme":"token","header":"X-Token"}"#,
            r#"{"scheme":"token","header":"X-Token","prefix":""}"#,
        ),
        (
            r#"{"scheme":"token","authorization":"bearer"}"#,
            r#"{"scheme":"token","authorization":"bearer"}"#,
        ),
        (
            r#"{"scheme":"token","authorization":"basic"}"#,
            r#"{"scheme":"token","authorization":"basic"}"#,
        ),
        (r#"{"scheme":"token","query":"key"}"#, r#"{"scheme":"token","query":"key"}"#),
    ] {
        let scheme: Scheme = serde_json::from_str(json).expect(json);
        assert_eq!(serde_json::to_string(&scheme).expect(json), normal);
        assert_eq!(serde_json::from_str::<Scheme>(normal).expect(normal), scheme);
        assert!(normal.contains(&format!(r#""scheme":"{}""#, scheme.as_str())), "{normal}");
    }
}

#[test]
fn secrets_are_read_apart_from_the_scheme() {
    for (json, secrets) in [
        (r#"{"scheme":"github"}"#, None),
        (r#"{"scheme":"github","secret":"a"}"#, Some(&["a"][..])),
        (r#"{"scheme":"github","secrets":["a","b"]}"#, Some(&["a", "b"])),
        (r#"{"scheme":"github","secrets":[]}"#, Some(&[])),
        (r#"{"scheme":"github","secret":null,"secrets":["a"]}"#, Some(&["a"])),
    ] {
        let spec: Spec = serde_json::from_str(json).expect(json);
        let secrets =
            secrets.map(|secrets| secrets.iter().map(|text| (*text).to_owned()).collect());
        assert_eq!(spec.build().expect(json), (Scheme::Github, secrets), "{json}");
    }
}

#[test]
fn documents_that_mean_nothing_are_refused_by_field() {
    for (json, field, message) in [
        (r#"{"scheme":"github","secret":"a","secrets":["b"]}"#, "secret", "exclude each other"),
        (
            r#"{"scheme":"github","tolerance":"5m"}"#,
            "tolerance",
            "not an option of the scheme github",
        ),
        (r#"{"scheme":"none","header":"X"}"#, "header", "not an option of the scheme none"),
        (r#"{"scheme":"stripe","algorithm":"sha1"}"#, "algorithm", "not an option"),
        (r#"{"scheme":"stripe","encoding":"hex"}"#, "encoding", "not an option"),
        (r#"{"scheme":"stripe","prefix":""}"#, "prefix", "not an option"),
        (r#"{"scheme":"stripe","signed":"{body}"}"#, "signed", "not an option"),
        (r#"{"scheme":"stripe","timestamp":{"header":"X"}}"#, "timestamp", "not an option"),
        (r#"{"scheme":"stripe","query":"x"}"#, "query", "not an option"),
        (r#"{"scheme":"stripe","authorization":"basic"}"#, "authorization", "not an option"),
        (r#"{"scheme":"hmac","header":"X","tolerance":"5m"}"#, "tolerance", "not an option"),
        (r#"{"scheme":"token","query":"x","prefix":"y"}"#, "prefix", "not an option"),
        (r#"{"scheme":"stripe","tolerance":"999ms"}"#, "tolerance", "from 1s to 1d"),
        (r#"{"scheme":"paddle","tolerance":"25h"}"#, "tolerance", "from 1s to 1d"),
        (r#"{"scheme":"hmac"}"#, "header", "is missing"),
        (r#"{"scheme":"hmac","header":""}"#, "header", "not a header name"),
        (r#"{"scheme":"hmac","header":"X Y"}"#, "header", "not a header name"),
        (r#"{"scheme":"hmac","header":"X","prefix":"a,"}"#, "prefix", "comma"),
        (r#"{"scheme":"hmac","header":"X","prefix":" a"}"#, "prefix", "no space"),
        (r#"{"scheme":"hmac","header":"X","prefix":"é"}"#, "prefix", "printable"),
        (
            r#"{"scheme":"hmac","header":"X","prefix":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}"#,
            "prefix",
            "at most 32",
        ),
        (r#"{"scheme":"hmac","header":"X","signed":""}"#, "signed", "{body} in it exactly once"),
        (r#"{"scheme":"hmac","header":"X","signed":"{body}{body}"}"#, "signed", "exactly once"),
        (r#"{"scheme":"hmac","header":"X","signed":"{body"}"#, "signed", "other half"),
        (r#"{"scheme":"hmac","header":"X","signed":"body}"}"#, "signed", "other half"),
        (r#"{"scheme":"hmac","header":"X","signed":"{id}.{body}"}"#, "signed", "not known"),
        (r#"{"scheme":"hmac","header":"X","signed":"{header:}{body}"}"#, "signed", "not known"),
        (r#"{"scheme":"hmac","header":"X","signed":"{{body}}"}"#, "signed", "not known"),
        (
            r#"{"scheme":"hmac","header":"X","signed":"{timestamp}{body}"}"#,
            "timestamp",
            "is missing",
        ),
        (
            r#"{"scheme":"hmac","header":"X","signed":"{body}","timestamp":{"header":"Y"}}"#,
            "signed",
            "must have {timestamp}",
        ),
        (
            r#"{"scheme":"hmac","header":"X","timestamp":{"header":"é"}}"#,
            "timestamp.header",
            "not a header name",
        ),
        (
            r#"{"scheme":"hmac","header":"X","timestamp":{"header":"Y","tolerance":"0s"}}"#,
            "timestamp.tolerance",
            "from 1s to 1d",
        ),
        (r#"{"scheme":"token"}"#, "header", "say where the token stands"),
        (r#"{"scheme":"token","header":"X","query":"y"}"#, "header", "exclude each other"),
        (
            r#"{"scheme":"token","query":"y","authorization":"basic"}"#,
            "header",
            "exclude each other",
        ),
        (r#"{"scheme":"token","header":"X:"}"#, "header", "not a header name"),
        (r#"{"scheme":"token","query":""}"#, "query", "1 to 64 printable"),
        (r#"{"scheme":"token","query":"a\nb"}"#, "query", "1 to 64 printable"),
    ] {
        let spec: Spec = serde_json::from_str(json).expect(json);
        let invalid = spec.build().expect_err(json);
        assert_eq!(invalid.field, field, "{json}");
        assert!(invalid.message.contains(message), "{json}: {invalid}");
        // The same where the scheme stands alone.
        let error = serde_json::from_str::<Scheme>(json).expect_err(json).to_string();
        assert!(error.contains(message), "{json}: {error}");
    }
    let long =
        format!(r#"{{"scheme":"hmac","header":"X","signed":"{}{{body}}"}}"#, "x".repeat(251));
    let error = serde_json::from_str::<Scheme>(&long).expect_err("too long").to_string();
    assert!(error.contains("at most 256 bytes"), "{error}");
}

#[test]
fn documents_of_another_form_are_refused() {
    for (json, reason) in [
        (r#"{"scheme":"github","secret":"a"}"#, "kept apart"),
        (r#"{"scheme":"gitlab"}"#, "unknown variant `gitlab`"),
        (r#"{"scheme":"Github"}"#, "unknown variant `Github`"),
        (r#"{"scheme":"github","extra":1}"#, "unknown field `extra`"),
        (r"{}", "missing field `scheme`"),
        (r#""github""#, "invalid type: string"),
        (r#"{"scheme":"github","secret":5}"#, "invalid type: integer `5`"),
        (r#"{"scheme":"stripe","tolerance":300}"#, "duration as text"),
        (r#"{"scheme":"stripe","tolerance":"5"}"#, "without a unit"),
        (r#"{"scheme":"hmac","header":"X","algorithm":"md5"}"#, "unknown variant `md5`"),
        (r#"{"scheme":"hmac","header":"X","encoding":"base32"}"#, "unknown variant `base32`"),
        (r#"{"scheme":"hmac","header":"X","timestamp":{}}"#, "missing field `header`"),
        (
            r#"{"scheme":"hmac","header":"X","timestamp":{"header":"Y","format":"iso"}}"#,
            "unknown variant `iso`",
        ),
        (
            r#"{"scheme":"hmac","header":"X","timestamp":{"header":"Y","zone":"utc"}}"#,
            "unknown field `zone`",
        ),
        (r#"{"scheme":"token","authorization":"digest"}"#, "unknown variant `digest`"),
    ] {
        let error = serde_json::from_str::<Scheme>(json).expect_err(json).to_string();
        assert!(error.contains(reason), "{json}: {error}");
    }
}
