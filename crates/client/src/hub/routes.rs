//! Where deliveries go: a target for each endpoint, and one for the rest.

use std::collections::HashMap;
use std::fmt;

use http::Uri;
use postrider_core::hub::Deliver;

use super::url;
use crate::Error;

/// The most endpoints that can have a target of their own.
pub const MAX_ROUTES: usize = 10_000;

/// Targets by endpoint.
#[derive(Debug, Clone, Default)]
pub struct Routes {
    /// By the endpoint's id or its name.
    own: HashMap<String, Target>,
    rest: Option<Target>,
}

impl Routes {
    /// Everything goes to one URL.
    pub fn to(url: &str) -> Result<Self, Error> {
        let mut routes = Self::default();
        routes.send_rest_to(url)?;
        Ok(routes)
    }

    /// What an endpoint without a route of its own is given goes here.
    pub fn send_rest_to(&mut self, url: &str) -> Result<(), Error> {
        let target = Target::parse(url)
            .map_err(|wrong| Error::Invalid(format!("the URL to forward to {wrong}")))?;
        self.rest = Some(target);
        Ok(())
    }

    /// What `endpoint`, an id or a name, is given goes to `url`. An id comes before a name.
    pub fn send(&mut self, endpoint: &str, url: &str) -> Result<(), Error> {
        let target = Target::parse(url)
            .map_err(|wrong| Error::Invalid(format!("the URL for {endpoint:?} {wrong}")))?;
        if self.own.len() >= MAX_ROUTES && !self.own.contains_key(endpoint) {
            return Err(Error::Invalid(format!("there are more than {MAX_ROUTES} routes")));
        }
        self.own.insert(endpoint.to_owned(), target);
        Ok(())
    }

    /// Whether nothing at all has a route.
    pub fn is_empty(&self) -> bool {
        self.own.is_empty() && self.rest.is_none()
    }

    pub(super) fn target(&self, deliver: &Deliver) -> Option<&Target> {
        let by_id = || self.own.get(&deliver.endpoint.to_string());
        let by_name = || self.own.get(deliver.endpoint_name.as_deref()?);
        if self.own.is_empty() {
            return self.rest.as_ref();
        }
        by_id().or_else(by_name).or(self.rest.as_ref())
    }
}

/// One URL that deliveries are posted to.
#[derive(Clone)]
pub(super) struct Target {
    pub(super) uri: Uri,
    /// Scheme, host and port. The rest of a URL may be a secret.
    pub(super) origin: String,
}

impl Target {
    fn parse(text: &str) -> Result<Self, String> {
        let url = url::plain(text, &["http", "https"])?;
        let uri = url.as_str().parse().map_err(|_| "is no URL that can be called".to_owned())?;
        Ok(Self { uri, origin: url.origin().ascii_serialization() })
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Target").field(&self.origin).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use postrider_core::{DeliveryId, EndpointId, EventId};

    use super::*;

    fn deliver(endpoint: i64, name: Option<&str>) -> Deliver {
        Deliver {
            seq: 1,
            delivery: DeliveryId::from_i64(1),
            event: EventId::from_i64(1),
            endpoint: EndpointId::from_i64(endpoint),
            endpoint_name: name.map(str::to_owned),
            kind: "a".to_owned(),
            attempt: 1,
            timeout: Duration::from_secs(1),
            headers: Vec::new(),
            body: Bytes::new(),
        }
    }

    #[test]
    fn an_id_comes_before_a_name_and_a_name_before_the_rest() {
        let mut routes = Routes::default();
        assert!(routes.is_empty());
        routes.send("ep_0000000000001", "http://localhost:1/a?b=c").expect("a route");
        routes.send("orders", "http://localhost:2").expect("a route");
        let find = |routes: &Routes, endpoint, name| {
            routes.target(&deliver(endpoint, name)).map(|target| target.uri.to_string())
        };
        let (one, two) = ("http://localhost:1/a?b=c", "http://localhost:2/");
        for (endpoint, name, target) in [
            (1, None, Some(one)),
            (1, Some("orders"), Some(one)),
            (2, Some("orders"), Some(two)),
            (2, Some("other"), None),
            (2, None, None),
        ] {
            assert_eq!(find(&routes, endpoint, name).as_deref(), target, "{endpoint} {name:?}");
        }
        routes.send_rest_to("https://[::1]:3").expect("a route");
        assert_eq!(find(&routes, 2, None).as_deref(), Some("https://[::1]:3/"));
        assert_eq!(find(&routes, 1, None).as_deref(), Some(one));
    }

    #[test]
    fn what_cannot_be_forwarded_to_is_refused_without_being_repeated() {
        for (url, says) in [
            ("", "is no URL"),
            ("localhost:3000", "must begin with http:// or https://"),
            ("/hooks", "is no URL"),
            ("ws://localhost/hunter2", "must begin with http:// or https://"),
            ("http://me:hunter2@localhost", "no user name"),
            ("http://localhost/#hunter2", "no fragment"),
        ] {
            let error = Routes::to(url).expect_err(url).to_string();
            assert!(error.contains(says), "{url}: {error}");
            assert!(!error.contains("hunter2"), "{error}");
            let error = Routes::default().send("orders", url).expect_err(url).to_string();
            assert!(error.contains(r#"the URL for "orders""#), "{error}");
        }
    }

    #[test]
    fn the_number_of_routes_has_an_end() {
        let mut routes = Routes::default();
        for endpoint in 0..MAX_ROUTES {
            routes.send(&endpoint.to_string(), "http://localhost").expect("room");
        }
        routes.send("0", "http://localhost:2").expect("it is there already");
        assert!(routes.send("one more", "http://localhost").is_err());
    }
}
