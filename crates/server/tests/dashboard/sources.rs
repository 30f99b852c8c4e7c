//! The pages of sources: making one, what it shows, the command that tries it, and taking it away.

use std::process::Stdio;

use postrider_engine::ports::{Clock as _, SystemClock};
use postrider_server::ServerOptions;
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::time::timeout;

use crate::PATIENCE;
use crate::browser::{Browser, Page};
use crate::gateway::{Gateway, text};

const SECRET: &str = "correct-horse-battery";
const WHSEC: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

async fn source(gateway: &Gateway, body: Value) -> String {
    text(&gateway.client.post("/v1/sources", &body).await.expect(201)["id"])
}

/// What stands in an element, as a browser would show it.
#[track_caller]
fn shown(page: &Page, id: &str) -> String {
    let (_, rest) = page.text.split_once(&format!("id=\"{id}\"")).expect("the element");
    let (_, rest) = rest.split_once('>').expect("its content");
    let (inner, _) = rest.split_once('<').expect("its end");
    [("&#34;", "\""), ("&#39;", "'"), ("&#60;", "<"), ("&#62;", ">"), ("&#38;", "&")]
        .iter()
        .fold(inner.to_owned(), |text, (entity, char)| text.replace(entity, char))
}

#[tokio::test]
async fn a_source_is_made_by_its_form_and_shows_its_url() {
    let browser = Browser::signed_in().await;
    browser.get("/sources").await.expect(200).assert_has("There is no source yet");
    browser.get("/sources/new").await.expect(200).assert_has("Standard Webhooks");
    let fields = [
        ("name", "Shop payments"),
        ("verify.scheme", "github"),
        ("verify.secret", SECRET),
        ("on_invalid", "mark"),
        ("type_from", "usual"),
        ("dedup_from", "json_pointer"),
        ("dedup_value", "/id"),
        ("keep_headers", "X-One\r\nx-two"),
    ];
    let made = browser.post("/sources", &fields).await.expect(303);
    let path = made.location().expect("a page");
    let page = browser.get(&path).await.expect(200);
    let url = format!("http://{}/in/", browser.gateway.address);
    assert!(shown(&page, "url").starts_with(&url), "{}", shown(&page, "url"));
    page.assert_has("The source was made");
    page.assert_has("/id in the body");
    page.assert_lacks(SECRET);
    browser.get("/sources").await.expect(200).assert_has(&url);

    let id = path.strip_prefix("/sources/").expect("its page");
    let stored = browser.gateway.client.get(&format!("/v1/sources/{id}")).await.expect(200);
    assert_eq!(stored["verify"], json!({"scheme": "github", "secrets": 1}));
    assert_eq!(stored["type_from"], json!({"header": "x-github-event"}));
    assert_eq!(stored["dedup_from"], json!({"json_pointer": "/id"}));
    assert_eq!(stored["keep_headers"], json!(["x-one", "x-two"]));
    assert_eq!(stored["on_invalid"], "mark");
}

#[tokio::test]
async fn a_configured_public_url_is_the_one_to_copy() {
    let public_url = Some("https://hooks.example".to_owned());
    let options = ServerOptions { public_url, ..ServerOptions::default() };
    let gateway = Gateway::start_with(options).await;
    let id = source(&gateway, json!({"name": "a", "verify": {"scheme": "none"}})).await;
    let browser = Browser::with_key(&gateway, &gateway.client.key).await;
    let page = browser.get(&format!("/sources/{id}")).await.expect(200);
    assert!(shown(&page, "url").starts_with("https://hooks.example/in/"));
    assert!(shown(&page, "sample").contains("https://hooks.example/in/"));
}

