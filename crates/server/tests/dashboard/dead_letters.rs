//! Dead letters: what they have in common, sending them again, throwing them away.

use std::time::Duration;

use serde_json::{Value, json};

use crate::browser::Browser;
use crate::client::Client;
use crate::gateway::Gateway;
use crate::hostile::{MARKUP, assert_inert};
use crate::sink::{Reply, Sink};

/// Sends some events to an endpoint that refuses them, and waits until it has.
async fn refused(gateway: &Gateway, endpoint: &str, kind: &str, count: u32) -> Vec<String> {
    let mut ids = Vec::new();
    for number in 0..count {
        let sent = gateway.send(json!({"type": kind, "payload": number})).await;
        for id in &sent.deliveries {
            let delivery = gateway.client.get(&format!("/v1/deliveries/{id}")).await.expect(200);
            if delivery["endpoint_id"] == endpoint {
                gateway.until_state(id, "failed").await;
                ids.push(id.clone());
            }
        }
    }
    ids
}

async fn listening(gateway: &Gateway, sink: &Sink, name: &str, kind: &str) -> String {
    let fields = json!({"name": name, "policy": "edge", "ordering": "none", "event_types": [kind]});
    gateway.endpoint(&sink.url(), fields).await
}

async fn left(gateway: &Gateway) -> usize {
    let listed = gateway.client.get("/v1/dead-letters").await.expect(200);
    listed["data"].as_array().expect("a list").len()
}

/// The hidden fields of a form, as a browser would send them.
fn hidden(page: &str) -> Vec<(String, String)> {
    let form = page.split("<form method=\"post\" action=\"/dead-letters/").nth(1).expect("a form");
    let form = form.split("</form>").next().expect("its end");
    let value = |tag: &str, name: &str| {
        let (_, rest) = tag.split_once(&format!(" {name}=\""))?;
        rest.split('"').next().map(str::to_owned)
    };
    form.split("<input type=\"hidden\"")
        .skip(1)
        .filter_map(|tag| Some((value(tag, "name")?, value(tag, "value")?)))
        .filter(|(name, _)| name != "csrf")
        .collect()
}

fn fields(pairs: &[(String, String)]) -> Vec<(&str, &str)> {
    pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
}

#[tokio::test]
async fn without_any_the_page_says_what_they_are() {
    let browser = Browser::signed_in().await;
    let page = browser.get("/dead-letters").await.expect(200);
    page.assert_has("There is no dead letter");
    let evil = "%22%3E%3Cscript%3Ealert%281%29%3C%2Fscript%3E";
    for field in ["state", "endpoint", "event", "error_class", "reason", "since", "until"] {
        let page = browser.get(&format!("/dead-letters?{field}={evil}")).await.expect(422);
        assert_inert(&page);
        page.assert_has(&format!("id=\"{field}-wrong\""));
        // A change of what cannot be understood is not offered, and not made.
        page.assert_lacks("id=\"purge\"");
        let replay = browser.get(&format!("/dead-letters/replay?{field}={evil}")).await;
        assert_eq!(replay.expect(303).location(), Some(format!("/dead-letters?{field}={evil}")));
    }
    browser.get("/dead-letters?state=delivered").await.expect(422);
}

#[tokio::test]
async fn they_are_grouped_by_endpoint_and_error_before_they_are_listed() {
    let browser = Browser::signed_in().await;
    let gateway = &browser.gateway;
    let sink = Sink::start(|_| Reply::status(400).body("no such customer")).await;
    let one = listening(gateway, &sink, "one", "kind.one").await;
    let two = listening(gateway, &sink, MARKUP, "kind.two").await;
    refused(gateway, &one, "kind.one", 3).await;
    refused(gateway, &two, "kind.two", 1).await;
    let page = browser.get("/dead-letters").await.expect(200);
    assert_inert(&page);
    page.assert_has("By endpoint and error");
    page.assert_has("data-live=\"all\"");
    page.assert_has(&format!(
        "/dead-letters?state=failed&#38;endpoint={one}&#38;error_class=final&#38;reason=rejected"
    ));
    page.assert_has("Show these 3 of one");
    assert_eq!(page.text.matches("<tr id=\"row-dlv_").count(), 4);
    let narrowed = browser.get(&format!("/dead-letters?endpoint={one}")).await.expect(200);
    assert_eq!(narrowed.text.matches("<tr id=\"row-dlv_").count(), 3);
    narrowed.assert_has("Replay those that match…");
}

#[tokio::test]
async fn a_replay_says_how_many_first_and_then_how_far_it_is() {
    let browser = Browser::signed_in().await;
    let gateway = &browser.gateway;
    let sink = Sink::answering(400).await;
    let one = listening(gateway, &sink, "one", "kind.one").await;
    let two = listening(gateway, &sink, "two", "kind.two").await;
    let ids = refused(gateway, &one, "kind.one", 3).await;
    refused(gateway, &two, "kind.two", 1).await;
    sink.follow(|_| Reply::status(200));
    let ask = browser.get(&format!("/dead-letters/replay?endpoint={one}")).await.expect(200);
    ask.assert_has("Replay 3 dead letters?");
    ask.assert_has("<dd>one</dd>");
    assert_eq!(left(gateway).await, 4, "asking changes nothing");
    let pairs = hidden(&ask.text);

    for rate in ["fast", "0", "-1", "1e9", "NaN", "inf"] {
        let mut with_rate = fields(&pairs);
        with_rate.push(("rate", rate));
        let wrong = browser.post("/dead-letters/replay", &with_rate).await.expect(422);
        wrong.assert_has("id=\"rate-wrong\"");
        wrong.assert_has("Replay 3 dead letters?");
    }
    browser.post_without_token("/dead-letters/replay", &fields(&pairs)).await.expect(403);
    assert_eq!(left(gateway).await, 4);

    let begun = browser.post("/dead-letters/replay", &fields(&pairs)).await.expect(303);
    let job = begun.location().expect("a job");
    assert!(job.starts_with("/jobs/job_"), "{job}");
    for id in &ids {
        gateway.until_state(id, "delivered").await;
    }
    until_finished(gateway, &job).await;
    let page = browser.get(&job).await.expect(200);
    page.assert_has("Finished");
    page.assert_has("100 %: 3 of 3 dead letters sent again.");
    page.assert_has("<progress id=\"progress\" max=\"3\" value=\"3\"");
    page.assert_lacks("data-live");
    assert_eq!(left(gateway).await, 1);
}

