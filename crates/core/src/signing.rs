//! Signing of outbound webhooks: the schemes, the secrets, and the signer an endpoint keeps.

use std::fmt;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use ed25519_dalek::SigningKey;
use ed25519_dalek::ed25519::signature::MultipartSigner as _;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

/// The header that `sha256_hex` writes where no other is named.
pub const DEFAULT_HEADER: &str = "X-Signature";

/// How many secrets of an endpoint sign at once; it bounds the length of the header.
pub const MAX_LIVE_SECRETS: usize = 8;

/// The longest text taken as a secret of the scheme `sha256_hex`.
pub const MAX_TEXT_SECRET_BYTES: usize = 256;

/// The longest name a signature header may have.
pub const MAX_HEADER_NAME_BYTES: usize = 64;

const SIGNATURE_HEADER: &str = "webhook-signature";
const SYMMETRIC_PREFIX: &str = "whsec_";
const PRIVATE_PREFIX: &str = "whsk_";
const PUBLIC_PREFIX: &str = "whpk_";

/// The key sizes that Standard Webhooks allows.
const SYMMETRIC_KEY_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// How an endpoint's requests are signed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Document", into = "Document")]
pub enum Scheme {
    /// Standard Webhooks, symmetric: `webhook-signature: v1,<base64>`.
    #[default]
    Standard,
    /// Standard Webhooks, asymmetric: `webhook-signature: v1a,<base64>`.
    Ed25519,
    /// HMAC-SHA256 of the body alone, `<header>: sha256=<hex>`. See [`Scheme::sha256_hex`].
    Sha256Hex { header: String },
    /// No signature.
    None,
}

impl Scheme {
    /// The scheme `sha256_hex` with a header name that has been checked.
    pub fn sha256_hex(header: &str) -> Result<Self, Error> {
        check_header(header)?;
        Ok(Self::Sha256Hex { header: header.to_owned() })
    }
}

/// Why a scheme or a secret is refused. No message repeats any part of a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("a signing header can be named only with the scheme sha256_hex; leave `header` out")]
    HeaderNotUsed,
    #[error(
        "the signing header is not a header name; use 1 to {MAX_HEADER_NAME_BYTES} letters, \
         digits and hyphens, like {DEFAULT_HEADER}"
    )]
    HeaderMalformed,
    #[error(
        "the header {0} is sent by the gateway itself and cannot carry the signature; name \
         another, like {DEFAULT_HEADER}"
    )]
    HeaderReserved(String),
    #[error("this secret must begin with {prefix} followed by base64")]
    SecretPrefix { prefix: &'static str },
    #[error("what follows {prefix} in the secret is not base64")]
    SecretEncoding { prefix: &'static str },
    #[error(
        "the secret holds a key of {bytes} bytes; it must be {} to {} bytes before base64",
        SYMMETRIC_KEY_BYTES.start(),
        SYMMETRIC_KEY_BYTES.end()
    )]
    SecretLength { bytes: usize },
    #[error(
        "the ed25519 secret holds {bytes} bytes; it must be a seed of 32 bytes, or a seed and \
         its public key of 64"
    )]
    KeypairLength { bytes: usize },
    #[error("the second half of the ed25519 secret is not the public key of its first half")]
    KeypairMismatch,
    #[error("a secret must not be empty")]
    SecretEmpty,
    #[error("the secret is {bytes} bytes long; at most {MAX_TEXT_SECRET_BYTES} are allowed")]
    SecretTooLong { bytes: usize },
}

/// One secret of an endpoint, checked against the scheme it is for.
///
/// An endpoint of the scheme `none` has a secret like that of `standard`, so that signing can be
/// turned on without a new one.
#[derive(Clone)]
pub struct Secret {
    text: String,
    key: Key,
}

#[derive(Clone)]
enum Key {
    Symmetric(Vec<u8>),
    Ed25519(SigningKey),
    /// The text itself, so that a receiver can paste what it was shown, whatever it looks like.
    Text,
}

