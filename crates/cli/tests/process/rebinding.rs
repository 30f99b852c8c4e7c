//! A name that turns to this machine after it was judged: nobody here ever gets a connection.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use tokio::net::TcpListener;

use crate::gateway::Launch;
use crate::name_server::{Family, NameServer, Reply};
use crate::within;

/// Public, in a network that is there to soak up what nobody should have sent (RFC 7535).
const PUBLIC: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 31, 196, 254));
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

#[tokio::test]
async fn a_name_that_turns_to_this_machine_gets_no_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("it is bound").port();
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&connections);
    tokio::spawn(async move {
        while listener.accept().await.is_ok() {
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    let asked = AtomicUsize::new(0);
    let names = NameServer::start(move |question| match question.family {
        Family::V4 if asked.fetch_add(1, Ordering::SeqCst) == 0 => {
            Reply::Addresses(vec![PUBLIC], 0)
        }
        Family::V4 => Reply::Addresses(vec![HERE], 0),
        Family::V6 => Reply::Addresses(Vec::new(), 0),
    })
    .await;

    let data = tempfile::tempdir().expect("a temporary directory");
    let gateway = Launch::with(["serve", "--listen", "127.0.0.1:0", "--data"])
        .and([data.path()])
        .and(["--dns-server", &names.address.to_string()])
        .variable("POSTRIDER_ADMIN_KEY", crate::gateway::KEY)
        .start()
        .await;
    let url = format!("http://rebinding.example:{port}/hook");
    let policy = json!({ "schedule": { "list": ["1s"] }, "max_attempts": 3 });
    gateway.create_endpoint(json!({ "url": url, "timeout": "1s", "policy": policy })).await;
    gateway.send(1).await;
    let gave_up = gateway.process.stderr.line(|line| line.contains("gave up"));
    let said = within("the delivery dies", gave_up).await.expect("it is logged");
    assert!(said.contains("127.0.0.1") && said.contains("--allow-destination"), "{said}");
    assert!(names.questions() >= 3, "every attempt asks anew");
    assert_eq!(connections.load(Ordering::SeqCst), 0, "somebody here was connected to");
}
