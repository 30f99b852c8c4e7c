//! Paths within the gateway, as they come back from outside.

use url::{Position, Url};

const MAX_PATH_CHARS: usize = 2_000;
/// Stands for this gateway, whatever it is called.
const HERE: &str = "http://gateway.invalid";

/// A path and query that lead to a page of this gateway and nowhere else, read as a browser would
/// read them; none for anything that could lead to another site.
pub(crate) fn local_path(text: &str) -> Option<String> {
    let plain = text.len() <= MAX_PATH_CHARS
        && text.starts_with('/')
        && !text.contains('\\')
        && !text.contains(char::is_control);
    if !plain {
        return None;
    }
    let here = Url::parse(HERE).ok()?;
    let there = here.join(text).ok().filter(|there| there.origin() == here.origin())?;
    let path = &there[Position::BeforePath..Position::AfterQuery];
    // `/.//elsewhere.example` has become a name of its own.
    (!path.starts_with("//")).then(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_of_this_gateway_are_local() {
        for (text, path) in [
            ("/", Some("/")),
            ("/deliveries?state=dead&endpoint=ep_1", Some("/deliveries?state=dead&endpoint=ep_1")),
            ("/a/../b", Some("/b")),
            ("/search?q=ü", Some("/search?q=%C3%BC")),
            ("/events#top", Some("/events")),
            ("/search?q=//evil.example", Some("/search?q=//evil.example")),
            ("", None),
            ("deliveries", None),
            ("//evil.example", None),
            ("///evil.example", None),
            ("/\\evil.example", None),
            ("\\\\evil.example", None),
            ("/\t/evil.example", None),
            ("/\n/evil.example", None),
            ("/.//evil.example", None),
            ("/a/..//evil.example", None),
            ("/%2e//evil.example", None),
            ("/\r\nSet-Cookie: a=b", None),
            (" //evil.example", None),
            ("https://evil.example/", None),
            ("https:evil.example", None),
            ("javascript:alert(1)", None),
            ("?next=/", None),
        ] {
            assert_eq!(local_path(text).as_deref(), path, "{text:?}");
        }
        assert_eq!(local_path(&format!("/{}", "a".repeat(MAX_PATH_CHARS))), None);
    }
}
