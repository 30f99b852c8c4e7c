//! Endpoints: listed, made, changed, tried, stopped and deleted by forms.

use http::Method;
use serde_json::{Value, json};

use crate::browser::{Browser, Page};
use crate::gateway::{Gateway, text};
use crate::sink::{Reply, Sink};

const HOSTILE: &str = "\"><script>alert(1)</script>\u{202e}<img src=x onerror=alert(2)>";

/// No markup of `HOSTILE`, and none of its steering, got onto the page.
#[track_caller]
fn assert_inert(page: &Page) {
    for text in ["<script>alert", "<img src=x", "\u{202e}"] {
        page.assert_lacks(text);
    }
}

async fn shown(gateway: &Gateway, id: &str) -> Value {
    gateway.client.get(&format!("/v1/endpoints/{id}")).await.expect(200)
}

async fn count(gateway: &Gateway) -> usize {
    let listed = gateway.client.get("/v1/endpoints").await.expect(200);
    listed["data"].as_array().expect("a list").len()
}

/// The id that a form was answered with.
#[track_caller]
fn made(page: &Page) -> String {
    assert_eq!(page.status, 303, "{}", page.text);
    let location = page.location().expect("a way on");
    location.strip_prefix("/endpoints/").expect("the page of an endpoint").to_owned()
}

/// The values that the edit page has in its controls, as a browser would send them.
fn values(page: &Page, name: &str) -> Option<String> {
    let mark = format!("name=\"{name}\" value=\"");
    let (_, rest) = page.text.split_once(&mark)?;
    Some(rest.split('"').next()?.replace("&#38;", "&"))
}

#[tokio::test]
async fn endpoints_are_listed_with_how_they_are_doing() {
    let browser = Browser::signed_in().await;
    let gateway = &browser.gateway;
    browser.get("/endpoints").await.expect(200).assert_has("There is no endpoint yet");
    let good = Sink::answering(200).await;
    let bad = Sink::answering(400).await;
    let orders = gateway.endpoint(&good.url(), json!({"name": "orders"})).await;
    let refunds = gateway.endpoint(&bad.url(), json!({"name": "refunds", "policy": "edge"})).await;
    let sent = gateway.send(json!({"type": "a.b", "payload": 1})).await;
    for (delivery, state) in sent.deliveries.iter().zip(["failed", "delivered"]) {
        gateway.until_state(delivery, state).await;
    }
    gateway.client.act(&format!("/v1/endpoints/{orders}/pause")).await.expect(200);
    gateway.send(json!({"type": "a.b", "payload": 1})).await;
    let page = browser.get("/endpoints").await.expect(200);
    page.assert_has(&format!("href=\"/endpoints/{orders}\">orders</a>"));
    page.assert_has("state-paused");
    page.assert_has("state-active");
    page.assert_has(&format!("/deliveries?endpoint={orders}&amp;state=pending,in_flight,retrying"));
    page.assert_has(&format!("/dead-letters?endpoint={refunds}"));
    page.assert_has("100 %");
    page.assert_has("<svg class=\"spark\"");
    page.assert_has("data-live=\"all\"");
}

#[tokio::test]
async fn endpoints_are_found_by_name_address_or_id() {
    let browser = Browser::signed_in().await;
    let gateway = &browser.gateway;
    let a = gateway.endpoint("https://example.com/a", json!({"name": "Orders & more"})).await;
    gateway.endpoint("https://example.org/b", json!({"name": "refunds"})).await;
    for wanted in ["orders", "ERS+%26+M", "example.com", &a] {
        let page = browser.get(&format!("/endpoints?q={wanted}")).await.expect(200);
        page.assert_has("Orders &#38; more");
        page.assert_lacks("refunds");
    }
    let none = browser.get("/endpoints?q=%3Cscript%3Ealert(1)").await.expect(200);
    none.assert_has("No endpoint is called like that");
    assert_inert(&none);
}