#[tokio::test]
async fn the_sample_of_every_scheme_is_believed() {
    let gateway = Gateway::start().await;
    // The commands take the time from the machine.
    gateway.clock.set(SystemClock.now());
    let browser = Browser::with_key(&gateway, &gateway.client.key).await;
    let hmac = |more: Value| {
        let mut verify = json!({"scheme": "hmac", "header": "X-Signature", "secret": SECRET});
        for (name, value) in more.as_object().expect("an object") {
            verify[name] = value.clone();
        }
        verify
    };
    let mut schemes: Vec<(Value, &str)> = vec![
        (json!({"scheme": "standard", "secret": WHSEC}), WHSEC),
        (hmac(json!({})), SECRET),
        (hmac(json!({"prefix": "it's ", "encoding": "base64", "algorithm": "sha512"})), SECRET),
        (
            hmac(json!({
                "encoding": "base64url",
                "algorithm": "sha1",
                "signed": "v1:{method}:{url}:{header:x-id}:{timestamp}:'{body}'",
                "timestamp": {"header": "X-Time", "format": "unix_ms"},
            })),
            SECRET,
        ),
        (hmac(json!({"timestamp": {"header": "X-Time", "format": "rfc3339"}})), SECRET),
        (
            json!({"scheme": "token", "header": "X-Token", "prefix": "Key ", "secret": SECRET}),
            SECRET,
        ),
        (json!({"scheme": "token", "authorization": "bearer", "secret": SECRET}), SECRET),
        (json!({"scheme": "token", "authorization": "basic", "secret": "me:pass"}), "me:pass"),
        (json!({"scheme": "token", "query": "a key", "secret": SECRET}), SECRET),
    ];
    for scheme in ["github", "stripe", "slack", "shopify", "twilio", "linear", "paddle", "telegram"]
    {
        schemes.push((json!({"scheme": scheme, "secret": SECRET}), SECRET));
    }
    for (verify, secret) in &schemes {
        let id = source(&gateway, json!({"name": "tried", "verify": verify})).await;
        // Paddle's signatures are good for five seconds.
        gateway.clock.set(SystemClock.now());
        let page = browser.get(&format!("/sources/{id}")).await.expect(200);
        let sample = shown(&page, "sample");
        let (first, rest) = sample.split_once('\n').expect("some lines");
        assert!(first.starts_with("SECRET="), "{sample}");
        let command = format!("SECRET='{secret}'\n{rest}");
        let answer = run(&command).await;
        let events = gateway.client.get(&format!("/v1/events?source={id}")).await.expect(200);
        assert_eq!(events["data"][0]["verified"], true, "{verify}\n{command}\n{answer}");
    }
    let open = source(&gateway, json!({"name": "open", "verify": {"scheme": "none"}})).await;
    let page = browser.get(&format!("/sources/{open}")).await.expect(200);
    run(&shown(&page, "sample")).await;
    let events = gateway.client.get(&format!("/v1/events?source={open}")).await.expect(200);
    assert_eq!(events["data"].as_array().map(Vec::len), Some(1), "{events}");
}

/// Runs a command as a user would who pastes it: it needs curl and openssl.
async fn run(command: &str) -> String {
    let shell = Command::new("sh")
        .args(["-c", command])
        .env_remove("http_proxy")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = timeout(PATIENCE, shell).await.expect("an end in time").expect("sh runs");
    let [out, err] =
        [output.stdout, output.stderr].map(|b| String::from_utf8_lossy(&b).into_owned());
    format!("{out}{err}")
}

#[tokio::test]
async fn the_list_says_what_came_last_and_whether_it_was_verified() {
    let browser = Browser::signed_in().await;
    let gateway = &browser.gateway;
    let token = json!({"scheme": "token", "query": "t", "secret": SECRET});
    let mut urls = Vec::new();
    for name in ["good", "forged", "silent"] {
        let body = json!({"name": name, "verify": token, "on_invalid": "mark"});
        let made = gateway.client.post("/v1/sources", &body).await.expect(201);
        urls.push((name, text(&made["id"]), text(&made["url"])));
    }
    for ((_, _, url), secret) in urls.iter().zip([SECRET, "guessed"]) {
        gateway.client.post(&format!("{url}?t={secret}"), &json!({"a": 1})).await.expect(202);
    }
    let list = browser.get("/sources").await.expect(200);
    for ((name, id, _), (came, verified)) in urls.iter().zip([
        ("webhook.received", "state-verified\">verified"),
        ("webhook.received", "state-failed\">failed"),
        ("never", "none yet"),
    ]) {
        let (_, row) = list.text.split_once(&format!("/sources/{id}\">{name}")).expect(name);
        let (row, _) = row.split_once("</tr>").expect("a row");
        assert!(row.contains(came) && row.contains(verified), "{row}");
    }
    let page = browser.get(&format!("/sources/{}", urls[1].1)).await.expect(200);
    page.assert_has("state-failed\">failed");
}