impl Secret {
    pub fn parse(text: &str, scheme: &Scheme) -> Result<Self, Error> {
        let key = match scheme {
            Scheme::Standard | Scheme::None => parse_symmetric(text)?,
            Scheme::Ed25519 => parse_ed25519(text)?,
            Scheme::Sha256Hex { .. } => match text.len() {
                0 => return Err(Error::SecretEmpty),
                1..=MAX_TEXT_SECRET_BYTES => Key::Text,
                bytes => return Err(Error::SecretTooLong { bytes }),
            },
        };
        Ok(Self { text: text.to_owned(), key })
    }

    /// Makes a secret from 32 bytes, which must come from a cryptographic source.
    pub fn generate(scheme: &Scheme, random: [u8; 32]) -> Self {
        match scheme {
            Scheme::Standard | Scheme::None => Self {
                text: encode(SYMMETRIC_PREFIX, &random),
                key: Key::Symmetric(random.to_vec()),
            },
            Scheme::Ed25519 => {
                // Written as a keypair, the only form that every Standard Webhooks library takes.
                let key = SigningKey::from_bytes(&random);
                let text = encode(PRIVATE_PREFIX, &key.to_keypair_bytes());
                Self { text, key: Key::Ed25519(key) }
            }
            Scheme::Sha256Hex { .. } => {
                let mut text = String::with_capacity(2 * random.len());
                push_hex(&mut text, &random);
                Self { text, key: Key::Text }
            }
        }
    }

    /// The secret as it was given, or as it is shown to the user.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// What a receiver verifies `v1a` signatures with, as `whpk_<base64>`.
    pub fn public_key(&self) -> Option<String> {
        match &self.key {
            Key::Ed25519(key) => Some(encode(PUBLIC_PREFIX, key.verifying_key().as_bytes())),
            Key::Symmetric(_) | Key::Text => None,
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(hidden)")
    }
}

/// Signs the requests of one endpoint. Made once; its keys are prepared.
#[derive(Clone)]
pub struct Signer {
    keys: Keys,
}

#[derive(Clone)]
enum Keys {
    Standard(Vec<Hmac<Sha256>>),
    Ed25519(Vec<SigningKey>),
    Sha256Hex { header: String, key: Hmac<Sha256> },
    None,
}

/// The one header a signature adds to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature<'a> {
    /// In lower case.
    pub name: &'a str,
    pub value: String,
}

impl Signer {
    /// Takes the live secrets of the endpoint, the newest first.
    ///
    /// The newest [`MAX_LIVE_SECRETS`] sign; of the scheme `sha256_hex` only the newest, because
    /// its header has room for one signature.
    ///
    /// # Panics
    ///
    /// If a scheme that signs is given no secret, or one made for another scheme: a request must
    /// never leave unsigned because of a mix-up.
    pub fn new(scheme: &Scheme, secrets: &[Secret]) -> Self {
        assert!(
            !secrets.is_empty() || *scheme == Scheme::None,
            "an endpoint that signs has at least one secret"
        );
        let live = secrets.iter().take(MAX_LIVE_SECRETS);
        let keys = match scheme {
            Scheme::Standard => Keys::Standard(
                live.map(|secret| match &secret.key {
                    Key::Symmetric(key) => keyed(key),
                    Key::Ed25519(_) | Key::Text => panic!("the secret is not one of standard"),
                })
                .collect(),
            ),
            Scheme::Ed25519 => Keys::Ed25519(
                live.map(|secret| match &secret.key {
                    Key::Ed25519(key) => key.clone(),
                    Key::Symmetric(_) | Key::Text => panic!("the secret is not one of ed25519"),
                })
                .collect(),
            ),
            Scheme::Sha256Hex { header } => Keys::Sha256Hex {
                header: header.to_ascii_lowercase(),
                key: match &secrets[0].key {
                    Key::Text => keyed(secrets[0].text.as_bytes()),
                    Key::Symmetric(_) | Key::Ed25519(_) => {
                        panic!("the secret is not one of sha256_hex")
                    }
                },
            },
            Scheme::None => Keys::None,
        };
        Self { keys }
    }

