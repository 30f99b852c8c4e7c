//! What the end of a program means for its delivery.

use serde_json::json;

use super::{Shop, ended, line_about};
use crate::gateway::Launch;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exit_codes_say_what_became_of_a_delivery() {
    // The payload is the code; the last is a signal.
    let script = r#"code=$(cat); echo "told $code" >&2
        if [ "$code" = -9 ]; then kill -9 $$; fi
        exit "$code""#;
    let always = [
        (0, "delivered"),
        (64, "failed"),
        (65, "failed"),
        (70, "failed"),
        (77, "failed"),
        (78, "failed"),
        (69, "dead"),
        (71, "dead"),
        (74, "dead"),
        (75, "dead"),
    ];
    let others = [1, 2, 63, 79, 126, 255, -9];
    let shop = Shop::strict().await;
    for (option, unknown) in [("retryable", "dead"), ("final", "failed")] {
        let worker = shop.script(&["--on-failure", option], script);
        let expected = always.into_iter().chain(others.map(|code| (code, unknown)));
        for (code, state) in expected {
            let id = shop.send_payload(json!(code)).await;
            let line = line_about(&worker, &id).await;
            let delivery = shop.delivery(&id).await;
            assert_eq!(delivery["state"], state, "{code}: {delivery}");
            let class = match state {
                "dead" => json!("retryable"),
                "failed" => json!("final"),
                _ => json!(null),
            };
            let said = match code {
                0 => json!(null),
                -9 => json!("ended by signal 9: told -9"),
                code => json!(format!("exit code {code}: told {code}")),
            };
            assert_eq!(delivery["error_class"], class, "{code}: {delivery}");
            assert_eq!(delivery["last_error"], said, "{code}: {delivery}");
            let word = class.as_str().unwrap_or("done");
            assert!(line.contains("job attempt 1") && line.contains(word), "{line}");
        }
        worker.signal("TERM");
        worker.finished().await.expect_code(0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_what_it_complains_of_is_kept_as_plain_text() {
    let shop = Shop::strict().await;
    let script =
        r"head -c 100000 /dev/zero | tr '\0' x >&2; printf '\033[31m\nthe end\n' >&2; exit 1";
    let worker = shop.script(&[], script);
    let id = shop.send_payload(json!(1)).await;
    let line = line_about(&worker, &id).await;
    let delivery = shop.delivery(&id).await;
    let error = delivery["last_error"].as_str().expect("an error");
    assert!(error.starts_with("exit code 1: xxx"), "{error}");
    assert!(error.ends_with("xxx [31m the end"), "{error}");
    assert_eq!(error.chars().count(), 2_000);
    assert!(line.ends_with("xxx [31m the end"), "{line}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_line_is_the_result_where_that_is_wanted() {
    let shop = Shop::strict().await;
    let script = r#"echo working; cat | tr -d '"'; echo; exit 0"#;
    for (options, payload, result, passed_on) in [
        (&["--result-from-stdout"][..], "Passed", json!("Passed"), false),
        (&["--result-from-stdout", "--verbose"], "Needs review", json!("Needs review"), true),
        (&["--result-from-stdout"], &"x".repeat(201), json!(null), false),
        (&[], "Passed", json!(null), false),
    ] {
        let worker = shop.script(options, script);
        let id = shop.send_payload(json!(payload)).await;
        line_about(&worker, &id).await;
        let delivery = shop.delivery(&id).await;
        assert_eq!(delivery["state"], "delivered", "{delivery}");
        assert_eq!(delivery["result"], result, "{delivery}");
        worker.signal("INT");
        let finished = worker.finished().await.expect_code(0);
        let printed = if passed_on { format!("working\n{payload}") } else { String::new() };
        assert_eq!(finished.stdout, printed);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_runs_too_long_is_killed_with_all_it_has_started() {
    let shop = Shop::strict().await;
    let script =
        r#"sleep 1000 & echo $! > "$0/child"; echo $$ > "$0/parent"; echo begun >&2; wait"#;
    let worker = shop.script(&["--timeout", "700ms"], script);
    let id = shop.send_payload(json!(1)).await;
    line_about(&worker, &id).await;
    let delivery = shop.delivery(&id).await;
    assert_eq!(delivery["last_error"], "did not end within 700ms and was killed: begun");
    assert_eq!(delivery["error_class"], "retryable");
    for file in ["child", "parent"] {
        ended(&shop.appears(file).await).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_program_leaves_running_ends_with_it() {
    let shop = Shop::strict().await;
    // It keeps the streams open, which must not keep the delivery.
    let worker = shop.script(&[], r#"sleep 1000 & echo $! > "$0/child"; exit 0"#);
    let id = shop.send_payload(json!(1)).await;
    line_about(&worker, &id).await;
    assert_eq!(shop.delivery(&id).await["state"], "delivered");
    ended(&shop.appears("child").await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_work_is_refused_at_the_start() {
    let shop = Shop::strict().await;
    let pushed = json!({ "name": "pushed", "url": "http://127.0.0.1:9/" });
    let pushed = shop.gateway.create_endpoint(pushed).await;
    for _ in 0..2 {
        shop.gateway.create_endpoint(json!({ "name": "twin", "pull": true })).await;
    }
    let url = format!("http://{}", shop.gateway.address);
    let launch = |endpoint: &str, program: &str| {
        Launch::with(["work", "--gateway", &url, "--endpoint", endpoint, "--", program])
            .variable("POSTRIDER_KEY", crate::gateway::KEY)
    };
    let key = "pr_zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz";
    for (launch, word) in [
        (launch("jobs", "/no/such/program"), "/no/such/program"),
        (launch("nobody", "true"), "`nobody`"),
        (launch("twin", "true"), "2 endpoints"),
        (launch("ep_0000000000001", "true"), "404"),
        (launch("pushed", "true"), "409"),
        (launch(&pushed, "true"), "409"),
        (launch("jobs", "true").variable("POSTRIDER_KEY", key), "401"),
        (launch("jobs", "true").variable("POSTRIDER_KEY", "no key"), "the key"),
        (launch("jobs", "true").without("POSTRIDER_KEY"), "POSTRIDER_KEY"),
        (launch("jobs", "true").variable("POSTRIDER_GATEWAY", "x"), ""),
        (Launch::with(["work", "--endpoint", "jobs"]), "PROGRAM"),
    ] {
        if word.is_empty() {
            // The flag wins over the variable: this one works.
            let worker = launch.spawn();
            let begun = worker.stderr.line(|line| line.starts_with("working on ep_")).await;
            assert!(begun.is_some(), "{}", worker.stderr.text());
            worker.signal("TERM");
            worker.finished().await.expect_code(0);
            continue;
        }
        let finished = launch.run().await.expect_code(2);
        assert!(finished.stderr.contains(word), "{word}: {}", finished.stderr);
        assert!(!finished.stderr.contains(key), "{}", finished.stderr);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_is_not_there_is_waited_for() {
    // Bound and let go: nobody listens there.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("it is bound"));
    drop(listener);
    for endpoint in ["jobs", "ep_0000000000001"] {
        let launch = Launch::with(["work", "--gateway", &url, "--endpoint", endpoint]);
        let launch = launch.variable("POSTRIDER_KEY", crate::gateway::KEY);
        let worker = launch.and(["--", "true"]).spawn();
        let waiting = worker.stderr.line(|line| line.contains("does not answer")).await;
        assert!(waiting.is_some(), "{}", worker.stderr.text());
        worker.signal("TERM");
        worker.finished().await.expect_code(0);
    }
}
