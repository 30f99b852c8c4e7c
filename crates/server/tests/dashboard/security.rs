//! What keeps a session to whoever began it, and other sites out.

use std::time::Duration;

use http::Method;
use postrider_server::ServerOptions;
use serde_json::json;

use crate::browser::{Ask, Browser, Page};
use crate::gateway::{Gateway, text};

const IDLE: Duration = Duration::from_mins(30);
const ALMOST_IDLE: Duration = Duration::from_mins(29);
const MINUTE: Duration = Duration::from_mins(1);

/// Everything that is shown to whoever has signed in, without ids.
const PAGES: &[&str] = &[
    "/",
    "/first-run",
    "/events",
    "/deliveries",
    "/dead-letters",
    "/endpoints",
    "/endpoints/new",
    "/policies",
    "/sources",
    "/hubs",
    "/nodes",
    "/keys",
    "/audit",
    "/settings",
];

fn cookies(page: &Page) -> Vec<&str> {
    let all = page.headers.get_all("set-cookie").iter();
    all.map(|cookie| cookie.to_str().expect("text")).collect()
}

fn is_in(page: &Page) -> bool {
    match page.status {
        200 => true,
        303 => false,
        other => panic!("{other}: {}", page.text),
    }
}

#[tokio::test]
async fn the_cookie_is_marked_for_the_way_it_travels() {
    let plain = Gateway::start().await;
    let public_url = Some("https://hooks.example".to_owned());
    let tls = Gateway::start_with(ServerOptions { public_url, ..ServerOptions::default() }).await;
    for (gateway, header, name, secure) in [
        (&plain, None, "postrider_session=", false),
        (&plain, Some(("x-forwarded-proto", "https")), "__Host-postrider_session=", true),
        (&plain, Some(("forwarded", "for=1.2.3.4;proto=https")), "__Host-postrider_session=", true),
        (&plain, Some(("x-forwarded-proto", "http")), "postrider_session=", false),
        (&tls, None, "__Host-postrider_session=", true),
    ] {
        let browser = Browser::nobody(gateway);
        let with = |ask: Ask| match header {
            Some((name, value)) => ask.header(name, value),
            None => ask,
        };
        let form = Ask::form("/sign-in", &[("key", &gateway.client.key)]);
        let entered = browser.send(with(form)).await.expect(303);
        let [cookie] = cookies(&entered)[..] else { panic!("not one: {entered:?}") };
        assert!(cookie.starts_with(name), "{cookie}");
        for mark in ["; HttpOnly", "; SameSite=Strict", "; Path=/", "; Max-Age=43200"] {
            assert!(cookie.contains(mark), "{cookie}");
        }
        assert!(!cookie.contains("Domain"), "{cookie}");
        assert_eq!(cookie.ends_with("; Secure"), secure, "{cookie}");
        let page = browser.send(with(Ask::new(Method::GET, "/deliveries"))).await;
        assert!(is_in(&page), "{header:?}");
    }
}

#[tokio::test]
async fn behind_tls_an_unmarked_cookie_is_worth_nothing() {
    let browser = Browser::signed_in().await;
    let ask = Ask::new(Method::GET, "/deliveries").header("x-forwarded-proto", "https");
    assert!(!is_in(&browser.send(ask).await));
    assert!(is_in(&browser.get("/deliveries").await));
}

#[tokio::test]
async fn a_session_that_nobody_uses_ends() {
    let browser = Browser::signed_in().await;
    for _ in 0..3 {
        browser.gateway.advance(ALMOST_IDLE);
        assert!(is_in(&browser.get("/deliveries").await), "it is used");
    }
    browser.gateway.advance(IDLE);
    assert!(!is_in(&browser.get("/deliveries").await));
    assert!(!is_in(&browser.get("/deliveries").await), "and does not come back");
}

#[tokio::test]
async fn a_page_that_renews_itself_is_not_somebody_who_uses_it() {
    let browser = Browser::signed_in().await;
    let renew = || {
        Ask::new(Method::GET, "/deliveries")
            .header("hx-request", "true")
            .header("hx-trigger", "live")
    };
    for _ in 0..5 {
        browser.gateway.advance(5 * MINUTE);
        browser.send(renew()).await.expect(200);
    }
    browser.gateway.advance(5 * MINUTE);
    browser.send(renew()).await.expect(401);
}

