//! Gateways and targets behind TLS.

use std::sync::Arc;

use postrider_client::hub::{AgentOptions, Routes};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::gateway::{Gateway, Peer, TOKEN, deliver, welcome};
use crate::running::{Running, options};
use crate::service::Service;
use crate::within;

/// A certificate for localhost that only those trust who are told to.
fn localhost() -> (CertificateDer<'static>, TlsAcceptor) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let certificate = made.cert.der().clone();
    let provider = rustls::crypto::ring::default_provider();
    let config = ServerConfig::builder_with_provider(provider.into())
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .expect("a server");
    (certificate, TlsAcceptor::from(Arc::new(config)))
}

#[tokio::test]
async fn a_gateway_and_a_target_may_be_behind_tls() {
    let (certificate, acceptor) = localhost();
    let gateway = Gateway::start().await;
    let target = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = target.local_addr().expect("it listens").port();
    let routes = Routes::to(&format!("https://localhost:{port}")).expect("a URL");
    let url = format!("https://localhost:{}", gateway.address().port());
    let mut options = AgentOptions::new(url, TOKEN, routes);
    options.extra_roots = vec![certificate];
    let _running = Running::start(options);

    let stream = within("TLS", acceptor.accept(gateway.stream().await)).await.expect("TLS");
    let mut peer = Peer::accept(stream).await;
    peer.hello().await;
    peer.send(&postrider_core::hub::FromGateway::Welcome(welcome())).await;
    peer.deliver(deliver(1)).await;

    let (stream, _) = within("a dial", target.accept()).await.expect("a connection");
    let mut stream = within("TLS", acceptor.accept(stream)).await.expect("TLS");
    let mut head = [0; 4];
    stream.read_exact(&mut head).await.expect("a request");
    assert_eq!(&head, b"POST");
    stream.write_all(b"HTTP/1.1 204 Done\r\n\r\n").await.expect("it is read");
    assert_eq!(peer.status_of(1).await, 204);
}

#[tokio::test]
async fn a_certificate_that_nobody_vouches_for_is_not_believed() {
    let (_, acceptor) = localhost();
    let (gateway, target) = (Gateway::start().await, Service::answering(200).await);
    let mut options = options(&gateway, target);
    options.gateway = format!("wss://localhost:{}", gateway.address().port());
    let mut running = Running::start(options);
    let refused = within("TLS", acceptor.accept(gateway.stream().await)).await;
    refused.expect_err("the agent hangs up");
    let (reason, _, _) = running.disconnection().await;
    assert!(reason.contains("certificate"), "{reason}");
}
