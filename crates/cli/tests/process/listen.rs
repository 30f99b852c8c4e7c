//! `postrider listen`: a URL for a provider, and what arrives there goes on to a service here.

use http::{Method, StatusCode};

use crate::gateway::{Gateway, KEY, Launch, Process, payload};
use crate::sink::{Reply, Sink};

fn launch(gateway: &Gateway, to: &str) -> Launch {
    let address = format!("http://{}", gateway.address);
    Launch::with(["listen", "--gateway", &address, "--to", to]).variable("POSTRIDER_KEY", KEY)
}

/// The path of the URL that is to be pasted into a provider.
async fn pasted(listener: &Process, gateway: &Gateway) -> String {
    let line = listener.stdout.line(|line| line.starts_with("Paste this URL")).await;
    let line = line.unwrap_or_else(|| panic!("it did not start: {}", listener.stderr.text()));
    let (_, path) = line.split_once(&gateway.address.to_string()).expect("the gateway's own URL");
    path.to_owned()
}

async fn post(gateway: &Gateway, path: &str, number: u64) {
    let answer = gateway.call(Method::POST, path, payload(number)).await;
    assert!(answer.status.is_success(), "{}: {}", answer.status, answer.body);
}

#[tokio::test]
async fn what_a_provider_sends_is_shown_and_goes_on_and_what_came_meanwhile_follows() {
    let data = tempfile::tempdir().expect("a folder");
    let gateway = Launch::serve(data.path()).start().await;
    let service = Sink::start(|arrival| match arrival.number {
        2 => Reply::Now(StatusCode::NOT_FOUND),
        _ => Reply::Now(StatusCode::OK),
    })
    .await;

    let listener = launch(&gateway, &service.url()).spawn();
    let path = pasted(&listener, &gateway).await;
    for (number, status) in [(1, "  200  "), (2, "  404  ")] {
        post(&gateway, &path, number).await;
        let line = listener.stdout.line(|line| line.contains(status)).await;
        assert!(line.is_some_and(|line| line.contains(" ms ") && line.contains("evt_")));
    }
    listener.signal("TERM");
    listener.finished().await.expect_code(0);

    post(&gateway, &path, 3).await;
    let listener = launch(&gateway, &service.url()).spawn();
    assert_eq!(pasted(&listener, &gateway).await, path, "the provider keeps its URL");
    service.until("what came meanwhile", |seen| seen.arrivals.len() == 3).await;
    let numbers: Vec<u64> = service.arrivals().iter().map(|arrival| arrival.number).collect();
    assert_eq!(numbers, [1, 2, 3]);
    for list in ["sources", "hubs", "endpoints"] {
        let listed = gateway.get(&format!("/v1/{list}")).await;
        assert_eq!(listed["data"].as_array().map(Vec::len), Some(1), "one of {list}: {listed}");
    }
    drop(listener);
    gateway.stop().await;
}

#[tokio::test]
async fn a_temporary_one_leaves_nothing_behind() {
    let data = tempfile::tempdir().expect("a folder");
    let gateway = Launch::serve(data.path()).start().await;
    let service = Sink::accepting().await;
    let listener = launch(&gateway, &service.url()).and(["--temporary"]).spawn();
    let path = pasted(&listener, &gateway).await;
    post(&gateway, &path, 1).await;
    service.until("the webhook", |seen| seen.arrivals.len() == 1).await;
    listener.signal("INT");
    listener.finished().await.expect_code(0);
    for list in ["sources", "hubs", "endpoints"] {
        let listed = gateway.get(&format!("/v1/{list}")).await;
        assert_eq!(listed["data"], serde_json::json!([]), "{list}");
    }
    let answer = gateway.call(Method::POST, &path, payload(2)).await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND);
    gateway.stop().await;
}

#[tokio::test]
async fn what_cannot_work_is_said_before_anything_is_made() {
    let data = tempfile::tempdir().expect("a folder");
    let gateway = Launch::serve(data.path()).start().await;
    let url = "http://127.0.0.1:9/hook";
    for (launch, says) in [
        (launch(&gateway, "nowhere"), "URL"),
        (launch(&gateway, url).without("POSTRIDER_KEY"), "POSTRIDER_KEY"),
        (launch(&gateway, url).and(["--source", "none-such"]), "none-such"),
    ] {
        let said = launch.run().await.expect_code(2).stderr;
        assert!(said.contains(says), "{said}");
    }
    let listed = gateway.get("/v1/hubs").await;
    assert_eq!(listed["data"], serde_json::json!([]));
    gateway.stop().await;
}
