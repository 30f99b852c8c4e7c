//! Cookies: what a browser gives back, and how it is told to keep something. All of them are out of
//! the reach of scripts, and sent only to pages that were asked for from a page of this gateway.

use http::header::COOKIE;
use http::{HeaderMap, HeaderValue};

/// Whether a browser speaks to this gateway under TLS. Behind it, cookies are marked so that no other
/// host and no unprotected page can set or see them, and those without the mark are not looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    Plain,
    Tls,
}

/// The names of what is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cookie {
    /// The token of a session.
    Session,
    /// What the last change came to.
    Said,
}

impl Cookie {
    const fn name(self, transport: Transport) -> &'static str {
        match (self, transport) {
            (Self::Session, Transport::Plain) => "postrider_session",
            (Self::Session, Transport::Tls) => "__Host-postrider_session",
            (Self::Said, Transport::Plain) => "postrider_said",
            (Self::Said, Transport::Tls) => "__Host-postrider_said",
        }
    }

    /// What the browser has kept, if it is there once: where there are two of a name, somebody else
    /// has set one of them, and nobody knows which.
    pub(crate) fn read(self, transport: Transport, headers: &HeaderMap) -> Option<&str> {
        let name = self.name(transport);
        let pairs = headers.get_all(COOKIE).iter().filter_map(|header| header.to_str().ok());
        let mut values = pairs
            .flat_map(|header| header.split(';'))
            .filter_map(|pair| pair.trim().split_once('='))
            .filter(|(known, _)| *known == name)
            .map(|(_, value)| value);
        values.next().filter(|_| values.next().is_none())
    }

    /// `value` is base64url or empty: nothing in it needs quotes.
    pub(crate) fn keep(
        self,
        transport: Transport,
        value: &str,
        max_age_seconds: u64,
    ) -> HeaderValue {
        let name = self.name(transport);
        let secure = match transport {
            Transport::Plain => "",
            Transport::Tls => "; Secure",
        };
        let text = format!(
            "{name}={value}; Path=/; HttpOnly; SameSite=Strict; Max-Age={max_age_seconds}{secure}"
        );
        // A value that is no header is none that was made here; the browser keeps nothing then.
        HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static(""))
    }

    pub(crate) fn forget(self, transport: Transport) -> HeaderValue {
        self.keep(transport, "", 0)
    }
}

impl Transport {
    /// By what the gateway is known as, or by what a proxy in front of it says. Whoever lies about it
    /// gets a cookie that its own browser does not send.
    pub(crate) fn of(public_url: Option<&str>, headers: &HeaderMap) -> Self {
        let known = public_url.is_some_and(|url| starts_with(url, "https:"));
        if known || is_forwarded_from_tls(headers) { Self::Tls } else { Self::Plain }
    }
}

fn is_forwarded_from_tls(headers: &HeaderMap) -> bool {
    let first = |name: &str| {
        let value = headers.get(name)?.to_str().ok()?;
        // The first is what the browser spoke to.
        value.split(',').next().map(str::trim)
    };
    let forwarded = first("forwarded").is_some_and(|hop| {
        hop.split(';').filter_map(|pair| pair.trim().split_once('=')).any(|(name, value)| {
            name.eq_ignore_ascii_case("proto")
                && value.trim_matches('"').eq_ignore_ascii_case("https")
        })
    });
    forwarded || first("x-forwarded-proto").is_some_and(|proto| proto.eq_ignore_ascii_case("https"))
}

fn starts_with(text: &str, prefix: &str) -> bool {
    text.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn a_cookie_is_read_by_its_whole_name_and_only_where_there_is_one() {
        for (header, found) in [
            ("postrider_session=abc", Some("abc")),
            ("a=b; postrider_session=abc;c=d", Some("abc")),
            ("__Host-postrider_session=abc", None),
            ("xpostrider_session=abc; postrider_sessionx=abc", None),
            ("postrider_session=abc; postrider_session=def", None),
            ("postrider_session", None),
            ("", None),
        ] {
            let headers = headers(&[("cookie", header)]);
            assert_eq!(Cookie::Session.read(Transport::Plain, &headers), found, "{header}");
        }
        let split = headers(&[("cookie", "a=b"), ("cookie", "postrider_session=abc")]);
        assert_eq!(Cookie::Session.read(Transport::Plain, &split), Some("abc"));
        let marked = headers(&[("cookie", "postrider_session=x; __Host-postrider_session=abc")]);
        assert_eq!(Cookie::Session.read(Transport::Tls, &marked), Some("abc"));
    }

    #[test]
    fn behind_tls_a_cookie_is_marked() {
        assert_eq!(
            Cookie::Session.keep(Transport::Tls, "abc", 60),
            "__Host-postrider_session=abc; Path=/; HttpOnly; SameSite=Strict; Max-Age=60; Secure"
        );
        assert_eq!(
            Cookie::Said.forget(Transport::Plain),
            "postrider_said=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0"
        );
    }

    #[test]
    fn tls_is_known_by_the_public_url_or_by_what_a_proxy_says() {
        for (public_url, pairs, transport) in [
            (None, &[][..], Transport::Plain),
            (Some("http://hooks.example"), &[], Transport::Plain),
            (Some("https://hooks.example"), &[], Transport::Tls),
            (Some("HTTPS://hooks.example"), &[], Transport::Tls),
            (None, &[("x-forwarded-proto", "https")], Transport::Tls),
            (None, &[("x-forwarded-proto", "https, http")], Transport::Tls),
            (None, &[("x-forwarded-proto", "http, https")], Transport::Plain),
            (None, &[("forwarded", "for=1.2.3.4;proto=https;by=x")], Transport::Tls),
            (None, &[("forwarded", "for=1.2.3.4;Proto=\"https\"")], Transport::Tls),
            (None, &[("forwarded", "for=1.2.3.4;proto=http, proto=https")], Transport::Plain),
        ] {
            assert_eq!(Transport::of(public_url, &headers(pairs)), transport, "{pairs:?}");
        }
    }
}
