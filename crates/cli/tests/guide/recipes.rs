//! The five recipes: their commands, and the outcome that each promises.

use serde_json::Value;

use crate::eventually;
use crate::verifying;
use crate::walk::{Walk, rows};

/// Milliseconds from one time to another, both as the API writes them, on the same day or the next.
fn between(from: &Value, to: &Value) -> i64 {
    let [from, to] = [from, to].map(|time| {
        let text = time.as_str().unwrap_or_else(|| panic!("no time: {time}"));
        let number = |range: std::ops::Range<usize>| -> i64 {
            text.get(range).and_then(|digits| digits.parse().ok()).expect("digits")
        };
        ((number(11..13) * 60 + number(14..16)) * 60 + number(17..19)) * 1_000 + number(20..23)
    });
    (to - from).rem_euclid(86_400_000)
}

#[test]
fn inbox_what_fails_is_tried_again_and_ends_as_a_dead_letter_that_can_be_replayed() {
    let mut walk = Walk::of("docs/guide/recipe-inbox.md");
    walk.types("Start it", "postrider serve");
    walk.types("Take webhooks in", "pull");
    walk.types("Work", "postrider work");
    let dead = walk.sees("/v1/dead-letters", |list| {
        rows(list, &[("reason", "exhausted")]).first().map(|dead| (*dead).clone())
    });
    assert_eq!(dead["attempts"], 3, "{dead}");
    assert_eq!(dead["state"], "dead", "{dead}");
    assert_eq!(dead["next_attempt_at"], Value::Null, "{dead}");
    let error = dead["last_error"].as_str().unwrap_or_default();
    assert!(error.contains("the simulation failed"), "{dead}");
    walk.sees("/v1/events", |list| {
        let each = ["completed", "failed"].map(|status| rows(list, &[("status", status)]).len());
        (each == [1, 1]).then_some(())
    });
    // The n-th failure is followed by 200 ms times 2 to the n.
    let path = format!("/v1/deliveries/{}", dead["id"].as_str().expect("an id"));
    let tried = walk.world.get(&path);
    let log = tried["attempt_log"].as_array().expect("attempts").clone();
    assert_eq!(log.len(), 3, "{tried}");
    let mut starts: Vec<&Value> = log.iter().map(|attempt| &attempt["started_at"]).collect();
    starts.sort_by_key(|time| time.as_str().map(str::to_owned));
    for (pair, least) in starts.windows(2).zip([400, 800]) {
        assert!(between(pair[0], pair[1]) >= least, "{tried}");
    }
    let looked = walk.types("Look", "dead-letters");
    assert!(looked.contains("\"reason\":\"exhausted\""), "{looked}");
    let replayed = walk.types("Look", "replay");
    assert!(
        replayed.contains("\"matched\":1") && replayed.contains("\"job\":\"job_"),
        "{replayed}"
    );
    walk.finish();
}

#[test]
fn dispatch_a_subscriber_that_is_well_gets_it_signed_and_one_that_is_gone_dies_after_five() {
    let mut walk = Walk::of("docs/guide/recipe-dispatch.md");
    walk.types("Start it", "postrider serve");
    walk.types("Start it", "serve_forever");
    walk.types("Subscribe", "dispatch");
    walk.types("Publish", "order.created");
    walk.sees("/v1/deliveries", |list| {
        (rows(list, &[("state", "delivered")]).len() == 1).then_some(())
    });
    verifying::printed_webhook_is_genuine(&walk, Some("well"));
    let dead = walk.sees("/v1/dead-letters", |list| {
        rows(list, &[("state", "dead")]).first().map(|dead| (*dead).clone())
    });
    assert_eq!(dead["attempts"], 5, "{dead}");
    let looked = walk.types("Publish", "dead-letters");
    assert!(looked.contains("\"state\":\"delivered\"") && looked.contains("\"state\":\"dead\""));
    let plan = walk.types("The plan", "policy show dispatch");
    assert!(plan.contains('5'), "{plan}");
    walk.finish();
}