#[tokio::test]
async fn what_is_wrong_stands_at_its_field_and_no_secret_comes_back() {
    let browser = Browser::signed_in().await;
    let good = [("name", "a"), ("verify.scheme", "github"), ("verify.secret", SECRET)];
    let with = |changes: &[(&'static str, &'static str)]| {
        let kept = good.iter().filter(|(name, _)| !changes.iter().any(|(other, _)| other == name));
        kept.chain(changes).copied().chain([("on_invalid", "reject")]).collect::<Vec<_>>()
    };
    for (changes, field) in [
        (&[("name", "")][..], "name"),
        (&[("verify.secret", "")], "verify.secret"),
        (&[("verify.scheme", "rot13")], "verify.scheme"),
        (&[("verify.scheme", "standard")], "verify.secret"),
        (&[("verify.scheme", "stripe"), ("verify.tolerance", "soon")], "verify.tolerance"),
        (&[("verify.scheme", "hmac")], "verify.header"),
        (
            &[("verify.scheme", "hmac"), ("verify.header", "x-s"), ("verify.signed", "{nothing}")],
            "verify.signed",
        ),
        (&[("verify.scheme", "token"), ("place", "query")], "verify.header"),
        (&[("type_from", "json_pointer"), ("type_value", "type")], "type_from"),
        (&[("dedup_from", "header"), ("dedup_value", "a b")], "dedup_from"),
        (&[("keep_headers", "a b")], "keep_headers"),
        (&[("on_invalid", "ignore")], "on_invalid"),
    ] {
        let mut fields = with(changes);
        if changes.iter().any(|(name, _)| *name == "on_invalid") {
            fields.retain(|field| *field != ("on_invalid", "reject"));
        }
        let page = browser.post("/sources", &fields).await.expect(422);
        assert!(!shown(&page, &format!("error-{field}")).is_empty(), "{field}: {}", page.text);
        page.assert_has("role=\"alert\"");
        page.assert_lacks(SECRET);
    }
    let listed = browser.gateway.client.get("/v1/sources").await.expect(200);
    assert_eq!(listed["data"], json!([]), "none of them was made");
}

#[tokio::test]
async fn an_edit_keeps_the_secret_and_what_is_left_to_the_scheme() {
    let browser = Browser::signed_in().await;
    let gateway = &browser.gateway;
    let verify = json!({"scheme": "stripe", "secret": SECRET, "tolerance": "1m"});
    let id = source(gateway, json!({"name": "before", "verify": verify})).await;
    let (page, api) = (format!("/sources/{id}/edit"), format!("/v1/sources/{id}"));
    let form = browser.get(&page).await.expect(200);
    form.assert_has("value=\"before\"");
    form.assert_has("value=\"1m\"");
    form.assert_has("Leave it empty to keep what it has");
    let usual = [("type_from", "json_pointer"), ("type_value", "/type")];
    let dedup = [("dedup_from", "json_pointer"), ("dedup_value", "/id")];
    let rest = [("name", "after"), ("verify.tolerance", "2m"), ("on_invalid", "mark")];
    let fields = [&[("verify.scheme", "stripe")][..], &rest, &usual, &dedup].concat();
    browser.post(&page, &fields).await.expect(303);
    let stored = gateway.client.get(&api).await.expect(200);
    assert_eq!(stored["verify"], json!({"scheme": "stripe", "tolerance": "2m", "secrets": 1}));
    assert_eq!((&stored["name"], &stored["on_invalid"]), (&json!("after"), &json!("mark")));

    let fields = [&[("verify.scheme", "github")][..], &rest, &usual, &dedup].concat();
    let refused = browser.post(&page, &fields).await.expect(422);
    assert!(!shown(&refused, "error-verify.secret").is_empty(), "another scheme, another secret");
    let fields =
        [&[("verify.scheme", "github"), ("verify.secret", "x"), ("older_secret", "y")][..], &rest]
            .concat();
    let fields = [&fields[..], &usual, &dedup].concat();
    browser.post(&page, &fields).await.expect(303);
    let stored = gateway.client.get(&api).await.expect(200);
    assert_eq!(stored["verify"], json!({"scheme": "github", "secrets": 2}));
    assert_eq!(stored["type_from"], json!({"header": "x-github-event"}), "left to the scheme");
}