#[tokio::test]
async fn a_list_goes_on_after_its_page() {
    let browser = Browser::signed_in().await;
    for index in 0..52 {
        let name = json!({"name": format!("number-{index}.")});
        browser.gateway.endpoint("https://example.com/", name).await;
    }
    let first = browser.get("/endpoints?q=number").await.expect(200);
    let (_, next) = first.text.split_once("href=\"/endpoints?q=number").expect("a next page");
    let next = next.split('"').next().expect("an end").replace("&#38;", "&");
    first.assert_has("number-51.");
    first.assert_lacks("number-1.");
    let second = browser.get(&format!("/endpoints?q=number{next}")).await.expect(200);
    for (name, there) in [("number-2.", false), ("number-1.", true), ("number-0.", true)] {
        assert_eq!(second.has(name), there, "{name}");
    }
    second.assert_lacks("rel=\"next\"");
}

#[tokio::test]
async fn an_endpoint_is_made_with_every_field() {
    let browser = Browser::signed_in().await;
    let gateway = &browser.gateway;
    let form = browser.get("/endpoints/new").await.expect(200);
    form.assert_has("hx-post=\"/endpoints/check\"");
    form.assert_has("Make the endpoint");
    let source = json!({"name": "shop", "verify": {"scheme": "none"}});
    let source = text(&gateway.client.post("/v1/sources", &source).await.expect(201)["id"]);
    browser.get("/endpoints/new").await.expect(200).assert_has(&format!("value=\"{source}\""));
    let page = browser
        .post(
            "/endpoints",
            &[
                ("name", " orders "),
                ("place", "url"),
                ("url", "https://example.com/hook"),
                ("hub", ""),
                ("command", ""),
                ("event_types", "order.*\r\nrefund.made"),
                ("sources", &source),
                ("filter", "payload.total > 100"),
                ("preset", "router"),
                ("schedule", "list"),
                ("list", "30s 2m"),
                ("jitter", "0.1"),
                ("max_attempts", "4"),
                ("max_age", "2d"),
                ("class_key", "418"),
                ("class_rule", "final"),
                ("class_key", ""),
                ("class_rule", "final"),
                ("ordering", "fifo_by_key"),
                ("per_second", "2.5"),
                ("burst", "4"),
                ("max_in_flight", "7"),
                ("timeout", "5s"),
                ("headers", "X-Team: blue\r\nX-More: a:b"),
                ("signing", "sha256_hex"),
                ("signing_header", "X-Hub-Signature"),
                ("secret", "a secret of the receiver"),
                ("format", ""),
                ("tls", "none"),
                ("metadata", "{\"owner\": \"team\"}"),
            ],
        )
        .await;
    let id = made(&page);
    let endpoint = shown(gateway, &id).await;
    for (field, value) in [
        ("name", json!("orders")),
        ("url", json!("https://example.com/hook")),
        ("event_types", json!(["order.*", "refund.made"])),
        ("sources", json!([source])),
        ("filter", json!("payload.total > 100")),
        (
            "policy",
            json!({"preset": "router", "schedule": {"list": ["30s", "2m"], "jitter": 0.1},
                "max_attempts": 4, "max_age": "2d", "classify": {"418": "final"}}),
        ),
        ("ordering", json!("fifo_by_key")),
        ("rate_limit", json!({"per_second": 2.5, "burst": 4})),
        ("max_in_flight", json!(7)),
        ("timeout", json!("5s")),
        ("headers", json!({"X-Team": "blue", "X-More": "a:b"})),
        ("signing", json!({"scheme": "sha256_hex", "header": "X-Hub-Signature"})),
        ("metadata", json!({"owner": "team"})),
        ("state", json!("active")),
    ] {
        assert_eq!(endpoint[field], value, "{field}");
    }
    let secret = gateway.client.get(&format!("/v1/endpoints/{id}/secret")).await.expect(200);
    assert_eq!(secret["secret"], "a secret of the receiver");
    // Header values may be secrets: they are shown only where they are changed.
    let page = browser.open(&format!("/endpoints/{id}")).await.expect(200);
    page.assert_has("Made.");
    page.assert_has("X-Team");
    page.assert_lacks("blue");
}