#[test]
fn runs_end_by_the_class_of_their_error_and_a_wish_for_time_costs_no_attempt() {
    let mut walk = Walk::of("docs/guide/recipe-runs.md");
    walk.types("Start it", "postrider serve");
    walk.types("Discover", "run.discovered");
    walk.types("Judge", "judge.sh");
    walk.types("Judge", "postrider work");
    let list = walk.sees("/v1/deliveries", |list| {
        let states = ["delivered", "failed", "retrying"];
        let each = states.map(|state| rows(list, &[("state", state)]).len());
        (each == [1, 1, 1]).then(|| list.clone())
    });
    let failed = rows(&list, &[("state", "failed")])[0];
    assert_eq!(failed["attempts"], 1, "{failed}");
    assert_eq!(failed["error_class"], "final", "{failed}");
    let retrying = rows(&list, &[("state", "retrying")])[0];
    assert_eq!(retrying["attempts"], 1, "{retrying}");
    assert_eq!(retrying["error_class"], "retryable", "{retrying}");
    let wait = between(&retrying["last_attempt_at"], &retrying["next_attempt_at"]);
    assert!((58_000..=62_000).contains(&wait), "a minute: {retrying}");
    let delivered = rows(&list, &[("state", "delivered")])[0];
    let path = format!("/v1/deliveries/{}", delivered["id"].as_str().expect("an id"));
    let delivered = walk.world.get(&path);
    assert!(delivered.to_string().contains("Passed"), "{delivered}");
    walk.types("Look", "/v1/deliveries");

    walk.stops("postrider work");
    let limited = walk.types("A service that asks for time", "rate_limited");
    assert!(limited.contains("\"deferrals\":1") && limited.contains("\"attempts\":0"), "{limited}");
    let list = walk.world.get("/v1/deliveries?error_class=rate_limited");
    let busy = rows(&list, &[("state", "retrying")])[0];
    let wait = between(&busy["last_attempt_at"], &busy["next_attempt_at"]);
    assert!(wait >= 89_000, "never earlier than asked: {busy}");
    walk.finish();
}

#[test]
fn edge_what_waited_for_the_hub_arrives_in_order_and_a_4xx_ends_at_once() {
    let mut walk = Walk::of("docs/guide/recipe-edge.md");
    walk.types("At the edge", "postrider serve");
    walk.types("At the edge", "/v1/hubs");
    let waiting = walk.types("While nobody is at home", "first second bad last");
    assert!(waiting.contains("\"reason\":\"hub_offline\""), "{waiting}");
    let list = walk.world.get("/v1/deliveries");
    assert_eq!(rows(&list, &[("state", "pending")]).len(), 4, "{list}");
    assert!(list["data"].as_array().is_some_and(|all| all.iter().all(|one| one["attempts"] == 0)));
    walk.types("At home", "serve_forever");
    walk.types("At home", "postrider hub");
    let list = walk.sees("/v1/deliveries", |list| {
        let each = ["delivered", "failed"].map(|state| rows(list, &[("state", state)]).len());
        (each == [3, 1]).then(|| list.clone())
    });
    let failed = rows(&list, &[("state", "failed")])[0];
    assert_eq!(failed["reason"], "rejected", "{failed}");
    assert_eq!(failed["attempts"], 1, "{failed}");
    let seen = eventually("what the service saw", || {
        let seen = walk.running("serve_forever").output();
        let lines: Vec<String> =
            seen.lines().filter(|line| line.contains("name")).map(str::to_owned).collect();
        (lines.len() >= 5).then_some(lines)
    });
    let order =
        [("200", "first"), ("500", "second"), ("200", "second"), ("422", "bad"), ("200", "last")];
    assert_eq!(seen.len(), order.len(), "{seen:?}");
    for (line, (status, name)) in seen.iter().zip(order) {
        assert!(line.starts_with(status) && line.contains(name), "{seen:?}");
    }
    let looked = walk.types("Look", "/v1/hubs");
    assert!(looked.contains("\"connected\":true"), "{looked}");
    walk.finish();
}

#[test]
fn router_the_fifth_failure_is_told_on_the_topic_and_an_operator_starts_it_over() {
    let mut walk = Walk::of("docs/guide/recipe-router.md");
    walk.types("Start it", "postrider serve");
    walk.types("Listen", "/v1/stream");
    walk.types("Fail once", "patient");
    let retrying = walk.sees("/v1/deliveries?state=retrying", |list| {
        rows(list, &[("state", "retrying")]).first().map(|one| (*one).clone())
    });
    assert_eq!(retrying["attempts"], 1, "{retrying}");
    assert!(retrying["last_error"].is_string(), "{retrying}");
    let wait = between(&retrying["last_attempt_at"], &retrying["next_attempt_at"]);
    assert!((29_000..=31_000).contains(&wait), "thirty seconds: {retrying}");
    walk.types("Fail once", "state=retrying");

    walk.types("Fail for good", "quick");
    let said = walk.running("/v1/stream").says("delivery.dead");
    let notice = said.lines().find(|line| line.contains("delivery.dead") && line.contains("s-18"));
    let notice = notice.unwrap_or_else(|| panic!("no session in {said}"));
    for part in ["\"attempts\":5", "\"reason\":\"exhausted\"", "gateway:webhooks"] {
        assert!(notice.contains(part), "{part} in {notice}");
    }
    let dead = walk.types("Fail for good", "dead-letters");
    assert!(dead.contains("\"next_attempt_at\":null"), "{dead}");
    let reset = walk.types("Start over", "/retry");
    assert!(reset.contains("\"attempts\":0"), "{reset}");
    walk.finish();
}