#[tokio::test]
async fn a_session_has_an_age_at_which_it_ends_however_it_is_used() {
    let browser = Browser::signed_in().await;
    for _ in 0..12 * 3 - 1 {
        browser.gateway.advance(20 * MINUTE);
        assert!(is_in(&browser.get("/deliveries").await));
    }
    browser.gateway.advance(20 * MINUTE);
    assert!(!is_in(&browser.get("/deliveries").await));
}

#[tokio::test]
async fn a_session_ends_with_its_key() {
    let browser = Browser::signed_in().await;
    let (gateway, client) = (&browser.gateway, &browser.gateway.client);
    let expires_at = gateway.now().plus(MINUTE).to_string();
    for (new, revoke) in [
        (json!({"name": "to be revoked"}), true),
        (json!({"name": "short", "expires_at": expires_at}), false),
    ] {
        let made = client.post("/v1/keys", &new).await.expect(201);
        let visitor = Browser::with_key(gateway, &text(&made["key"])).await;
        assert!(is_in(&visitor.get("/deliveries").await));
        if revoke {
            client.delete(&format!("/v1/keys/{}", text(&made["id"]))).await.expect(204);
        } else {
            gateway.advance(MINUTE);
        }
        assert!(!is_in(&visitor.get("/deliveries").await), "{new}");
    }
    assert!(is_in(&browser.get("/deliveries").await));
}

#[tokio::test]
async fn signing_out_ends_it_for_whoever_has_the_cookie() {
    let browser = Browser::signed_in().await;
    let thief = browser.copy();
    assert!(is_in(&thief.get("/deliveries").await));
    let out = browser.post("/sign-out", &[]).await.expect(303);
    assert_eq!(out.location().as_deref(), Some("/sign-in"));
    assert!(cookies(&out).iter().any(|cookie| cookie.contains("Max-Age=0")));
    assert_eq!(browser.cookie("postrider_session"), None);
    assert!(!is_in(&thief.get("/deliveries").await));
}

#[tokio::test]
async fn signing_in_again_ends_the_session_before() {
    let browser = Browser::signed_in().await;
    let before = browser.copy();
    browser.sign_in(&browser.gateway.client.key).await.expect(303);
    assert_ne!(browser.cookie("postrider_session"), before.cookie("postrider_session"));
    assert!(is_in(&browser.get("/deliveries").await));
    assert!(!is_in(&before.get("/deliveries").await));
}

#[tokio::test]
async fn a_change_needs_the_token_of_its_own_session() {
    let browser = Browser::signed_in().await;
    let other = Browser::with_key(&browser.gateway, &browser.gateway.client.key).await;
    let (mine, theirs) = (browser.csrf(), other.csrf());
    assert_ne!(mine, theirs);
    let cookie = browser.cookie("postrider_session").expect("a session");
    for fields in [
        &[][..],
        &[("csrf", "")],
        &[("csrf", "wrong")],
        &[("csrf", &theirs)],
        &[("csrf", &cookie)],
        &[("csrf", &mine[1..])],
    ] {
        let page = browser.post_without_token("/sign-out", fields).await.expect(403);
        page.assert_has("nothing was changed");
        assert!(is_in(&browser.get("/deliveries").await), "{fields:?}");
    }
    // A wrong header is not made good by the field: it is what the script of a page would send.
    let mixed = Ask::form("/sign-out", &[("csrf", &mine)]).header("x-csrf-token", &theirs);
    browser.send(mixed).await.expect(403);
    let out = browser.post_part("/sign-out", &[]).await.expect(200);
    assert_eq!(out.headers["hx-redirect"], "/sign-in");
    assert!(!is_in(&browser.get("/deliveries").await));
}