#[tokio::test]
async fn deliveries_can_go_to_any_kind_of_place() {
    let browser = Browser::signed_in().await;
    let gateway = &browser.gateway;
    let hub = gateway.client.post("/v1/hubs", &json!({"name": "shed"})).await.expect(201);
    let hub = text(&hub["id"]);
    let fields = [("url", "https://example.com/"), ("hub", hub.as_str()), ("signing", "standard")];
    for (place, field, value) in [
        ("url", "url", json!("https://example.com/")),
        ("hub", "hub", json!(hub)),
        ("pull", "pull", json!(true)),
    ] {
        let fields: Vec<_> = fields.into_iter().chain([("place", place)]).collect();
        let id = made(&browser.post("/endpoints", &fields).await);
        assert_eq!(shown(gateway, &id).await[field], value);
        let page = browser.get(&format!("/endpoints/{id}/edit")).await.expect(200);
        page.assert_has(&format!("name=\"place\" value=\"{place}\" checked"));
    }
    // Programs are for the operator to allow.
    let refused = [("place", "command"), ("command", "/bin/true\r\n--quietly")];
    let refused = browser.post("/endpoints", &refused).await.expect(422);
    refused.assert_has("--quietly</textarea>");
    refused.assert_has("href=\"#command\"");
}

#[tokio::test]
async fn a_form_that_is_refused_keeps_what_was_typed_and_says_where_it_is_wrong() {
    let browser = Browser::signed_in().await;
    let url = ("url", "https://example.com/");
    let cases: &[(&[(&str, &str)], &str)] = &[
        (&[], "url"),
        (&[("url", "http://10.0.0.1/")], "url"),
        (&[("url", "\"><script>alert(1)</script>")], "url"),
        (&[url, ("filter", "payload.total >")], "filter"),
        (&[url, ("event_types", "a..b")], "event_types"),
        (&[url, ("headers", "no colon")], "headers"),
        (&[url, ("headers", "Host: example.org")], "headers"),
        (&[url, ("timeout", "2m")], "timeout"),
        (&[url, ("max_in_flight", "0")], "max_in_flight"),
        (&[url, ("max_in_flight", "many")], "max_in_flight"),
        (&[url, ("per_second", "0")], "per_second"),
        (&[url, ("metadata", "[]")], "metadata"),
        (&[url, ("secret", "short")], "secret"),
        (&[url, ("signing", "sha256_hex"), ("signing_header", "Host")], "signing"),
        (&[url, ("max_attempts", "0")], "max_attempts"),
        (&[url, ("schedule", "list"), ("list", "5s soon")], "list"),
        (&[url, ("unlimited_attempts", "on")], "max_attempts"),
        (&[url, ("tls", "set"), ("client_cert", "nonsense")], "client_key"),
        (&[url, ("tls", "set"), ("ca", "nonsense")], "ca"),
    ];
    for (fields, control) in cases {
        let kept = "a name that is kept & escaped";
        let all: Vec<_> =
            [("name", kept), ("place", "url")].iter().chain(*fields).copied().collect();
        let page = browser.post("/endpoints", &all).await.expect(422);
        page.assert_has("a name that is kept &#38; escaped");
        let mark = format!("href=\"#{control}\"");
        assert!(page.has(&mark), "{fields:?}: {:?}", page.text.split("role=\"alert\"").nth(1));
        let (_, message) =
            page.text.split_once(&format!("id=\"error-{control}\">")).expect("a place for it");
        assert!(!message.starts_with("</p>"), "{fields:?}: nothing is said at {control}");
        page.assert_has(&format!("hint-{control} error-{control}\" aria-invalid=\"true\""));
        assert_inert(&page);
    }
    assert_eq!(count(&browser.gateway).await, 0);
}

