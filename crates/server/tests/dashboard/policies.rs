//! Policies: the presets with their pictures, and the editor that draws what is typed.

use serde_json::json;

use crate::browser::{Browser, Page};

/// What would not run under the policy of the pages, or would be refused by it.
#[track_caller]
fn assert_plain(part: &Page) {
    for text in ["<script", " style=", "<style", "hx-on", "onclick"] {
        part.assert_lacks(text);
    }
}

#[tokio::test]
async fn every_preset_is_shown_with_its_picture_and_a_table() {
    let browser = Browser::signed_in().await;
    let page = browser.get("/policies").await.expect(200);
    for name in ["standard", "inbox", "dispatch", "runs", "edge", "router"] {
        page.assert_has(&format!("id=\"preset-{name}\""));
        page.assert_has(&format!("aria-labelledby=\"plan-{name}\""));
        page.assert_has(&format!("href=\"/policies?preset={name}\""));
    }
    // One for each, and that of the editor.
    assert_eq!(page.text.matches("<svg class=\"plan-picture\"").count(), 7);
    assert_eq!(page.text.matches("<summary>As a table</summary>").count(), 7);
    page.assert_has("5 attempts; gives up 1 h 12 min after arrival");
    assert_eq!(page.text.matches("<h1>").count(), 1);
    // Each id once, or labels and pictures would be about one another.
    let ids: Vec<&str> =
        page.text.split(" id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    let mut once = ids.clone();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), ids.len(), "{ids:?}");
}

#[tokio::test]
async fn the_picture_follows_what_is_typed() {
    let browser = Browser::signed_in().await;
    let dots = |page: &Page| page.text.matches("<circle").count();
    for (query, attempts, json) in [
        ("preset=router", 5, json!("router")),
        ("preset=router&max_attempts=3", 3, json!({"max_attempts": 3, "preset": "router"})),
        (
            "preset=edge&schedule=list&list=10s+20s&max_attempts=3&unlimited_age=on",
            3,
            json!({"max_age": null, "max_attempts": 3, "preset": "edge",
                "schedule": {"list": ["10s", "20s"]}}),
        ),
        (
            "preset=standard&schedule=exponential&initial=1s&multiplier=3&max_delay=1h&jitter=0.5",
            10,
            json!({"preset": "standard", "schedule": {"exponential": {"initial": "1s",
                "jitter": 0.5, "max_delay": "1h", "multiplier": 3.0}}}),
        ),
    ] {
        let part = browser.part(&format!("/policies/picture?{query}")).await.expect(200);
        assert_eq!(dots(&part), attempts, "{query}");
        part.assert_has("gives up");
        assert_eq!(part.has("plan-band"), query.contains("jitter"), "{query}");
        let shown = serde_json::to_string_pretty(&json).expect("JSON").replace('"', "&#34;");
        part.assert_has(&shown);
        assert_plain(&part);
        part.assert_lacks("<html");
        // The whole page shows the same, without a script.
        let page = browser.get(&format!("/policies?{query}")).await.expect(200);
        page.assert_has(&shown);
    }
}

#[tokio::test]
async fn what_is_wrong_with_a_policy_is_said_at_its_control() {
    let browser = Browser::signed_in().await;
    for (query, control) in [
        ("preset=weekly", "preset"),
        ("preset=%22%3E%3Cimg+src=x%3E", "preset"),
        ("schedule=list&list=", "list"),
        ("schedule=list&list=5s+soon", "list"),
        ("schedule=list&list=5s&jitter=2", "jitter"),
        ("schedule=exponential&initial=1s&max_delay=", "max_delay"),
        ("schedule=exponential&initial=0s&max_delay=1h", "initial"),
        ("schedule=exponential&initial=1s&max_delay=1h&multiplier=0.5", "multiplier"),
        ("schedule=exponential&initial=1s&max_delay=1h&jitter=most", "jitter"),
        ("max_attempts=0", "max_attempts"),
        ("max_attempts=-1", "max_attempts"),
        ("unlimited_attempts=on", "max_attempts"),
        ("max_age=forever", "max_age"),
        ("class_key=200&class_rule=final", "classify"),
        ("class_key=%3Cb%3E&class_rule=final", "classify"),
        ("class_key=410&class_rule=perhaps", "classify"),
    ] {
        let part = browser.part(&format!("/policies/picture?{query}")).await.expect(200);
        part.assert_has("There is no picture");
        part.assert_lacks("<svg");
        let place = format!("id=\"error-{control}\" hx-swap-oob=\"true\">");
        let (_, message) = part.text.split_once(&place).expect("a place for it");
        assert!(!message.starts_with("</p>"), "{query}: {}", part.text);
        part.assert_lacks("<img");
        part.assert_lacks("<b>");
        let page = browser.get(&format!("/policies?{query}")).await.expect(200);
        page.assert_has(&format!("id=\"error-{control}\">"));
        page.assert_lacks("<img src=x");
    }
}

#[tokio::test]
async fn long_plans_and_long_queries_are_bounded() {
    let browser = Browser::signed_in().await;
    // A thousand attempts is as far as a plan is shown.
    let query = "schedule=list&list=366d&max_attempts=4000000000";
    let part = browser.part(&format!("/policies/picture?{query}")).await.expect(200);
    part.assert_has("it goes on after that");
    assert!(part.text.matches("<circle").count() <= 500, "{}", part.text.len());
    assert!(part.text.matches("<tr>").count() <= 20);
    let rows = "class_key=410&class_rule=final&".repeat(400);
    browser.part(&format!("/policies/picture?{rows}")).await.expect(200).assert_has("given twice");
}

#[tokio::test]
async fn the_endpoint_form_has_the_same_editor() {
    let browser = Browser::signed_in().await;
    let form = browser.get("/endpoints/new").await.expect(200);
    form.assert_has("hx-get=\"/policies/picture\"");
    form.assert_has("<svg class=\"plan-picture\"");
    let fields = [("place", "url"), ("preset", "edge"), ("schedule", "list"), ("list", "7s 8s")];
    let refused = browser.post("/endpoints", &fields).await.expect(422);
    refused.assert_has("value=\"7s 8s\"");
    refused.assert_has("<option value=\"edge\" selected>");
    refused.assert_has("<option value=\"list\" selected>");
}