#[tokio::test]
async fn what_another_site_sends_is_refused_even_with_the_token() {
    let browser = Browser::signed_in().await;
    let own = format!("http://{}", browser.gateway.address);
    let csrf = browser.csrf();
    let fields = [("csrf", csrf.as_str()), ("tenant", "default")];
    for (name, value, status) in [
        ("sec-fetch-site", "cross-site", 403),
        ("sec-fetch-site", "same-site", 403),
        ("origin", "https://evil.example", 403),
        ("origin", "null", 403),
        ("origin", "http://127.0.0.1:1", 403),
        ("sec-fetch-site", "same-origin", 303),
        ("sec-fetch-site", "none", 303),
        ("origin", own.as_str(), 303),
    ] {
        let ask = Ask::form("/tenant", &fields).header(name, value);
        browser.send(ask).await.expect(status);
        let ask = Ask::form("/sign-in", &[("key", &browser.gateway.client.key)]);
        let entered = Browser::nobody(&browser.gateway).send(ask.header(name, value)).await;
        entered.expect(status);
    }
}

#[tokio::test]
async fn a_form_is_a_form_and_of_a_bearable_size() {
    let browser = Browser::signed_in().await;
    let csrf = browser.csrf();
    let body = format!("csrf={csrf}&tenant=default");
    for kind in ["text/plain", "multipart/form-data; boundary=x", "application/json"] {
        let ask = Ask::new(Method::POST, "/tenant").header("content-type", kind).body(&*body);
        browser.send(ask).await.expect(415);
    }
    let large = "a".repeat(256 << 10);
    browser.post("/tenant", &[("tenant", &large)]).await.expect(413);
    let many = vec![("a", "b"); 1_001];
    browser.post("/tenant", &many).await.expect(413);
    browser.post("/tenant", &[("tenant", "default")]).await.expect(303);
}

#[tokio::test]
async fn signing_in_leads_to_pages_of_this_gateway_only() {
    let gateway = Gateway::start().await;
    for (next, lands) in [
        ("/deliveries?state=dead", "/deliveries?state=dead"),
        ("", "/"),
        ("//evil.example", "/"),
        ("/\\evil.example", "/"),
        ("/\t/evil.example", "/"),
        ("/.//evil.example", "/"),
        ("https://evil.example", "/"),
        ("javascript:alert(1)", "/"),
        ("/sign-in?next=/sign-in", "/"),
        ("/sign-out", "/"),
        ("/a\r\nset-cookie: a=b", "/"),
    ] {
        let browser = Browser::nobody(&gateway);
        let fields = [("key", gateway.client.key.as_str()), ("next", next)];
        let entered = browser.post_without_token("/sign-in", &fields).await.expect(303);
        assert_eq!(entered.location().as_deref(), Some(lands), "{next:?}");
        assert_eq!(cookies(&entered).len(), 1, "{next:?}");
    }
}

#[tokio::test]
async fn wrong_keys_are_counted_and_the_address_has_to_wait() {
    let gateway = Gateway::start().await;
    let browser = Browser::nobody(&gateway);
    let mut statuses = Vec::new();
    for attempt in 0..25 {
        statuses.push(browser.sign_in(&format!("pr_{attempt}")).await.status);
    }
    assert_eq!(statuses[0], 401);
    assert_eq!(statuses[24], 429);
    let waiting = browser.sign_in(&gateway.client.key).await.expect(429);
    assert!(waiting.headers.contains_key("retry-after"));
    waiting.assert_has("too many unknown keys");
    assert!(waiting.headers.get("set-cookie").is_none());
    gateway.advance(MINUTE);
    browser.sign_in(&gateway.client.key).await.expect(303);
}

#[tokio::test]
async fn the_limit_of_an_address_holds_for_pages_too() {
    let options =
        ServerOptions { requests_per_second_per_address: Some(2), ..ServerOptions::default() };
    let gateway = Gateway::start_with(options).await;
    let browser = Browser::nobody(&gateway);
    browser.get("/deliveries").await.expect(303);
    browser.get("/deliveries").await.expect(303);
    let refused = browser.get("/deliveries").await.expect(429);
    assert_eq!(refused.headers["retry-after"], "1");
}