#[tokio::test]
async fn a_change_replaces_what_the_form_says_and_keeps_what_it_cannot_say() {
    let browser = Browser::signed_in().await;
    let gateway = &browser.gateway;
    let before = json!({
        "name": "orders", "event_types": ["order.*"], "filter": "payload.n > 1",
        "policy": {"preset": "router", "max_attempts": 3}, "timeout": "5s",
        "headers": {"x-team": "blue"}, "metadata": {"owner": "team"},
    });
    let id = gateway.endpoint("https://example.com/", before).await;
    let path = format!("/endpoints/{id}/edit");
    let form = browser.get(&path).await.expect(200);
    for typed in
        ["value=\"orders\"", "order.*</textarea>", "x-team: blue</textarea>", "value=\"5s\""]
    {
        form.assert_has(typed);
    }
    form.assert_has("<option value=\"router\" selected>");
    form.assert_has(&format!("hx-post=\"/endpoints/{id}/check\""));
    let seen = values(&form, "updated_at").expect("when it was changed");
    let page = browser
        .post(
            &path,
            &[
                ("updated_at", &seen),
                ("name", "orders"),
                ("place", "url"),
                ("url", "https://example.org/"),
                ("event_types", "*"),
                ("preset", "edge"),
                ("ordering", "fifo"),
                ("signing", "standard"),
                ("tls", "none"),
            ],
        )
        .await;
    assert_eq!(made(&page), id);
    let after = shown(gateway, &id).await;
    for (field, value) in [
        ("name", json!("orders")),
        ("url", json!("https://example.org/")),
        ("event_types", json!(["*"])),
        ("filter", Value::Null),
        ("policy", json!("edge")),
        ("timeout", Value::Null),
        ("headers", json!({})),
        ("metadata", json!({})),
    ] {
        assert_eq!(after[field], value, "{field}");
    }
    browser.open(&format!("/endpoints/{id}")).await.assert_has("Changed.");
}

#[tokio::test]
async fn what_somebody_else_has_changed_is_not_taken_back_unseen() {
    let browser = Browser::signed_in().await;
    let gateway = &browser.gateway;
    let id = gateway.endpoint("https://example.com/", json!({"name": "first"})).await;
    let path = format!("/endpoints/{id}/edit");
    let seen = values(&browser.get(&path).await, "updated_at").expect("when it was changed");
    gateway.advance(std::time::Duration::from_secs(1));
    gateway.client.act(&format!("/v1/endpoints/{id}/pause")).await.expect(200);
    let fields = [("name", "mine"), ("place", "url"), ("url", "https://example.com/")];
    let with = |seen| fields.into_iter().chain([("updated_at", seen)]).collect::<Vec<_>>();
    let refused = browser.post(&path, &with(&seen)).await.expect(422);
    refused.assert_has("changed by somebody else");
    refused.assert_has("value=\"mine\"");
    assert_eq!(shown(gateway, &id).await["name"], "first");
    // Looked at and sent again, it holds.
    let seen = values(&refused, "updated_at").expect("when it was changed");
    made(&browser.post(&path, &with(&seen)).await);
    assert_eq!(shown(gateway, &id).await["name"], "mine");
}

