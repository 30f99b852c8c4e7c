//! The description of the API and the page that shows it, as they are served.

use http::Method;

use crate::gateway::{Call, Gateway};

/// What a browser may do on this page.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src 'self' data:; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";

fn get(path: &str) -> Call {
    Call::new(Method::GET, path).without_key()
}

#[tokio::test]
async fn the_description_is_served_without_a_key() {
    let gateway = Gateway::start().await;
    let reply = gateway.call(get("/openapi.json")).await;
    assert_eq!(reply.status, 200);
    assert_eq!(reply.headers["content-type"], "application/json");
    assert_eq!(reply.body, postrider_server::openapi());
    assert_eq!(reply.json()["info"]["version"], env!("CARGO_PKG_VERSION"));
}

#[tokio::test]
async fn every_file_of_the_page_is_served_and_kept_to_itself() {
    let gateway = Gateway::start().await;
    for (path, content_type) in [
        ("/docs", "text/html; charset=utf-8"),
        ("/docs/docs.css", "text/css; charset=utf-8"),
        ("/docs/docs.js", "text/javascript; charset=utf-8"),
    ] {
        let reply = gateway.call(get(path)).await;
        assert_eq!(reply.status, 200, "{path}");
        assert_eq!(reply.headers["content-type"], content_type);
        assert_eq!(reply.headers["content-security-policy"], POLICY);
        assert_eq!(reply.headers["x-content-type-options"], "nosniff");
        assert_eq!(reply.headers["referrer-policy"], "no-referrer");
        let text = String::from_utf8(reply.body.to_vec()).expect("text");
        assert!(!text.is_empty());
        for outside in ["http://", "https://", "src=\"//", "@import", " url("] {
            assert!(!text.contains(outside), "{path} asks for {outside}");
        }
    }
}

/// The policy forbids both, so they would not work; and the script must not make markup of texts.
#[tokio::test]
async fn the_page_has_nothing_inline_and_its_script_makes_no_markup() {
    let gateway = Gateway::start().await;
    let page = gateway.call(get("/docs")).await;
    let page = String::from_utf8(page.body.to_vec()).expect("text");
    for inline in ["<style", " style=", " onclick", "javascript:"] {
        assert!(!page.contains(inline), "{inline}");
    }
    assert_eq!(page.matches("<script").count(), 1);
    assert!(page.contains("<script src=\"docs/docs.js\" defer></script>"));
    let script = gateway.call(get("/docs/docs.js")).await;
    let script = String::from_utf8(script.body.to_vec()).expect("text");
    for markup in
        ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function("]
    {
        assert!(!script.contains(markup), "{markup}");
    }
    for memory in ["localStorage", "sessionStorage", "indexedDB", "cookie"] {
        assert!(!script.contains(memory), "the key would be kept in {memory}");
    }
}
