//! `postrider mcp`: real sessions over pipes, of older clients and of newer ones.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout};

use http::StatusCode;
use serde_json::{Value, json};

use crate::gateway::{Gateway, Launch, text};
use crate::sink::{Reply, Sink};
use crate::traffic::command;

/// A client, as far as this needs one. The process is killed with it.
struct Client {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    asked: u64,
    meta: Option<Value>,
}

impl Drop for Client {
    fn drop(&mut self) {
        // One that has ended cannot be killed, and need not be.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Client {
    fn start(gateway: &Gateway, arguments: &[&str]) -> Self {
        let mut child =
            command(gateway, &["mcp"]).args(arguments).spawn().expect("the binary starts");
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        Self { child, stdin, stdout, asked: 0, meta: None }
    }

    /// One that has opened the session as older clients do.
    fn older(gateway: &Gateway, arguments: &[&str]) -> Self {
        let mut client = Self::start(gateway, arguments);
        let params = json!({
            "protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": { "name": "test", "version": "1" },
        });
        let opened = client.ask("initialize", params);
        assert_eq!(opened["result"]["protocolVersion"], "2025-06-18", "{opened}");
        client.write(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        client
    }

    /// One that says with every request what it speaks.
    fn newer(gateway: &Gateway, arguments: &[&str]) -> Self {
        let mut client = Self::start(gateway, arguments);
        client.be_newer();
        client
    }

    fn be_newer(&mut self) {
        self.meta = Some(json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        }));
    }

    fn write(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("piped");
        writeln!(stdin, "{line}").expect("it reads");
        stdin.flush().expect("it reads");
    }

    /// The next line, which can only be a message of the protocol.
    fn read(&mut self) -> Value {
        let message = self.read_any();
        assert_eq!(message["jsonrpc"], "2.0", "{message}");
        message
    }

    /// The next line, which may be several messages.
    fn read_any(&mut self) -> Value {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("text");
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line:?}"))
    }

    fn ask(&mut self, method: &str, mut params: Value) -> Value {
        self.asked += 1;
        if let Some(meta) = &self.meta {
            params["_meta"] = meta.clone();
        }
        let id = self.asked;
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.write(&request.to_string());
        let answer = self.read();
        assert_eq!(answer["id"], id, "{answer}");
        answer
    }

    /// What a tool says, and whether it is an error.
    #[track_caller]
    fn call(&mut self, tool: &str, arguments: &Value) -> (String, bool) {
        let answer = self.ask("tools/call", json!({ "name": tool, "arguments": arguments }));
        let result = &answer["result"];
        let content = result["content"].as_array().unwrap_or_else(|| panic!("{answer}"));
        let texts: Vec<String> = content.iter().map(|item| text(item, "text")).collect();
        (texts.join("\n"), result["isError"] == true)
    }

    #[track_caller]
    fn told(&mut self, tool: &str, arguments: &Value) -> String {
        let (said, is_error) = self.call(tool, arguments);
        assert!(!is_error, "{tool}: {said}");
        said
    }

    fn tools(&mut self) -> Vec<String> {
        let listed = self.ask("tools/list", json!({}));
        let tools = listed["result"]["tools"].as_array().expect("a list").clone();
        for tool in &tools {
            assert_eq!(tool["inputSchema"]["type"], "object", "{tool}");
            assert!(tool["annotations"]["readOnlyHint"].is_boolean(), "{tool}");
        }
        tools.iter().map(|tool| text(tool, "name")).collect()
    }

    /// Its input ends, and so does it, with nothing left to say.
    fn leave(mut self) {
        drop(self.stdin.take());
        let mut rest = String::new();
        self.stdout.read_line(&mut rest).expect("text");
        assert_eq!(rest, "");
        assert_eq!(self.child.wait().expect("it can be waited for").code(), Some(0));
    }
}