#[tokio::test]
async fn a_form_is_judged_while_it_is_typed_and_nothing_is_made() {
    let browser = Browser::signed_in().await;
    let gateway = &browser.gateway;
    let id = gateway.endpoint("https://example.com/", json!({"name": "first"})).await;
    for path in ["/endpoints/check".to_owned(), format!("/endpoints/{id}/check")] {
        let good = [("name", "x"), ("place", "url"), ("url", "https://example.org/")];
        let page = browser.post_part(&path, &good).await.expect(200);
        page.assert_has("Nothing stands against it");
        page.assert_has("id=\"error-url\" hx-swap-oob=\"true\"></p>");
        page.assert_lacks("<html");
        let bad = [("place", "url"), ("url", "http://10.0.0.1/\"><script>alert(1)</script>")];
        let page = browser.post_part(&path, &bad).await.expect(200);
        page.assert_has("Not yet:");
        page.assert_lacks("id=\"error-url\" hx-swap-oob=\"true\"></p>");
        assert_inert(&page);
        let policy = [good[1], good[2], ("schedule", "exponential"), ("initial", "soon")];
        let page = browser.post_part(&path, &policy).await.expect(200);
        page.assert_lacks("id=\"error-initial\" hx-swap-oob=\"true\"></p>");
    }
    // An address that has not been typed yet is no mistake.
    let page = browser.post_part("/endpoints/check", &[("place", "url")]).await.expect(200);
    page.assert_has("Say where the deliveries go");
    // A secret is asked for only of a new one, and a message without a place is an error of the page.
    let check = |path: String| {
        let browser = &browser;
        async move { browser.post_part(&path, &[("place", "url"), ("url", "https://a.example/")]).await }
    };
    assert!(check("/endpoints/check".into()).await.has("id=\"error-secret\""));
    assert!(!check(format!("/endpoints/{id}/check")).await.has("id=\"error-secret\""));
    assert_eq!(count(gateway).await, 1);
    assert_eq!(shown(gateway, &id).await["name"], "first");
}

#[tokio::test]
async fn a_filter_is_tried_on_the_newest_events() {
    let browser = Browser::signed_in().await;
    let gateway = &browser.gateway;
    let empty = browser.post_part("/endpoints/tries", &[("filter", "true")]).await.expect(200);
    empty.assert_has("There is no event to try it on yet");
    let source = json!({"name": "shop", "verify": {"scheme": "none"}, "type_from": {"fixed": "order.posted"}});
    let source = gateway.client.post("/v1/sources", &source).await.expect(201);
    gateway
        .client
        .post(source["url"].as_str().expect("a path"), &json!({"total": 500}))
        .await
        .expect(202);
    for (kind, payload) in [
        ("order.created", json!({"total": 150})),
        ("order.created", json!({"total": 50})),
        ("order.created", json!({"sum": HOSTILE})),
        ("refund.made", json!({"total": 150})),
    ] {
        gateway.send(json!({"type": kind, "payload": payload})).await;
    }
    let filter = ("filter", "payload.total > 100");
    let types = ("event_types", "order.*");
    let page = browser.post_part("/endpoints/tries", &[types, filter]).await.expect(200);
    page.assert_has("2 of the newest 5 events would go here");
    for (words, times) in [
        ("goes here", 2),
        ("the filter says no", 1),
        ("the filter does not fit it", 1),
        ("no pattern of types fits", 1),
    ] {
        assert_eq!(page.text.matches(words).count(), times, "{words}: {}", page.text);
    }
    assert_inert(&page);
    let source = text(&source["id"]);
    let only = [types, filter, ("sources", &*source)];
    let page = browser.post_part("/endpoints/tries", &only).await.expect(200);
    page.assert_has("1 of the newest 5 events would go here");
    page.assert_has("it came in by another way");
    let everything = browser.post_part("/endpoints/tries", &[("event_types", "")]).await;
    everything.assert_has("5 of the newest 5 events would go here");
    let broken = browser.post_part("/endpoints/tries", &[("filter", "payload.total >")]).await;
    broken.expect(200).assert_has("field-error");
}

#[tokio::test]
async fn an_endpoint_is_paused_resumed_and_deleted() {
    let browser = Browser::signed_in().await;
    let gateway = &browser.gateway;
    let sink = Sink::answering(200).await;
    let id = gateway.endpoint(&sink.url(), json!({"name": "orders"})).await;
    let path = format!("/endpoints/{id}");
    for (action, state, next) in
        [("pause", "paused", "/resume\""), ("resume", "active", "/pause\"")]
    {
        assert_eq!(made(&browser.post(&format!("{path}/{action}"), &[]).await), id);
        let page = browser.open(&path).await.expect(200);
        page.assert_has(&format!("badge state-{state}\">{state}</span>"));
        page.assert_has(next);
        assert_eq!(shown(gateway, &id).await["state"], state);
    }
    // Enabling is for what was disabled; the API's reason is shown.
    browser.post(&format!("{path}/pause"), &[]).await.expect(303);
    browser.post(&format!("{path}/enable"), &[]).await.expect(409).assert_has("is paused");
    gateway.send(json!({"type": "a.b", "payload": 1})).await;
    let asked = browser.get(&format!("{path}/delete")).await.expect(200);
    asked.assert_has("1 delivery that is unfinished is cancelled");
    assert_eq!(count(gateway).await, 1);
    let deleted = browser.post(&format!("{path}/delete"), &[]).await.expect(303);
    assert_eq!(deleted.location().as_deref(), Some("/endpoints"));
    assert_eq!(count(gateway).await, 0);
    browser.get(&path).await.expect(404);
}