#[tokio::test]
async fn every_page_needs_a_session_and_has_its_guards() {
    let browser = Browser::signed_in().await;
    let stranger = Browser::nobody(&browser.gateway);
    for path in PAGES {
        let turned_away = stranger.get(path).await.expect(303);
        let shown = browser.open(path).await.expect(200);
        assert_eq!(shown.headers["content-type"], "text/html; charset=utf-8", "{path}");
        for page in [&turned_away, &shown] {
            let header = |name: &str| {
                let value = page.headers.get(name).unwrap_or_else(|| panic!("{name} at {path}"));
                value.to_str().expect("text").to_owned()
            };
            let policy = header("content-security-policy");
            for part in ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"] {
                assert!(policy.contains(part), "{policy}");
            }
            assert!(!policy.contains("unsafe"), "{policy}");
            assert_eq!(header("x-content-type-options"), "nosniff");
            assert_eq!(header("referrer-policy"), "same-origin");
            assert_eq!(header("cache-control"), "no-store");
        }
        assert_eq!(shown.text.matches("<h1").count(), 1, "{path}");
        for forbidden in ["<style", " style=", " onclick", " onload", "hx-on", "javascript:"] {
            assert!(!shown.has(forbidden), "{forbidden} at {path}");
        }
        assert_eq!(
            shown.text.matches("<script").count(),
            shown.text.matches("<script src=\"/assets/").count(),
            "{path}"
        );
        let posts = shown.text.matches("method=\"post\"").count();
        assert!(posts <= shown.text.matches("name=\"csrf\"").count(), "{path}");
    }
}

#[tokio::test]
async fn the_api_takes_no_cookie_and_unknown_paths_are_problems() {
    let browser = Browser::signed_in().await;
    for (path, status) in [("/v1/events", 401), ("/nowhere", 404), ("/assets/nothing.js", 404)] {
        let page = browser.get(path).await.expect(status);
        assert_eq!(page.headers["content-type"], "application/problem+json", "{path}");
    }
    let wrong = browser.send(Ask::new(Method::PUT, "/sign-in")).await.expect(405);
    assert_eq!(wrong.headers["content-type"], "application/problem+json");
}

#[tokio::test]
async fn assets_are_there_for_everybody_and_kept() {
    let gateway = Gateway::start().await;
    let browser = Browser::nobody(&gateway);
    let form = browser.get("/sign-in").await.expect(200);
    let (_, rest) = form.text.split_once("href=\"/assets/postrider.css").expect("a style");
    let address = format!("/assets/postrider.css{}", rest.split('"').next().expect("its end"));
    for (path, kind, keep) in [
        (address.as_str(), "text/css; charset=utf-8", "public, max-age=31536000, immutable"),
        ("/assets/postrider.js", "text/javascript; charset=utf-8", "no-cache"),
        ("/assets/htmx.js", "text/javascript; charset=utf-8", "no-cache"),
        ("/assets/idiomorph.js", "text/javascript; charset=utf-8", "no-cache"),
        ("/assets/favicon.svg", "image/svg+xml", "no-cache"),
    ] {
        let asset = browser.get(path).await.expect(200);
        assert_eq!(asset.headers["content-type"], kind);
        assert_eq!(asset.headers["cache-control"], keep);
        assert_eq!(asset.headers["x-content-type-options"], "nosniff");
    }
}

/// What a page must not have: text that is not escaped, and anything that a browser would run or
/// apply in spite of the policy, or complain about because of it.
#[test]
fn templates_have_nothing_that_runs_and_every_form_its_token() {
    const FORBIDDEN: &[&str] = &[
        "|safe",
        "| safe",
        "|escape",
        "<style",
        " style=",
        "<script>",
        " onclick=",
        " onload=",
        " onerror=",
        " onchange=",
        " oninput=",
        " onsubmit=",
        "hx-on",
        "javascript:",
        "js:",
        "href=\"http",
        "src=\"http",
        "<iframe",
        "<object",
        "<embed",
        "target=\"_blank\"",
    ];

    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/templates");
    let mut looked_at = 0;
    for entry in std::fs::read_dir(folder).expect("the templates") {
        let path = entry.expect("a file").path();
        let name = path.display().to_string();
        let text = std::fs::read_to_string(&path).expect("text");
        for forbidden in FORBIDDEN {
            assert!(!text.contains(forbidden), "{forbidden:?} in {name}");
        }
        // The form that begins a session has none to take a token from.
        if !name.ends_with("sign_in.html") {
            for form in text.split("<form").skip(1) {
                let form = form.split("</form>").next().unwrap_or(form);
                let changes = form.split('>').next().is_some_and(|tag| tag.contains("\"post\""));
                assert!(!changes || form.contains("name=\"csrf\""), "a form in {name}");
            }
        }
        looked_at += 1;
    }
    assert!(looked_at > 0, "no template in {folder}");
}
