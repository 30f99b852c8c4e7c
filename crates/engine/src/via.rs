//! Where an event has been: every gateway that passes it on adds its own name, and none takes in what
//! it has passed on before. An endpoint that is our own ingest URL thus ends after one hop.

use http::{HeaderName, HeaderValue};
use postrider_store::record::Headers;

pub const VIA: HeaderName = HeaderName::from_static("postrider-via");

/// Gateways in a row that an event may pass through.
pub const MAX_HOPS: usize = 8;

/// The name of this gateway on the way of an event: the store's, so that all nodes share it.
#[derive(Debug, Clone)]
pub struct Instance {
    text: String,
    alone: HeaderValue,
}

/// An event comes back, or has come too far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Loop {
    #[error("this gateway has sent the event itself: an endpoint points back here")]
    Back,
    #[error("the event has passed through {MAX_HOPS} gateways: endpoints point at each other")]
    TooFar,
}

impl Instance {
    pub(crate) fn new(id: [u8; 16]) -> Self {
        let text = format!("{:032x}", u128::from_be_bytes(id));
        let alone = HeaderValue::from_str(&text).expect("hexadecimal digits");
        Self { text, alone }
    }

    /// Judges what a request says of its way. `values` are those of its [`VIA`] headers.
    pub fn check<'a>(&self, values: impl Iterator<Item = &'a [u8]>) -> Result<(), Loop> {
        let mut hops = 0;
        for name in values.flat_map(|value| value.split(|byte| *byte == b',')) {
            if name.trim_ascii() == self.text.as_bytes() {
                return Err(Loop::Back);
            }
            hops += 1;
        }
        if hops >= MAX_HOPS { Err(Loop::TooFar) } else { Ok(()) }
    }

    /// What is sent on with an event: where it has been, and here.
    pub(crate) fn onward(&self, headers: &Headers) -> HeaderValue {
        let mut way: Vec<u8> = Vec::new();
        for (_, value) in headers.iter().filter(|(name, _)| *name == VIA.as_str()) {
            way.extend_from_slice(value);
            way.extend_from_slice(b", ");
        }
        if way.is_empty() {
            return self.alone.clone();
        }
        way.extend_from_slice(self.text.as_bytes());
        HeaderValue::from_bytes(&way).unwrap_or_else(|_| self.alone.clone())
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn check(instance: &Instance, values: &[&str]) -> Result<(), Loop> {
        instance.check(values.iter().map(|value| value.as_bytes()))
    }

    #[test]
    fn what_has_been_here_is_refused() {
        let (here, there) = (Instance::new([1; 16]), Instance::new([2; 16]));
        assert_eq!(check(&here, &[]), Ok(()));
        let headers: Headers = Vec::new();
        let sent = here.onward(&headers);
        let sent = sent.to_str().expect("text");
        assert_eq!(check(&here, &[sent]), Err(Loop::Back));
        assert_eq!(check(&there, &[sent]), Ok(()));
        let headers = vec![("postrider-via".to_owned(), Bytes::copy_from_slice(sent.as_bytes()))];
        let onward = there.onward(&headers);
        let onward = onward.to_str().expect("text");
        assert_eq!(check(&here, &[onward]), Err(Loop::Back), "by way of another gateway: {onward}");
        assert_eq!(check(&there, &[onward]), Err(Loop::Back));
    }

    #[test]
    fn a_way_without_end_ends() {
        let far = ["x"; MAX_HOPS].join(", ");
        assert_eq!(check(&Instance::new([1; 16]), &[&far]), Err(Loop::TooFar));
        assert_eq!(check(&Instance::new([1; 16]), &["x"; MAX_HOPS - 1]), Ok(()));
    }
}
