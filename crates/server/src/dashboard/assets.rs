//! `/assets`: the files that pages are made with. They are part of the binary, and the same for
//! everybody: no session is needed to read them.

use std::fmt::Write as _;
use std::sync::LazyLock;

use axum::Router;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderValue, StatusCode, Uri};
use sha2::{Digest as _, Sha256};

use super::Dashboard;

struct Asset {
    path: &'static str,
    content_type: &'static str,
    text: &'static str,
}

const ASSETS: [Asset; 5] = [
    Asset {
        path: "/assets/postrider.css",
        content_type: "text/css; charset=utf-8",
        text: include_str!("../../assets/postrider.css"),
    },
    Asset {
        path: "/assets/postrider.js",
        content_type: SCRIPT,
        text: include_str!("../../assets/postrider.js"),
    },
    Asset { path: "/assets/htmx.js", content_type: SCRIPT, text: HTMX },
    Asset { path: "/assets/idiomorph.js", content_type: SCRIPT, text: IDIOMORPH },
    Asset {
        path: "/assets/favicon.svg",
        content_type: "image/svg+xml",
        text: include_str!("../../assets/favicon.svg"),
    },
];

const SCRIPT: &str = "text/javascript; charset=utf-8";
const HTMX: &str = include_str!("../../assets/vendor/htmx-2.0.11.min.js");
const IDIOMORPH: &str = include_str!("../../assets/vendor/idiomorph-0.8.0.min.js");

/// Enough of a hash to tell one build from another.
const HASH_BYTES: usize = 6;

/// What pages add to the addresses of assets: another build has others, so a browser can keep what it
/// has for as long as it likes.
pub(crate) fn version() -> &'static str {
    static VERSION: LazyLock<String> = LazyLock::new(|| {
        let all = ASSETS.iter().fold(Sha256::new(), |all, asset| all.chain_update(asset.text));
        let hash = all.finalize();
        format!("{}-{}", env!("CARGO_PKG_VERSION"), hex(&hash[..HASH_BYTES]))
    });
    &VERSION
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

pub(crate) fn routes() -> Router<Dashboard> {
    ASSETS.iter().fold(Router::new(), |routes, asset| {
        routes.route(
            asset.path,
            get(async |uri: Uri, headers: HeaderMap| send(asset, &uri, &headers)),
        )
    })
}

fn send(asset: &Asset, uri: &Uri, headers: &HeaderMap) -> Response {
    let tag = format!("\"{}\"", version());
    let asked_by_version =
        uri.query().and_then(|query| query.strip_prefix("v=")) == Some(version());
    let keep = if asked_by_version { "public, max-age=31536000, immutable" } else { "no-cache" };
    let unchanged = headers.get(IF_NONE_MATCH).is_some_and(|known| *known == *tag);
    let mut response = if unchanged {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        asset.text.into_response()
    };
    let headers = response.headers_mut();
    for (name, value) in [
        (CONTENT_TYPE, asset.content_type),
        (CACHE_CONTROL, keep),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        // A drawing that is opened by itself is a page.
        (CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(ETAG, tag);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_others_are_as_they_were_published() {
        let known = include_str!("../../assets/vendor/README.md");
        for text in [HTMX, IDIOMORPH] {
            let hash = hex(&Sha256::digest(text));
            assert!(known.contains(&hash), "{hash} is not in the list of vendored files");
        }
    }

    #[test]
    fn own_files_ask_nobody_else_and_evaluate_nothing() {
        for asset in ASSETS.iter().filter(|asset| asset.text != HTMX && asset.text != IDIOMORPH) {
            for needle in ["http:", "https:", "eval(", "innerHTML", "@import"] {
                let found = asset.text.replace("http://www.w3.org/2000/svg", "").contains(needle);
                assert!(!found, "{needle} in {}", asset.path);
            }
        }
    }

    #[test]
    fn an_asset_is_kept_by_its_version_and_otherwise_asked_for_again() {
        let asset = &ASSETS[0];
        let ask = |query: &str, headers: &HeaderMap| {
            let uri = format!("{}{query}", asset.path).parse().expect("a path");
            send(asset, &uri, headers)
        };
        let none = HeaderMap::new();
        let kept = ask(&format!("?v={}", version()), &none);
        assert_eq!(kept.headers()[CACHE_CONTROL], "public, max-age=31536000, immutable");
        let other = ask("?v=0.0.0", &none);
        assert_eq!(other.headers()[CACHE_CONTROL], "no-cache");
        let mut again = HeaderMap::new();
        again.insert(IF_NONE_MATCH, other.headers()[ETAG].clone());
        assert_eq!(ask("", &again).status(), StatusCode::NOT_MODIFIED);
    }
}