    /// The header to add to a request, or `None` where the endpoint wants no signature.
    pub fn sign(
        &self,
        webhook_id: &str,
        timestamp_seconds: i64,
        body: &[u8],
    ) -> Option<Signature<'_>> {
        let preamble = || format!("{webhook_id}.{timestamp_seconds}.");
        match &self.keys {
            Keys::Standard(keys) => {
                let preamble = preamble();
                let value = join_versioned("v1,", keys, |key| {
                    key.clone().chain_update(&preamble).chain_update(body).finalize().into_bytes()
                });
                Some(Signature { name: SIGNATURE_HEADER, value })
            }
            Keys::Ed25519(keys) => {
                let preamble = preamble();
                let value = join_versioned("v1a,", keys, |key| {
                    key.multipart_sign(&[preamble.as_bytes(), body]).to_bytes()
                });
                Some(Signature { name: SIGNATURE_HEADER, value })
            }
            Keys::Sha256Hex { header, key } => {
                let digest = key.clone().chain_update(body).finalize().into_bytes();
                let mut value = String::with_capacity("sha256=".len() + 2 * digest.len());
                value.push_str("sha256=");
                push_hex(&mut value, &digest);
                Some(Signature { name: header, value })
            }
            Keys::None => None,
        }
    }
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.keys {
            Keys::Standard(keys) => write!(f, "Signer(standard, {} secrets)", keys.len()),
            Keys::Ed25519(keys) => write!(f, "Signer(ed25519, {} secrets)", keys.len()),
            Keys::Sha256Hex { header, .. } => write!(f, "Signer(sha256_hex in {header})"),
            Keys::None => f.write_str("Signer(none)"),
        }
    }
}

/// A scheme as it stands in the API.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    scheme: Name,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    header: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Name {
    Standard,
    Ed25519,
    Sha256Hex,
    None,
}

impl TryFrom<Document> for Scheme {
    type Error = Error;

    fn try_from(document: Document) -> Result<Self, Error> {
        match (document.scheme, document.header) {
            (Name::Sha256Hex, header) => {
                Self::sha256_hex(header.as_deref().unwrap_or(DEFAULT_HEADER))
            }
            (Name::Standard | Name::Ed25519 | Name::None, Some(_)) => Err(Error::HeaderNotUsed),
            (Name::Standard, None) => Ok(Self::Standard),
            (Name::Ed25519, None) => Ok(Self::Ed25519),
            (Name::None, None) => Ok(Self::None),
        }
    }
}

impl From<Scheme> for Document {
    fn from(scheme: Scheme) -> Self {
        let (scheme, header) = match scheme {
            Scheme::Standard => (Name::Standard, None),
            Scheme::Ed25519 => (Name::Ed25519, None),
            Scheme::Sha256Hex { header } => (Name::Sha256Hex, Some(header)),
            Scheme::None => (Name::None, None),
        };
        Self { scheme, header }
    }
}

fn check_header(name: &str) -> Result<(), Error> {
    if name.is_empty() || name.len() > MAX_HEADER_NAME_BYTES || !name.bytes().all(is_token) {
        return Err(Error::HeaderMalformed);
    }
    if is_reserved(name) { Err(Error::HeaderReserved(name.to_owned())) } else { Ok(()) }
}

/// A character of a token, RFC 9110 section 5.6.2.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Headers that the gateway writes itself, or that decide how a message is framed: a second value
/// would make the request ambiguous.
fn is_reserved(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.starts_with("webhook-")
        || name.starts_with("postrider-")
        || matches!(
            name.as_str(),
            "accept-encoding"
                | "connection"
                | "content-encoding"
                | "content-length"
                | "content-type"
                | "expect"
                | "host"
                | "keep-alive"
                | "proxy-connection"
                | "te"
                | "trailer"
                | "transfer-encoding"
                | "upgrade"
                | "user-agent"
        )
}

fn parse_symmetric(text: &str) -> Result<Key, Error> {
    let key = decode(SYMMETRIC_PREFIX, text)?;
    if SYMMETRIC_KEY_BYTES.contains(&key.len()) {
        Ok(Key::Symmetric(key))
    } else {
        Err(Error::SecretLength { bytes: key.len() })
    }
}

fn parse_ed25519(text: &str) -> Result<Key, Error> {
    let bytes = decode(PRIVATE_PREFIX, text)?;
    if let Ok(seed) = <&[u8; 32]>::try_from(bytes.as_slice()) {
        Ok(Key::Ed25519(SigningKey::from_bytes(seed)))
    } else if let Ok(pair) = <&[u8; 64]>::try_from(bytes.as_slice()) {
        SigningKey::from_keypair_bytes(pair).map(Key::Ed25519).map_err(|_| Error::KeypairMismatch)
    } else {
        Err(Error::KeypairLength { bytes: bytes.len() })
    }
}

