//! Everybody who signs: each scheme with a secret, and with what is known of it.

use std::sync::LazyLock;
use std::time::Duration;

use postrider_core::verification::{
    Algorithm, Encoding, Place, Recipe, Scheme, Stamp, StampFormat, Template, Verifier,
};

const SECRET: &str = "user:fuzzing-secret";
const OTHER: &str = "user:another-secret";
/// Of Telegram, which allows no colon.
const TOKEN: &str = "fuzzing_secret-1";
const OTHER_TOKEN: &str = "another_secret-1";
const STANDARD: &str = "whsec_ZnV6emluZy1zZWNyZXQtMDEyMzQ1Njc4OTAxMjM0NTY=";
const OTHER_STANDARD: &str = "whsec_YW5vdGhlci1zZWNyZXQtMDEyMzQ1Njc4OTAxMjM0NTY=";

const FIVE_MINUTES: Duration = Duration::from_mins(5);

pub(super) struct Sender {
    pub(super) name: &'static str,
    pub(super) secret: &'static str,
    pub(super) verifier: Verifier,
    /// Of a source with another secret; none where there is no secret.
    pub(super) other: Option<Verifier>,
    pub(super) signs_body: bool,
    pub(super) signs_time: bool,
    pub(super) reads_headers: bool,
}

pub(super) static SENDERS: LazyLock<Vec<Sender>> = LazyLock::new(|| {
    let tolerance = FIVE_MINUTES;
    let mut senders = vec![
        Sender::new("standard", &Scheme::Standard { tolerance }, [STANDARD, OTHER_STANDARD]),
        Sender::new("stripe", &Scheme::Stripe { tolerance }, [SECRET, OTHER]),
        Sender::new("slack", &Scheme::Slack { tolerance }, [SECRET, OTHER]),
        Sender::new("linear", &Scheme::Linear { tolerance }, [SECRET, OTHER]),
        Sender::new("paddle", &Scheme::Paddle { tolerance }, [SECRET, OTHER]),
    ];
    for (name, format) in [
        ("hmac, unix", StampFormat::Unix),
        ("hmac, unix_ms", StampFormat::UnixMs),
        ("hmac, rfc3339", StampFormat::Rfc3339),
    ] {
        let stamp = Stamp { header: "X-Time".to_owned(), format, tolerance };
        let recipe = recipe("v0:{timestamp}:{method}:{url}:{header:X-Id}:{body}", Some(stamp));
        senders.push(Sender::new(name, &Scheme::Hmac(recipe), [SECRET, OTHER]));
    }
    let timeless = [
        ("github", Scheme::Github),
        ("shopify", Scheme::Shopify),
        ("twilio", Scheme::Twilio),
        ("hmac", Scheme::Hmac(recipe("{body}", None))),
    ];
    for (name, scheme) in timeless {
        let sender = Sender::new(name, &scheme, [SECRET, OTHER]);
        senders.push(Sender { signs_time: false, ..sender });
    }
    let header = Place::Header { name: "X-Token".to_owned(), prefix: "Token ".to_owned() };
    let tokens = [
        ("token, header", Scheme::Token(header), [SECRET, OTHER]),
        ("token, bearer", Scheme::Token(Place::Bearer), [SECRET, OTHER]),
        ("token, basic", Scheme::Token(Place::Basic), [SECRET, OTHER]),
        ("telegram", Scheme::Telegram, [TOKEN, OTHER_TOKEN]),
    ];
    for (name, scheme, secrets) in tokens {
        let sender = Sender::new(name, &scheme, secrets);
        senders.push(Sender { signs_time: false, signs_body: false, ..sender });
    }
    let query = Scheme::Token(Place::Query { name: "token".to_owned() });
    senders.push(Sender {
        signs_time: false,
        signs_body: false,
        reads_headers: false,
        ..Sender::new("token, query", &query, [SECRET, OTHER])
    });
    senders.push(Sender {
        name: "none",
        secret: SECRET,
        verifier: Verifier::new(&Scheme::None, &[]).expect("it needs nothing"),
        other: None,
        signs_body: false,
        signs_time: false,
        reads_headers: false,
    });
    senders
});

impl Sender {
    /// One that signs its body and a time, in headers.
    fn new(name: &'static str, scheme: &Scheme, [secret, other]: [&'static str; 2]) -> Self {
        let verifier =
            |secret: &str| Verifier::new(scheme, &[secret.to_owned()]).expect("a sound scheme");
        Self {
            name,
            secret,
            verifier: verifier(secret),
            other: Some(verifier(other)),
            signs_body: true,
            signs_time: true,
            reads_headers: true,
        }
    }
}

fn recipe(signed: &str, timestamp: Option<Stamp>) -> Recipe {
    Recipe {
        header: "X-Signature".to_owned(),
        algorithm: Algorithm::Sha256,
        encoding: Encoding::Hex,
        prefix: "sha256=".to_owned(),
        signed: Template::parse(signed).expect("a sound template"),
        timestamp,
    }
}