#[tokio::test]
async fn the_fields_follow_the_scheme_with_and_without_a_script() {
    let browser = Browser::signed_in().await;
    for (scheme, has, lacks) in [
        ("none", "id=\"options\"", "name=\"verify.secret\""),
        ("github", "name=\"verify.secret\"", "name=\"verify.tolerance\""),
        ("stripe", "name=\"verify.tolerance\"", "name=\"verify.header\""),
        ("hmac", "name=\"verify.signed\"", "name=\"place\""),
        ("token", "name=\"place\"", "name=\"verify.signed\""),
    ] {
        let fields = [("verify.scheme", scheme), ("name", "typed")];
        let part = browser.post_part("/sources/options", &fields).await.expect(200);
        part.assert_has(has);
        part.assert_lacks(lacks);
        part.assert_lacks("<html");
        let fields = [&fields[..], &[("show_options", "yes")]].concat();
        let page = browser.post("/sources", &fields).await.expect(200);
        page.assert_has(has);
        page.assert_lacks(lacks);
        page.assert_has("value=\"typed\"");
    }
}

#[tokio::test]
async fn a_new_url_and_the_end_of_a_source_are_asked_for_twice() {
    let browser = Browser::signed_in().await;
    let gateway = &browser.gateway;
    let id = source(gateway, json!({"name": "a", "verify": {"scheme": "none"}})).await;
    let api = format!("/v1/sources/{id}");
    let before = gateway.client.get(&api).await.expect(200);
    let ask = format!("/sources/{id}/rotate-token");
    browser.get(&ask).await.expect(200).assert_has("stops working at once");
    assert_eq!(gateway.client.get(&api).await.expect(200), before, "asking changes nothing");
    browser.post(&ask, &[]).await.expect(303);
    assert_ne!(gateway.client.get(&api).await.expect(200)["url"], before["url"]);
    let ask = format!("/sources/{id}/delete");
    browser.get(&ask).await.expect(200).assert_has("Delete the source a?");
    let gone = browser.post(&ask, &[]).await.expect(303);
    assert_eq!(gone.location().as_deref(), Some("/sources"));
    assert_eq!(gateway.client.get(&api).await.status, 404);
}

#[tokio::test]
async fn without_the_token_nothing_changes() {
    let browser = Browser::signed_in().await;
    let gateway = &browser.gateway;
    let id = source(gateway, json!({"name": "a", "verify": {"scheme": "none"}})).await;
    let before = gateway.client.get(&format!("/v1/sources/{id}")).await.expect(200);
    let fields = [("name", "b"), ("verify.scheme", "none"), ("on_invalid", "reject")];
    for path in
        ["", &format!("/{id}/edit"), &format!("/{id}/rotate-token"), &format!("/{id}/delete")]
    {
        browser.post_without_token(&format!("/sources{path}"), &fields).await.expect(403);
    }
    let listed = gateway.client.get("/v1/sources").await.expect(200);
    assert_eq!(listed["data"].as_array().map(Vec::len), Some(1));
    assert_eq!(gateway.client.get(&format!("/v1/sources/{id}")).await.expect(200), before);
}

#[tokio::test]
async fn a_tenant_sees_its_own_and_names_are_text() {
    let gateway = Gateway::start().await;
    let hostile = "</code><script>alert(1)</script>\u{202e}";
    let id = source(&gateway, json!({"name": hostile, "verify": {"scheme": "none"}})).await;
    let admin = Browser::with_key(&gateway, &gateway.client.key).await;
    for path in ["/sources".into(), format!("/sources/{id}"), format!("/sources/{id}/edit")] {
        let page = admin.get(&path).await.expect(200);
        page.assert_lacks("<script>alert");
        page.assert_has("script&#62;alert(1)");
    }
    admin.get("/sources").await.assert_lacks("\u{202e}");

    let tenant = Browser::with_key(&gateway, &gateway.tenant("acme").await.key).await;
    tenant.get("/sources").await.expect(200).assert_has("There is no source yet");
    for path in ["", "/edit", "/rotate-token", "/delete"] {
        tenant.get(&format!("/sources/{id}{path}")).await.expect(404);
    }
    tenant.post(&format!("/sources/{id}/delete"), &[]).await.expect(404);
    tenant.get("/sources/nothing").await.expect(404);
    assert_eq!(gateway.client.get(&format!("/v1/sources/{id}")).await.status, 200);
}