fn decode(prefix: &'static str, text: &str) -> Result<Vec<u8>, Error> {
    /// Other tools hand out keys with and without padding, and both mean the same bytes.
    const LENIENT: GeneralPurpose = GeneralPurpose::new(
        &alphabet::STANDARD,
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
    );
    let encoded = text.strip_prefix(prefix).ok_or(Error::SecretPrefix { prefix })?;
    LENIENT.decode(encoded).map_err(|_| Error::SecretEncoding { prefix })
}

fn encode(prefix: &str, bytes: &[u8]) -> String {
    let mut text = prefix.to_owned();
    STANDARD.encode_string(bytes, &mut text);
    text
}

fn keyed(key: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(key).expect("HMAC takes keys of any length")
}

/// An ed25519 signature in base64, its version and the space after it.
const LONGEST_ENTRY_BYTES: usize = "v1a,".len() + 88 + 1;

/// One signature per key, space separated, each marked with the version of its scheme.
fn join_versioned<K, S: AsRef<[u8]>>(version: &str, keys: &[K], sign: impl Fn(&K) -> S) -> String {
    let mut value = String::with_capacity(keys.len() * LONGEST_ENTRY_BYTES);
    for key in keys {
        if !value.is_empty() {
            value.push(' ');
        }
        value.push_str(version);
        STANDARD.encode_string(sign(key), &mut value);
    }
    value
}

fn push_hex(text: &mut String, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 0xf)]));
    }
}

#[cfg(test)]
mod tests {
    use ed25519_dalek::{Verifier as _, VerifyingKey};
    use proptest::prelude::*;

    use super::*;

    /// The vectors published with Standard Webhooks.
    const ID: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
    const TIMESTAMP: i64 = 1_614_265_330;
    const BODY: &[u8] = br#"{"test": 2432232314}"#;
    const SYMMETRIC: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const SYMMETRIC_SIGNATURE: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
    const KEYPAIR: &str = "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg==";
    const SEED: &str = "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbc=";
    const PUBLIC: &str = "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4=";
    const ED25519_SIGNATURE: &str = "v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg==";

    /// A second key, bytes 0 to 31, with its signature computed by another implementation.
    const ROTATED: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    const ROTATED_SIGNATURE: &str = "v1,O4Gjv1HqPqsMrjmczoggs/sWA8gZD0VyHG+fLh4+ktI=";

    fn hex_scheme() -> Scheme {
        Scheme::sha256_hex("X-Hub-Signature-256").expect("valid")
    }

    fn signer(scheme: &Scheme, secrets: &[&str]) -> Signer {
        let secrets: Vec<_> =
            secrets.iter().map(|text| Secret::parse(text, scheme).expect("valid")).collect();
        Signer::new(scheme, &secrets)
    }

    #[track_caller]
    fn check(scheme: &Scheme, secrets: &[&str], body: &[u8], name: &str, value: &str) {
        let signer = signer(scheme, secrets);
        let wanted = Some(Signature { name, value: value.to_owned() });
        assert_eq!(signer.sign(ID, TIMESTAMP, body), wanted);
        assert_eq!(signer.sign(ID, TIMESTAMP, body), wanted, "a signer is not used up");
    }

    #[test]
    fn standard_matches_the_published_vector() {
        let name = "webhook-signature";
        check(&Scheme::Standard, &[SYMMETRIC], BODY, name, SYMMETRIC_SIGNATURE);
        check(&Scheme::Standard, &[ROTATED], BODY, name, ROTATED_SIGNATURE);
    }

    #[test]
    fn ed25519_matches_the_published_vector_in_either_form() {
        for secret in [KEYPAIR, SEED] {
            check(&Scheme::Ed25519, &[secret], BODY, "webhook-signature", ED25519_SIGNATURE);
            let secret = Secret::parse(secret, &Scheme::Ed25519).expect("valid");
            assert_eq!(secret.public_key().as_deref(), Some(PUBLIC));
        }
    }

