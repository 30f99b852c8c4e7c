//! Row R39 of the hostile responses: a name that stands for a public address when it is judged and
//! for this machine afterwards.

use std::net::{IpAddr, SocketAddr};

use super::proxy::{ESTABLISHED, Proxy};
use super::*;
use crate::destination::tests::name_server::{NameServer, Question, Reply};
use crate::destination::{NameServers, Rules};

const PUBLIC: &str = "93.184.215.14";

/// Public for the first lookup (one question for each address family), loopback ever after.
async fn rebinding() -> NameServer {
    NameServer::start(|question: &Question| {
        let address = if question.number < 2 { PUBLIC } else { "127.0.0.1" };
        Reply::Addresses(vec![address.parse().unwrap()], 0)
    })
    .await
}

fn asking(server: &NameServer) -> Arc<Guard> {
    let resolver = NameServers::new(&[server.address]).unwrap();
    Arc::new(Guard::with_resolver(Rules::default(), Arc::new(resolver)))
}

#[tokio::test]
async fn a_name_that_turns_to_this_machine_after_it_was_judged_is_not_connected_to() {
    let server = rebinding().await;
    let peer = Peer::answering(OK).await;
    let guard = asking(&server);
    let url = format!("http://rebind.example:{}/", peer.address.port());
    let post = || Post {
        destination: Arc::new(guard.check_url(&url).unwrap()),
        ..post_to(&peer.url(), AMPLE)
    };
    let host = post().destination.origin().host.clone();
    let first = guard.resolve(&host, peer.address.port()).await.unwrap();
    let public: IpAddr = PUBLIC.parse().unwrap();
    assert_eq!(first, [SocketAddr::new(public, peer.address.port())]);

    let client = client_with(guard.clone(), Vec::new(), None);
    for _ in 0..3 {
        let failure = client.post(post()).await.unwrap_err();
        assert_eq!(failure.kind, FailureKind::Refused, "{failure}");
        assert!(failure.message.starts_with("rebind.example may not be reached: "), "{failure}");
    }
    assert_eq!(peer.connections(), 0);
}

#[tokio::test]
async fn the_judged_address_is_the_one_that_is_dialled() {
    let server = rebinding().await;
    // Closes after each answer, so that each request has to dial.
    let peer = Peer::start(async |mut exchange: peer::Exchange| {
        exchange.read_request().await;
        exchange.write("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n").await;
    })
    .await;
    // The proxy shows which address is dialled, and keeps the test on this machine.
    let proxy = Proxy::start(&[ESTABLISHED], Some(peer.address)).await;
    let guard = asking(&server);
    let destination = Arc::new(guard.check_url("http://rebind.example/").unwrap());
    let client = client_with(guard, Vec::new(), Some(proxy.plain()));
    let post = || Post { destination: destination.clone(), ..post_to("http://127.0.0.1/", AMPLE) };
    assert_eq!(client.post(post()).await.unwrap().status, 200);
    assert!(proxy.heads()[0].starts_with(&format!("CONNECT {PUBLIC}:80 ")));
    let request = peer.requests().pop().unwrap();
    assert!(request.contains("\r\nhost: rebind.example\r\n"), "{request}");

    let failure = client.post(post()).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Refused, "{failure}");
    assert_eq!((proxy.heads().len(), peer.connections()), (1, 1));
}