const CHANGING: [&str; 4] =
    ["retry_delivery", "replay_dead_letters", "pause_endpoint", "resume_endpoint"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_assistant_looks_around_and_changes_nothing() {
    let data = tempfile::tempdir().expect("a folder");
    let gateway = Launch::serve(data.path()).start().await;
    let sink = Sink::start(|_| Reply::Now(StatusCode::IM_A_TEAPOT)).await;
    let headers = json!({ "authorization": "Bearer hunter2" });
    let endpoint =
        json!({ "name": "billing", "url": sink.url(), "policy": "edge", "headers": headers });
    let endpoint = gateway.create_endpoint(endpoint).await;
    let event = gateway.send(1).await;
    sink.until("an attempt", |seen| !seen.arrivals.is_empty()).await;
    let delivery = crate::within("a dead letter", async {
        loop {
            let delivery = gateway.delivery_of(&event).await;
            if delivery["state"] == "failed" {
                return text(&delivery, "id");
            }
        }
    })
    .await;

    for mut client in [Client::older(&gateway, &[]), Client::newer(&gateway, &[])] {
        let tools = client.tools();
        assert_eq!(tools.len(), 10, "{tools:?}");
        assert!(client.told("health", &json!({})).contains("is ready"));
        let endpoints = client.told("list_endpoints", &json!({}));
        assert!(endpoints.contains("billing") && !endpoints.contains("hunter2"), "{endpoints}");
        for (tool, arguments, part) in [
            ("list_events", json!({ "type": "load.tick", "since": "1h" }), &event),
            ("show_event", json!({ "id": event }), &delivery),
            ("list_deliveries", json!({ "endpoint": "billing", "state": "failed" }), &delivery),
            ("show_delivery", json!({ "id": delivery }), &event),
            ("list_dead_letters", json!({ "limit": 1 }), &delivery),
            ("dead_letter_groups", json!({}), &endpoint),
            ("stats", json!({}), &endpoint),
        ] {
            let said = client.told(tool, &arguments);
            assert!(said.contains(part.as_str()), "{tool}: {said}");
            assert!(said.contains("never instructions"), "{tool}: {said}");
        }
        let why = client.told("explain_delivery", &json!({ "id": delivery }));
        assert!(why.contains("trying again will not help") && why.contains("418"), "{why}");
        let shown = client.told("show_event", &json!({ "id": event, "payload": true }));
        assert!(shown.contains(r#""payload":"{\"filling\""#), "{shown}");

        for (tool, arguments, says) in [
            ("show_delivery", json!({ "id": "dlv_1/../../keys" }), "dlv_0000000000000"),
            ("show_delivery", json!({ "id": "dlv_0000000000001" }), "404"),
            ("list_deliveries", json!({ "endpoint": "none" }), "none"),
            ("list_events", json!({ "since": "once" }), "2h"),
            ("list_events", json!({ "colour": "red" }), "colour"),
        ] {
            let (said, is_error) = client.call(tool, &arguments);
            assert!(is_error && said.contains(says), "{tool}: {said}");
        }
        for tool in CHANGING {
            assert!(!tools.iter().any(|known| known == tool));
            let arguments = json!({ "id": delivery, "endpoint": endpoint });
            let refused = client.ask("tools/call", json!({ "name": tool, "arguments": arguments }));
            assert_eq!(refused["error"]["code"], -32602, "{refused}");
        }
        client.leave();
    }
    assert_eq!(gateway.get(&format!("/v1/deliveries/{delivery}")).await["state"], "failed");
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_changes_are_allowed_they_are_made() {
    let data = tempfile::tempdir().expect("a folder");
    let gateway = Launch::serve(data.path()).start().await;
    let sink = Sink::start(|arrival| {
        Reply::Now(if arrival.number == 1 { StatusCode::NOT_FOUND } else { StatusCode::OK })
    })
    .await;
    let endpoint = json!({ "name": "billing", "url": sink.url(), "policy": "edge" });
    let endpoint = gateway.create_endpoint(endpoint).await;
    gateway.send(1).await;
    let mut client = Client::newer(&gateway, &["--allow-changes"]);
    let tools = client.tools();
    assert!(CHANGING.iter().all(|tool| tools.iter().any(|known| known == tool)), "{tools:?}");

    crate::within("a dead letter", async {
        while !client.told("replay_dead_letters", &json!({})).starts_with("1 dead letter") {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(sink.arrivals().len(), 1, "counting sends nothing");
    let said =
        client.told("replay_dead_letters", &json!({ "endpoint": "billing", "dry_run": false }));
    assert!(said.contains("job_"), "{said}");
    sink.until("it again", |seen| seen.arrivals.len() == 2).await;

    client.told("pause_endpoint", &json!({ "endpoint": "billing" }));
    assert_eq!(gateway.get(&format!("/v1/endpoints/{endpoint}")).await["state"], "paused");
    client.told("resume_endpoint", &json!({ "endpoint": endpoint }));
    assert_eq!(gateway.get(&format!("/v1/endpoints/{endpoint}")).await["state"], "active");
    let delivery = sink.arrivals()[0].delivery.clone();
    crate::within("the end of the second attempt", async {
        while client.call("retry_delivery", &json!({ "id": delivery })).1 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    sink.until("it once more", |seen| seen.arrivals.len() == 3).await;
    client.leave();
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nonsense_gets_an_error_and_the_session_goes_on() {
    let data = tempfile::tempdir().expect("a folder");
    let gateway = Launch::serve(data.path()).start().await;
    let mut client = Client::start(&gateway, &[]);
    let long = format!("\"{}\"", "x".repeat(3 << 20));
    for (line, code) in [
        ("hello", -32700),
        ("{\"jsonrpc\":", -32700),
        ("[]", -32600),
        ("null", -32600),
        (r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#, -32602),
        (long.as_str(), -32600),
    ] {
        client.write(line);
        assert_eq!(client.read()["error"]["code"], code, "{line:.60}");
    }
    client.write("");
    client.write(r#"{"jsonrpc":"2.0","method":"notifications/nothing"}"#);
    assert_eq!(client.ask("ping", json!({}))["result"], json!({}));
    gateway.stop().await;
    client.be_newer();
    let (said, is_error) = client.call("stats", &json!({}));
    assert!(is_error && said.contains("does not answer"), "{said}");
    client.leave();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_goes_as_each_revision_says() {
    let data = tempfile::tempdir().expect("a folder");
    let gateway = Launch::serve(data.path()).start().await;
    for revision in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let mut client = Client::start(&gateway, &[]);
        // Before anything else only this and a sign of life are asked for.
        assert_eq!(client.ask("ping", json!({}))["result"], json!({}));
        let params = json!({
            "protocolVersion": revision, "capabilities": { "roots": { "listChanged": true } },
            "clientInfo": { "name": "test", "version": "1" },
        });
        let opened = client.ask("initialize", params);
        let result = &opened["result"];
        assert_eq!(result["protocolVersion"], revision, "{opened}");
        assert_eq!(result["capabilities"], json!({ "tools": {} }), "{opened}");
        assert_eq!(result["serverInfo"]["version"], env!("CARGO_PKG_VERSION"), "{opened}");
        client.write(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        assert_eq!(client.tools().len(), 10);
        let (said, is_error) = client.call("health", &json!({}));
        assert!(!is_error && said.contains("is ready"), "{said}");
        // What a model can put right is an answer; what only the client can is an error.
        let (said, is_error) = client.call("show_event", &json!({ "id": "nonsense" }));
        assert!(is_error && said.contains("id: "), "{said}");
        for (method, params, code) in [
            ("tools/call", json!({ "name": "no_such_tool" }), -32602),
            ("tools/call", json!({}), -32602),
            ("tools/list", json!({ "cursor": "none was given" }), -32602),
            // Of what was not announced there is nothing.
            ("prompts/list", json!({}), -32601),
            ("resources/list", json!({}), -32601),
            ("logging/setLevel", json!({ "level": "debug" }), -32601),
            ("server/discover", json!({}), -32601),
            ("no/such/method", json!({}), -32601),
        ] {
            let answer = client.ask(method, params);
            assert_eq!(answer["error"]["code"], code, "{revision} {method}: {answer}");
            assert!(answer.get("result").is_none(), "{answer}");
        }
        // Several at once, where the revision has that; the answers of those that want one.
        client.write(
            r#"[{"jsonrpc":"2.0","id":"a","method":"ping"},
                {"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}},
                {"jsonrpc":"2.0","id":"b","method":"tools/call","params":{"name":"health"}}]"#
                .replace('\n', " ")
                .as_str(),
        );
        let answer = client.read_any();
        if revision == "2025-03-26" {
            let answers = answer.as_array().expect("a list");
            assert_eq!(answers.len(), 2, "{answer}");
            assert_eq!(answers[0], json!({ "jsonrpc": "2.0", "id": "a", "result": {} }));
            assert_eq!(
                (&answers[1]["id"], &answers[1]["result"]["isError"]),
                (&json!("b"), &json!(false))
            );
        } else {
            assert_eq!(answer["error"]["code"], -32600, "{revision}: {answer}");
        }
        client.leave();
    }

    // A client of the newest revision asks what there is, or does not; there is no session to keep alive.
    let mut client = Client::newer(&gateway, &[]);
    assert_eq!(client.tools().len(), 10);
    let discovered = client.ask("server/discover", json!({}));
    assert_eq!(discovered["result"]["resultType"], "complete", "{discovered}");
    assert_eq!(discovered["result"]["capabilities"], json!({ "tools": {} }), "{discovered}");
    for supported in discovered["result"]["supportedVersions"].as_array().expect("a list") {
        assert!(supported.is_string(), "{discovered}");
    }
    assert_eq!(client.ask("ping", json!({}))["error"]["code"], -32601);
    assert_eq!(client.ask("resources/list", json!({}))["error"]["code"], -32601);
    client.leave();
    gateway.stop().await;
}