    /// The key of RFC 8032 section 7.1, test 1.
    #[test]
    fn ed25519_signature_verifies_with_the_public_key() {
        let seed = "whsk_nWGxne/9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A=";
        let public = "whpk_11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=";
        let secret = Secret::parse(seed, &Scheme::Ed25519).expect("valid");
        assert_eq!(secret.public_key().as_deref(), Some(public));
        let signer = Signer::new(&Scheme::Ed25519, &[secret]);
        let signature = signer.sign("evt_1", -5, b"\x00\xff body").expect("signed");

        let public = STANDARD.decode(&public["whpk_".len()..]).expect("base64");
        let public = VerifyingKey::try_from(public.as_slice()).expect("a point");
        let encoded = signature.value.strip_prefix("v1a,").expect("version");
        let signature = STANDARD.decode(encoded).expect("base64");
        let signature = ed25519_dalek::Signature::from_slice(&signature).expect("64 bytes");
        public.verify(b"evt_1.-5.\x00\xff body", &signature).expect("verifies");
        public.verify(b"evt_1.-5.\x00\xff bodz", &signature).expect_err("another body");
        public.verify(b"evt_1.-4.\x00\xff body", &signature).expect_err("another time");
    }

    /// RFC 4231 test 2, the vector in GitHub's documentation, and two from another implementation.
    #[test]
    fn sha256_hex_signs_the_body_alone_with_the_text_as_key() {
        let name = "x-hub-signature-256";
        for (secret, body, hex) in [
            (
                "Jefe",
                "what do ya want for nothing?",
                "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
            ),
            (
                "It's a Secret to Everybody",
                "Hello, World!",
                "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17",
            ),
            (
                &"a".repeat(MAX_TEXT_SECRET_BYTES),
                "Hello, World!",
                "c0c3ab41000c055ffb4e5e5817dbe5d33178f98788741bbde88bd05a32b50992",
            ),
            (
                SYMMETRIC,
                "Hello, World!",
                "7ad4fd21c74c164320d9ac01f24d0797c8be594bf356ab332fdd61a03b78cec0",
            ),
        ] {
            check(&hex_scheme(), &[secret], body.as_bytes(), name, &format!("sha256={hex}"));
        }
    }

    #[test]
    fn every_live_secret_signs_the_newest_first() {
        check(
            &Scheme::Standard,
            &[ROTATED, SYMMETRIC],
            BODY,
            "webhook-signature",
            &format!("{ROTATED_SIGNATURE} {SYMMETRIC_SIGNATURE}"),
        );
        check(
            &Scheme::Ed25519,
            &[KEYPAIR, SEED],
            BODY,
            "webhook-signature",
            &format!("{ED25519_SIGNATURE} {ED25519_SIGNATURE}"),
        );
        let many = [ROTATED; MAX_LIVE_SECRETS + 1];
        let signer = signer(&Scheme::Standard, &many);
        let header = signer.sign(ID, TIMESTAMP, BODY).expect("signed");
        assert_eq!(header.value.split(' ').count(), MAX_LIVE_SECRETS);
    }

    #[test]
    fn only_the_newest_secret_signs_in_sha256_hex() {
        let [both, newest] = [&["new", "old"][..], &["new"]]
            .map(|secrets| signer(&hex_scheme(), secrets).sign(ID, 0, BODY).expect("signed").value);
        assert_eq!(both, newest);
    }

    #[test]
    fn scheme_none_signs_nothing() {
        assert_eq!(signer(&Scheme::None, &[SYMMETRIC]).sign(ID, TIMESTAMP, BODY), None);
        assert_eq!(signer(&Scheme::None, &[]).sign(ID, TIMESTAMP, BODY), None);
    }

    #[test]
    #[should_panic = "at least one secret"]
    fn a_signer_without_secrets_is_a_bug() {
        Signer::new(&Scheme::Standard, &[]);
    }

    #[test]
    #[should_panic = "not one of ed25519"]
    fn a_secret_of_another_scheme_is_a_bug() {
        let secret = Secret::parse(SYMMETRIC, &Scheme::Standard).expect("valid");
        Signer::new(&Scheme::Ed25519, &[secret]);
    }