/// Asks the API again and again: no notice tells of a job's end.
async fn until_finished(gateway: &Gateway, job: &str) -> Value {
    loop {
        let found = gateway.client.get(&format!("/v1{job}")).await.expect(200);
        if found["state"] == "finished" {
            return found;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_paced_replay_is_watched_while_it_runs() {
    let browser = Browser::signed_in().await;
    let gateway = &browser.gateway;
    let sink = Sink::answering(400).await;
    let one = listening(gateway, &sink, "one", "kind.one").await;
    let ids = refused(gateway, &one, "kind.one", 2).await;
    sink.follow(|_| Reply::status(200));
    let begun = browser.post("/dead-letters/replay", &[("rate", "0.5")]).await.expect(303);
    let job = begun.location().expect("a job");
    gateway.until_state(&ids[0], "delivered").await;
    let page = browser.get(&job).await.expect(200);
    page.assert_has("Running");
    page.assert_has("0.5 a second");
    page.assert_has(&format!("data-live=\"job={}\"", job.trim_start_matches("/jobs/")));
    assert_eq!(left(gateway).await, 1, "the second waits for its turn");
    gateway.advance(Duration::from_secs(2));
    gateway.until_state(&ids[1], "delivered").await;
    until_finished(gateway, &job).await;
    browser.get(&job).await.expect(200).assert_has("2 of 2 dead letters sent again");
}

#[tokio::test]
async fn a_purge_names_the_number_and_is_confirmed() {
    let browser = Browser::signed_in().await;
    let gateway = &browser.gateway;
    let sink = Sink::answering(400).await;
    let one = listening(gateway, &sink, "one", "kind.one").await;
    let two = listening(gateway, &sink, "two", "kind.two").await;
    refused(gateway, &one, "kind.one", 2).await;
    refused(gateway, &two, "kind.two", 1).await;
    let path = "/dead-letters/purge";
    let list = browser.get(&format!("/dead-letters?endpoint={one}")).await.expect(200);
    let pairs = hidden(&list.text);
    assert_eq!(fields(&pairs), [("endpoint", one.as_str())]);
    let ask = browser.post(path, &fields(&pairs)).await.expect(200);
    ask.assert_has("Throw away 2 dead letters?");
    ask.assert_has("Throw away 2 dead letters for good");
    assert_eq!(left(gateway).await, 3, "asking changes nothing");

    let pairs = hidden(&ask.text);
    assert!(pairs.contains(&("confirmed".into(), "2".into())), "{pairs:?}");
    browser.post_without_token(path, &fields(&pairs)).await.expect(403);
    let mut wrong = pairs.clone();
    wrong.iter_mut().filter(|pair| pair.0 == "confirmed").for_each(|pair| pair.1 = "1".into());
    let again = browser.post(path, &fields(&wrong)).await.expect(200);
    again.assert_has("Nothing was thrown away: there were 1 when you were asked");
    assert_eq!(left(gateway).await, 3);

    // What comes after the question is not part of it.
    gateway.advance(Duration::from_secs(1));
    refused(gateway, &one, "kind.one", 1).await;
    let done = browser.post(path, &fields(&pairs)).await.expect(303);
    assert_eq!(done.location().as_deref(), Some("/dead-letters"));
    browser.get("/dead-letters").await.expect(200).assert_has("2 dead letters thrown away.");
    assert_eq!(left(gateway).await, 2);
    let ask = browser.post(path, &fields(&pairs)).await.expect(200);
    ask.assert_has("Nothing matches any more");
}

#[tokio::test]
async fn another_tenants_dead_letters_are_neither_seen_nor_touched() {
    let browser = Browser::signed_in().await;
    let gateway = &browser.gateway;
    let sink = Sink::answering(400).await;
    let one = listening(gateway, &sink, "ours", "kind.one").await;
    refused(gateway, &one, "kind.one", 1).await;
    let Client { key, .. } = gateway.tenant("other").await;
    let other = Browser::with_key(gateway, &key).await;
    other.get("/dead-letters").await.expect(200).assert_lacks("ours");
    let ask = other.get("/dead-letters/replay").await.expect(200);
    ask.assert_has("Nothing matches any more");
    other.post("/dead-letters/purge", &[("confirmed", "1")]).await.expect(200);
    let begun = browser.post("/dead-letters/replay", &[("rate", "0.01")]).await.expect(303);
    other.get(&begun.location().expect("a job")).await.expect(404);
    browser.get("/jobs/job_7").await.expect(404);
}
