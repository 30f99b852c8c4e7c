//! Policies: listed and previewed.

use serde_json::json;

use crate::gateway::Gateway;

#[tokio::test]
async fn the_six_presets_are_listed_with_their_plans() {
    let gateway = Gateway::start().await;
    let listed = gateway.get("/v1/policies").await.json();
    let names: Vec<&str> = listed["data"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|preset| preset["name"].as_str().expect("a name"))
        .collect();
    assert_eq!(names, ["standard", "inbox", "dispatch", "runs", "edge", "router"]);
    let router = &listed["data"][5];
    assert_eq!(router["policy"]["schedule"]["list"][0], "30s");
    assert_eq!(router["policy"]["max_attempts"], 5);
    assert_eq!(router["plan"]["attempts"][1]["delay_seconds"], 30.0);
}

#[tokio::test]
async fn a_preview_is_the_plan_in_seconds() {
    let gateway = Gateway::start().await;
    let reply = gateway.post("/v1/policies/preview", json!({"policy": "router"})).await;
    assert_eq!(reply.status, 200);
    let attempt = |number: u32, delay: f64, at: f64| json!({"number": number, "delay_seconds": delay, "earliest_seconds": at, "latest_seconds": at});
    assert_eq!(
        reply.json(),
        json!({
            "attempts": [
                attempt(1, 0.0, 0.0),
                attempt(2, 30.0, 30.0),
                attempt(3, 120.0, 150.0),
                attempt(4, 600.0, 750.0),
                attempt(5, 3_600.0, 4_350.0),
            ],
            "gives_up": {"reason": "exhausted", "after_seconds": 4_350.0},
        })
    );
    let edge = gateway.post("/v1/policies/preview", json!({"policy": {"preset": "edge"}})).await;
    assert_eq!(edge.json()["gives_up"]["reason"], "expired");
}

#[tokio::test]
async fn a_policy_that_cannot_be_is_refused_by_its_field() {
    let gateway = Gateway::start().await;
    let exponential = |initial: &str, multiplier: f64| json!({"schedule": {"exponential": {"initial": initial, "multiplier": multiplier, "max_delay": "1h"}}});
    for (policy, field) in [
        (json!("weekly"), "policy"),
        (json!(7), "policy"),
        (json!({"colour": 1}), "policy.colour"),
        (json!({"max_attempts": null}), "policy.max_attempts"),
        (json!({"max_attempts": 0}), "policy.max_attempts"),
        (json!({"max_age": "soon"}), "policy.max_age"),
        (json!({"max_age": "4000d"}), "policy.max_age"),
        (json!({"classify": {"200": "final"}}), "policy.classify.200"),
        (json!({"classify": {"410": "maybe"}}), "policy.classify.410"),
        (json!({"schedule": {"list": ["5s", "-5s"]}}), "policy.schedule.list[1]"),
        (json!({"schedule": {"list": []}}), "policy.schedule.list"),
        (json!({"schedule": {"list": ["1s"], "jitter": 2}}), "policy.schedule.jitter"),
        (exponential("0s", 2.0), "policy.schedule.exponential.initial"),
        (exponential("1s", 0.5), "policy.schedule.exponential.multiplier"),
    ] {
        let reply = gateway.post("/v1/policies/preview", json!({"policy": policy})).await;
        assert_eq!(reply.problem(422), [field], "{policy}");
    }
    assert_eq!(gateway.post("/v1/policies/preview", json!({})).await.problem(422), ["policy"]);
}