#[tokio::test]
async fn a_page_shows_how_an_endpoint_is_doing() {
    let browser = Browser::signed_in().await;
    let gateway = &browser.gateway;
    let sink = Sink::start(|_| Reply::status(503).header("retry-after", "600")).await;
    let fields = json!({"name": HOSTILE.replace('\u{202e}', "")});
    let id = gateway.endpoint(&sink.url(), fields).await;
    let sent = gateway.send(json!({"type": "a.b", "payload": 1})).await;
    gateway.until_state(sent.only(), "retrying").await;
    let page = browser.get(&format!("/endpoints/{id}")).await.expect(200);
    page.assert_has(sent.only());
    page.assert_has("state-held");
    page.assert_has("in 10 min</time>");
    page.assert_has(&format!("data-live=\"endpoint={id}\""));
    page.assert_has(&format!("/deliveries?endpoint={id}&amp;state=retrying\">1</a>"));
    assert_inert(&page);
    for span in ["hour", "day", "week"] {
        let page = browser.get(&format!("/endpoints/{id}?span={span}")).await.expect(200);
        page.assert_has(&format!("?span={span}\" aria-current=\"true\""));
        page.assert_has(&format!("hx-get=\"/endpoints/{id}?span={span}\""));
    }
    for path in ["", "/edit", "/delete"] {
        assert_inert(&browser.get(&format!("/endpoints/{id}{path}")).await.expect(200));
    }
    assert_inert(&browser.get("/endpoints").await.expect(200));
}

#[tokio::test]
async fn a_test_shows_what_came_back_as_text() {
    let browser = Browser::signed_in().await;
    let gateway = &browser.gateway;
    let body = "<script>alert(1)</script>\u{1b}[31m\u{202e}";
    let sink = Sink::start(move |_| Reply::status(418).header("x-kind", "<b>").body(body)).await;
    let id = gateway.endpoint(&sink.url(), json!({"name": "kettle"})).await;
    let page = browser.post(&format!("/endpoints/{id}/test"), &[]).await.expect(200);
    page.assert_has("It answered 418");
    page.assert_has("&#60;script&#62;alert(1)&#60;/script&#62;\u{241b}[31m\\u{202E}");
    page.assert_has("&#60;b&#62;");
    page.assert_has("id=\"tested\"");
    assert_inert(&page);
    let pull = gateway.client.post("/v1/endpoints", &json!({"pull": true})).await.expect(201);
    let pull = text(&pull["id"]);
    browser.get(&format!("/endpoints/{pull}")).await.expect(200).assert_lacks("Send a test");
    let refused = browser.post(&format!("/endpoints/{pull}/test"), &[]).await.expect(200);
    refused.assert_has("It was not tried");
}

