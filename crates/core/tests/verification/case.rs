//! One good request of a scheme, and the table of what is done to it.

use std::time::Duration;

use postrider_core::Timestamp;
use postrider_core::verification::{
    Handshake, Inbound, MAX_HEADER_BYTES, Refusal, Scheme, Verifier,
};

/// A request that is good at `signed_at`, and what is known about its scheme.
#[derive(Clone)]
pub(crate) struct Case {
    /// The object `verify`, without secrets.
    pub(crate) verify: &'static str,
    pub(crate) secret: &'static str,
    /// A secret of the same form that did not sign.
    pub(crate) other_secret: &'static str,
    pub(crate) method: &'static str,
    pub(crate) url: String,
    /// Those that the scheme reads, all of them needed.
    pub(crate) headers: Vec<(&'static str, Vec<u8>)>,
    /// Those that are there and read, but whose change need not matter.
    pub(crate) other_headers: Vec<(&'static str, Vec<u8>)>,
    pub(crate) body: Vec<u8>,
    pub(crate) signed_at: Timestamp,
    /// `None` where the scheme signs no time.
    pub(crate) tolerance: Option<Duration>,
    pub(crate) body_is_signed: bool,
}

impl Default for Case {
    fn default() -> Self {
        Self {
            verify: "",
            secret: "",
            other_secret: "another-secret",
            method: "POST",
            url: "https://hooks.example.com/in/abc".to_owned(),
            headers: Vec::new(),
            other_headers: Vec::new(),
            body: Vec::new(),
            signed_at: Timestamp::from_millis(1_700_000_000_000),
            tolerance: None,
            body_is_signed: true,
        }
    }
}

pub(crate) fn verifier(verify: &str, secrets: &[&str]) -> Verifier {
    let scheme: Scheme = serde_json::from_str(verify).expect(verify);
    let secrets: Vec<String> = secrets.iter().map(|secret| (*secret).to_owned()).collect();
    Verifier::new(&scheme, &secrets).expect(verify)
}

impl Case {
    pub(crate) fn verify_with(&self, secrets: &[&str], now: Timestamp) -> Result<(), Refusal> {
        self.inspect(|request| verifier(self.verify, secrets).verify(request, now))
    }

    pub(crate) fn verify(&self) -> Result<(), Refusal> {
        self.verify_with(&[self.secret], self.signed_at)
    }

    pub(crate) fn handshake(&self) -> Option<Handshake> {
        self.inspect(|request| verifier(self.verify, &[self.secret]).handshake(request))
    }

    fn inspect<T>(&self, look: impl Fn(&Inbound<'_>) -> T) -> T {
        let headers: Vec<(&str, &[u8])> = self
            .headers
            .iter()
            .chain(&self.other_headers)
            .map(|(name, value)| (*name, value.as_slice()))
            .collect();
        look(&Inbound { method: self.method, url: &self.url, headers: &headers, body: &self.body })
    }

    /// The same request with one header changed; `None` takes it away.
    pub(crate) fn with_header(&self, name: &'static str, value: Option<&[u8]>) -> Self {
        let mut changed = self.clone();
        changed.headers.retain(|(given, _)| *given != name);
        changed.headers.extend(value.map(|value| (name, value.to_vec())));
        changed
    }

    pub(crate) fn with_body(&self, body: &[u8]) -> Self {
        Self { body: body.to_vec(), ..self.clone() }
    }

    /// The whole table.
    #[track_caller]
    pub(crate) fn exercise(&self) {
        assert_eq!(self.verify(), Ok(()), "the request as it is");
        self.exercise_secrets();
        self.exercise_time();
        for (name, value) in &self.headers {
            self.exercise_header(name, value);
        }
        if self.body_is_signed {
            self.exercise_body();
        }
    }

    fn exercise_secrets(&self) {
        let at = self.signed_at;
        assert_eq!(self.verify_with(&[self.other_secret], at), Err(Refusal::NoMatch));
        assert_eq!(self.verify_with(&[self.other_secret, self.secret], at), Ok(()));
        assert_eq!(self.verify_with(&[self.secret, self.other_secret], at), Ok(()));
    }

    fn exercise_time(&self) {
        let at = |now| self.verify_with(&[self.secret], now);
        let Some(tolerance) = self.tolerance else {
            assert_eq!(at(Timestamp::MIN), Ok(()));
            assert_eq!(at(Timestamp::MAX), Ok(()));
            return;
        };
        let over = tolerance + Duration::from_millis(1);
        assert_eq!(at(self.signed_at.plus(tolerance)), Ok(()));
        assert_eq!(at(self.signed_at.minus(tolerance)), Ok(()));
        assert_eq!(at(self.signed_at.plus(over)), Err(Refusal::TooOld { age: over, tolerance }));
        assert_eq!(
            at(self.signed_at.minus(over)),
            Err(Refusal::InFuture { ahead: over, tolerance })
        );
        assert!(matches!(at(Timestamp::MIN), Err(Refusal::InFuture { .. })));
        assert!(matches!(at(Timestamp::MAX), Err(Refusal::TooOld { .. })));
        // A forgery is called one, however old it is.
        assert_eq!(self.verify_with(&[self.other_secret], Timestamp::MAX), Err(Refusal::NoMatch));
    }

    fn exercise_header(&self, name: &'static str, value: &[u8]) {
        let header = name.to_owned();
        let with = |value: &[u8]| self.with_header(name, Some(value)).verify();
        assert_eq!(
            self.with_header(name, None).verify(),
            Err(Refusal::MissingHeader { header: header.clone() })
        );
        for second in [value, b"", b"v1,other"] {
            let mut repeated = self.clone();
            repeated.headers.push((name, second.to_vec()));
            assert_eq!(
                repeated.verify(),
                Err(Refusal::RepeatedHeader { header: header.clone() }),
                "{name} twice"
            );
        }
        for place in 0..value.len() {
            let mut flipped = value.to_vec();
            flipped[place] ^= 1;
            assert!(with(&flipped).is_err(), "{name} with byte {place} flipped");
            assert!(with(&value[..place]).is_err(), "{name} cut to {place} bytes");
        }
        let huge = [value, &vec![b'0'; MAX_HEADER_BYTES]].concat();
        for value in [&b"\xff\xfe"[..], b"\0", b" ", b",", b"=", b"t=,v1=", &huge] {
            assert!(with(value).is_err(), "{name} of {value:?}");
        }
        assert!(with(&[b"\xc3\xa9", value].concat()).is_err(), "{name} with é before it");
    }

    fn exercise_body(&self) {
        for place in 0..self.body.len() {
            let mut flipped = self.body.clone();
            flipped[place] ^= 1;
            assert!(self.with_body(&flipped).verify().is_err(), "byte {place} flipped");
            let cut = &self.body[..place];
            assert!(self.with_body(cut).verify().is_err(), "cut to {place} bytes");
        }
        let longer = [self.body.as_slice(), b" "].concat();
        assert!(self.with_body(&longer).verify().is_err(), "a byte longer");
    }
}