    #[test]
    fn schemes_read_and_write_their_document() {
        for (json, scheme, normal) in [
            (r#"{"scheme":"standard"}"#, Scheme::Standard, r#"{"scheme":"standard"}"#),
            (r#"{"scheme":"ed25519","header":null}"#, Scheme::Ed25519, r#"{"scheme":"ed25519"}"#),
            (r#"{"scheme":"none"}"#, Scheme::None, r#"{"scheme":"none"}"#),
            (
                r#"{"scheme":"sha256_hex"}"#,
                Scheme::sha256_hex("X-Signature").expect("valid"),
                r#"{"scheme":"sha256_hex","header":"X-Signature"}"#,
            ),
            (
                r#"{"header":"X-Hub-Signature-256","scheme":"sha256_hex"}"#,
                hex_scheme(),
                r#"{"scheme":"sha256_hex","header":"X-Hub-Signature-256"}"#,
            ),
        ] {
            assert_eq!(serde_json::from_str::<Scheme>(json).expect(json), scheme);
            assert_eq!(serde_json::to_string(&scheme).expect(json), normal);
        }
    }

    #[test]
    fn documents_that_mean_nothing_are_refused() {
        for (json, reason) in [
            (r#"{"scheme":"standard","header":"X-Sig"}"#, "only with the scheme sha256_hex"),
            (r#"{"scheme":"none","header":"X-Sig"}"#, "only with the scheme sha256_hex"),
            (r#"{"scheme":"sha256_hex","header":""}"#, "not a header name"),
            (r#"{"scheme":"sha256_hex","header":"X Sig"}"#, "not a header name"),
            (r#"{"scheme":"sha256_hex","header":"Host"}"#, "sent by the gateway itself"),
            (r#"{"scheme":"sha256_hex","headers":"X"}"#, "unknown field `headers`"),
            (r#"{"scheme":"none","extra":1}"#, "unknown field `extra`"),
            (r#"{"scheme":"sha256_hex","header":5}"#, "invalid type: integer `5`"),
            (r#"{"scheme":"hmac"}"#, "unknown variant `hmac`"),
            (r#"{"scheme":"Standard"}"#, "unknown variant `Standard`"),
            (r"{}", "missing field `scheme`"),
            (r#""standard""#, "invalid type: string"),
        ] {
            let error = serde_json::from_str::<Scheme>(json).expect_err(json).to_string();
            assert!(error.contains(reason), "{json}: {error}");
        }
    }

    #[test]
    fn header_names_are_checked() {
        let long = "x".repeat(MAX_HEADER_NAME_BYTES);
        for name in ["X-Signature", "x", "My_App.Sig~1", "webhooks", "X-Webhook-Id", &long] {
            Scheme::sha256_hex(name).expect(name);
        }
        let too_long = "x".repeat(MAX_HEADER_NAME_BYTES + 1);
        for name in ["", " ", "X Sig", "X:", "X\r\nEvil", "X\0", "Ünder", "(x)", &too_long] {
            assert_eq!(Scheme::sha256_hex(name), Err(Error::HeaderMalformed), "{name:?}");
        }
        for name in [
            "webhook-signature",
            "Webhook-Id",
            "WEBHOOK-anything",
            "postrider-attempt",
            "Content-Type",
            "content-length",
            "HOST",
            "User-Agent",
            "Transfer-Encoding",
            "connection",
            "Accept-Encoding",
            "TE",
        ] {
            assert_eq!(Scheme::sha256_hex(name), Err(Error::HeaderReserved(name.to_owned())));
        }
    }

    #[test]
    fn malformed_secrets_are_refused() {
        let with_key = |prefix: &str, bytes: usize| encode(prefix, &vec![7; bytes]);
        let mut mismatched = [7; 64];
        mismatched[..32].copy_from_slice(&[8; 32]);
        let (standard, ed25519) = (Scheme::Standard, Scheme::Ed25519);
        let (whsec, whsk) = ("whsec_", "whsk_");
        for (scheme, text, error) in [
            (&standard, String::new(), Error::SecretPrefix { prefix: whsec }),
            (&standard, SYMMETRIC[6..].to_owned(), Error::SecretPrefix { prefix: whsec }),
            (&standard, KEYPAIR.to_owned(), Error::SecretPrefix { prefix: whsec }),
            (&standard, format!(" {SYMMETRIC}"), Error::SecretPrefix { prefix: whsec }),
            (&standard, format!("{SYMMETRIC}\n"), Error::SecretEncoding { prefix: whsec }),
            (&standard, format!("{SYMMETRIC}é"), Error::SecretEncoding { prefix: whsec }),
            (&standard, "whsec_".to_owned(), Error::SecretLength { bytes: 0 }),
            (&standard, with_key(whsec, 23), Error::SecretLength { bytes: 23 }),
            (&standard, with_key(whsec, 65), Error::SecretLength { bytes: 65 }),
            (&Scheme::None, with_key(whsec, 65), Error::SecretLength { bytes: 65 }),
            (&ed25519, SYMMETRIC.to_owned(), Error::SecretPrefix { prefix: whsk }),
            (&ed25519, PUBLIC.to_owned(), Error::SecretPrefix { prefix: whsk }),
            (&ed25519, "whsk_*".to_owned(), Error::SecretEncoding { prefix: whsk }),
            (&ed25519, with_key(whsk, 31), Error::KeypairLength { bytes: 31 }),
            (&ed25519, with_key(whsk, 33), Error::KeypairLength { bytes: 33 }),
            (&ed25519, encode(whsk, &mismatched), Error::KeypairMismatch),
            (&hex_scheme(), String::new(), Error::SecretEmpty),
            (&hex_scheme(), "é".repeat(129), Error::SecretTooLong { bytes: 258 }),
        ] {
            assert_eq!(Secret::parse(&text, scheme).err(), Some(error), "{text}");
        }
    }

    #[test]
    fn secrets_at_the_limits_are_taken() {
        for bytes in [24, 25, 26, 64] {
            let padded = encode("whsec_", &vec![7; bytes]);
            for text in [padded.as_str(), padded.trim_end_matches('=')] {
                let secret = Secret::parse(text, &Scheme::Standard).expect(text);
                assert_eq!(secret.text(), text);
            }
        }
        Secret::parse(&"é".repeat(128), &hex_scheme()).expect("256 bytes");
    }

    #[test]
    fn nothing_secret_is_shown() {
        for (scheme, text) in [
            (Scheme::Standard, SYMMETRIC),
            (Scheme::Ed25519, KEYPAIR),
            (hex_scheme(), "swordfish"),
            (Scheme::None, SYMMETRIC),
        ] {
            let secret = Secret::parse(text, &scheme).expect(text);
            assert_eq!(format!("{secret:?}"), "Secret(hidden)");
            let shown = format!("{:?}", Signer::new(&scheme, &[secret]));
            assert!(shown.len() < 50 && !shown.contains(&text[5..]), "{shown}");
        }
        let error = Secret::parse("whsec_swordfish!", &Scheme::Standard).expect_err("not base64");
        assert!(!format!("{error} {error:?}").contains("swordfish"));
    }

    proptest! {
        #[test]
        fn a_generated_secret_parses_to_the_same_signatures(random in any::<[u8; 32]>()) {
            for scheme in [Scheme::Standard, Scheme::Ed25519, hex_scheme(), Scheme::None] {
                let made = Secret::generate(&scheme, random);
                let read = Secret::parse(made.text(), &scheme).expect("its own text");
                prop_assert_eq!(read.text(), made.text());
                prop_assert_eq!(read.public_key(), made.public_key());
                let [made, read] = [made, read].map(|secret| Signer::new(&scheme, &[secret]));
                prop_assert_eq!(made.sign(ID, 7, BODY), read.sign(ID, 7, BODY));
            }
        }

        #[test]
        fn no_text_panics(text in prop_oneof![
            any::<String>(),
            "(whsec_|whsk_)[A-Za-z0-9+/]{0,100}={0,3}",
        ]) {
            for scheme in [Scheme::Standard, Scheme::Ed25519, hex_scheme(), Scheme::None] {
                if let Ok(secret) = Secret::parse(&text, &scheme) {
                    prop_assert_eq!(secret.text(), &text);
                }
            }
            if let Ok(Scheme::Sha256Hex { header }) = Scheme::sha256_hex(&text) {
                prop_assert_eq!(header, text);
            }
        }
    }
}