#[tokio::test]
async fn a_secret_is_shown_when_asked_for_and_changed_with_an_overlap() {
    let browser = Browser::signed_in().await;
    let gateway = &browser.gateway;
    let id = gateway.endpoint("https://example.com/", json!({})).await;
    let api = format!("/v1/endpoints/{id}/secret");
    let first = text(&gateway.client.get(&api).await.expect(200)["secret"]);
    for path in [format!("/endpoints/{id}"), format!("/endpoints/{id}/edit"), "/endpoints".into()] {
        browser.get(&path).await.expect(200).assert_lacks("whsec_");
    }
    browser.get(&format!("/endpoints/{id}/secret")).await.expect(405).assert_lacks("whsec_");
    let path = format!("/endpoints/{id}/secret");
    browser.post(&path, &[]).await.expect(200).assert_has(&first);
    let path = format!("/endpoints/{id}/rotate-secret");
    let refused = browser.post(&path, &[("overlap", "31d")]).await.expect(422);
    refused.assert_has("error-overlap\" aria-invalid=\"true\"");
    refused.assert_has("value=\"31d\"");
    assert_eq!(gateway.client.get(&api).await.expect(200)["secret"], first);
    let page = browser.post(&path, &[("overlap", "2h")]).await.expect(200);
    let second = text(&gateway.client.get(&api).await.expect(200)["secret"]);
    assert_ne!(second, first);
    page.assert_has(&second);
    page.assert_has(&first);
    page.assert_has("in 2 h</time>");
}

#[tokio::test]
async fn without_the_token_nothing_changes() {
    let browser = Browser::signed_in().await;
    let gateway = &browser.gateway;
    let id = gateway.endpoint("https://example.com/", json!({"name": "first"})).await;
    let before = shown(gateway, &id).await;
    let secret = format!("/v1/endpoints/{id}/secret");
    let secret_before = gateway.client.get(&secret).await.expect(200);
    let new = [("name", "other"), ("place", "url"), ("url", "https://example.org/")];
    browser.post_without_token("/endpoints", &new).await.expect(403);
    for action in
        ["edit", "check", "pause", "resume", "enable", "test", "secret", "rotate-secret", "delete"]
    {
        let path = format!("/endpoints/{id}/{action}");
        let refused = browser.post_without_token(&path, &new).await.expect(403);
        refused.assert_lacks("whsec_");
    }
    assert_eq!(shown(gateway, &id).await, before);
    assert_eq!(gateway.client.get(&secret).await.expect(200), secret_before);
    assert_eq!(count(gateway).await, 1);
}

#[tokio::test]
async fn a_tenant_sees_and_changes_only_its_own() {
    let admin = Browser::signed_in().await;
    let gateway = &admin.gateway;
    let id = gateway.endpoint("https://example.com/", json!({"name": "of the default"})).await;
    let before = shown(gateway, &id).await;
    let tenant = gateway.tenant("acme").await;
    let browser = Browser::with_key(gateway, &tenant.key).await;
    browser.get("/endpoints").await.expect(200).assert_lacks("of the default");
    for path in ["", "/edit", "/delete"] {
        let page = browser.get(&format!("/endpoints/{id}{path}")).await.expect(404);
        page.assert_lacks("of the default");
    }
    for action in ["edit", "check", "pause", "test", "secret", "rotate-secret", "delete"] {
        let path = format!("/endpoints/{id}/{action}");
        let fields = [("place", "url"), ("url", "https://example.org/")];
        browser.post(&path, &fields).await.expect(404).assert_lacks("whsec_");
    }
    assert_eq!(shown(gateway, &id).await, before);
    let own = [("name", "of acme"), ("place", "url"), ("url", "https://example.org/")];
    made(&browser.post("/endpoints", &own).await);
    browser.get("/endpoints").await.expect(200).assert_has("of acme");
    admin.get("/endpoints").await.expect(200).assert_lacks("of acme");
}

#[tokio::test]
async fn what_is_no_id_is_nowhere() {
    let browser = Browser::signed_in().await;
    for id in ["ep_", "evt_0000000000001", "a%2Fsecret", "%3Cscript%3Ealert(1)", "..%2Fkeys"] {
        assert_inert(&browser.get(&format!("/endpoints/{id}")).await.expect(404));
        browser.post(&format!("/endpoints/{id}/pause"), &[]).await.expect(404);
    }
    let ask = crate::browser::Ask::new(Method::GET, "/endpoints/%FF");
    assert_inert(&browser.send(ask).await.expect(400));
}
