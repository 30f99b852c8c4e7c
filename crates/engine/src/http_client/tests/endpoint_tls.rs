//! TLS settings of endpoints: how they are read, what they open, and that they are never shared.

use std::fmt::Write as _;

use super::certificate::{Authority, Leaf, certificate_pem};
use super::tls::{TlsPeer, trusting};
use super::*;

const HERE: [u8; 4] = [127, 0, 0, 1];

fn client_settings(leaf: &Leaf) -> Arc<EndpointTls> {
    let (cert, key) = (leaf.certificate_pem(), leaf.key_pem());
    let pem = TlsPem { client_cert: Some(&cert), client_key: Some(&key), ca: None };
    Arc::new(EndpointTls::from_pem(pem).unwrap())
}

fn ca_settings(authority: &Authority) -> Arc<EndpointTls> {
    let ca = certificate_pem(&authority.root);
    Arc::new(EndpointTls::from_pem(TlsPem { ca: Some(&ca), ..TlsPem::default() }).unwrap())
}

async fn post_with(
    client: &Client,
    url: &str,
    tls: Option<&Arc<EndpointTls>>,
) -> Result<Answer, Failure> {
    client.post(Post { tls: tls.cloned(), ..post_to(url, AMPLE) }).await
}

#[tokio::test]
async fn a_client_certificate_is_shown_to_peers_that_demand_one() {
    let (servers, clients) = (Authority::new(), Authority::new());
    let mine = client_settings(&clients.issue_named("gateway"));
    let strangers = client_settings(&Authority::new().issue_named("gateway"));
    for (protocols, version) in
        [(&[&b"http/1.1"[..]][..], "HTTP/1.1"), (&[&b"h2"[..]][..], "HTTP/2.0")]
    {
        let peer = TlsPeer::demanding(&clients, servers.issue(HERE), protocols).await;
        let client = trusting(&servers);
        for _ in 0..3 {
            let answer = post_with(&client, &peer.url, Some(&mine)).await.unwrap();
            assert_eq!(answer.body, format!("{version} /hook"));
        }
        assert_eq!(peer.connections(), 1);

        let without = post_with(&client, &peer.url, None).await.unwrap_err();
        assert_eq!(without.kind, FailureKind::Tls, "{without}");
        let asks = "it asks for a client certificate; give one as tls.client_cert and";
        assert!(without.message.contains(asks), "{without}");

        let refused = post_with(&client, &peer.url, Some(&strangers)).await.unwrap_err();
        assert_eq!(refused.kind, FailureKind::Tls, "{refused}");
        assert!(refused.message.contains("does not accept the client certificate"), "{refused}");
        assert_eq!(peer.connections(), 3);
        // What was opened with the certificate is still there, and only for its owner.
        assert_eq!(post_with(&client, &peer.url, Some(&mine)).await.unwrap().status, 200);
        assert_eq!(peer.connections(), 3);
    }
}

#[tokio::test]
async fn an_authority_of_one_endpoint_serves_no_other() {
    let (public, private, other) = (Authority::new(), Authority::new(), Authority::new());
    let client = trusting(&public);
    for protocols in [&[&b"http/1.1"[..]][..], &[&b"h2"[..]][..]] {
        let peer = TlsPeer::start(private.issue(HERE), protocols).await;
        let (mine, others) = (ca_settings(&private), ca_settings(&other));
        assert_eq!(post_with(&client, &peer.url, Some(&mine)).await.unwrap().status, 200);
        for tls in [None, Some(&others)] {
            let failure = post_with(&client, &peer.url, tls).await.unwrap_err();
            assert_eq!(failure.kind, FailureKind::Tls, "{failure}");
            assert!(failure.message.contains("as tls.ca"), "{failure}");
        }
        // Settings that say the same are still settings of another endpoint.
        let same = ca_settings(&private);
        assert_eq!(post_with(&client, &peer.url, Some(&same)).await.unwrap().status, 200);
        assert_eq!(post_with(&client, &peer.url, Some(&mine)).await.unwrap().status, 200);
        assert_eq!(peer.connections(), 4);
    }
    // An endpoint's own authorities come beside the client's, not in their place.
    let peer = TlsPeer::start(public.issue(HERE), &[]).await;
    let extra = ca_settings(&other);
    assert_eq!(post_with(&client, &peer.url, Some(&extra)).await.unwrap().status, 200);
}

#[tokio::test]
async fn settings_used_by_two_clients_keep_the_authorities_of_each() {
    let (first, second, extra) = (Authority::new(), Authority::new(), Authority::new());
    let tls = ca_settings(&extra);
    let first_peer = TlsPeer::start(first.issue(HERE), &[]).await;
    let second_peer = TlsPeer::start(second.issue(HERE), &[]).await;
    let (first, second) = (trusting(&first), trusting(&second));
    assert_eq!(post_with(&first, &first_peer.url, Some(&tls)).await.unwrap().status, 200);
    assert_eq!(post_with(&second, &second_peer.url, Some(&tls)).await.unwrap().status, 200);
    assert!(post_with(&second, &first_peer.url, Some(&tls)).await.is_err());
}

#[tokio::test]
async fn connections_with_settings_are_bounded_and_swept_like_the_others() {
    let (servers, clients) = (Authority::new(), Authority::new());
    let peer = TlsPeer::demanding(&clients, servers.issue(HERE), &[]).await;
    let client = trusting(&servers);
    for _ in 0..3 {
        let tls = client_settings(&clients.issue_named("gateway"));
        post_with(&client, &peer.url, Some(&tls)).await.unwrap();
    }
    let pool = &client.shared.pool;
    assert_eq!(pool.kept(), 3);
    assert_eq!(pool.sweep(Instant::now()), Sweep::Kept);
    assert_eq!(pool.sweep(Instant::now() + IDLE_TIMEOUT), Sweep::Empty);
    assert_eq!(pool.kept(), 0);
}

/// Certificate, key and authority; how the refusal begins, if there is one.
type PemCase<'a> = ([Option<&'a str>; 3], Option<&'a str>);

#[test]
fn pem_that_cannot_be_used_is_refused_by_field() {
    let authority = Authority::new();
    let (leaf, other) = (authority.issue(HERE), authority.issue(HERE));
    let (cert, key) = (leaf.certificate_pem(), leaf.key_pem());
    let ca = certificate_pem(&authority.root);
    let chain = format!("subject=gateway\n{cert}{ca}");
    let many = ca.repeat(MAX_CERTIFICATES + 1);
    let long = format!("{ca}{}", " ".repeat(MAX_PEM_BYTES));
    let both = format!("{cert}{key}");
    let cut = &cert[..cert.len() - 20];
    let garbled = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let garbled_key = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    let encrypted =
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    let no_base64 = "-----BEGIN PRIVATE KEY-----\nsecret!\n-----END PRIVATE KEY-----\n";
    let cases: &[PemCase<'_>] = &[
        ([Some(&cert), Some(&key), None], None),
        ([Some(&chain), Some(&key), Some(&ca)], None),
        ([None, None, Some(&ca)], None),
        ([None, None, None], Some("tls says nothing")),
        ([Some(&cert), None, None], Some("tls.client_key is needed")),
        ([None, Some(&key), None], Some("tls.client_cert is needed")),
        ([Some(""), Some(&key), None], Some("tls.client_cert holds no certificate")),
        ([Some("hello"), Some(&key), None], Some("tls.client_cert holds no certificate")),
        ([Some(cut), Some(&key), None], Some("tls.client_cert is not valid PEM")),
        ([Some(garbled), Some(&key), None], Some("tls.client_cert holds a certificate that")),
        ([Some(&both), Some(&key), None], Some("tls.client_cert holds a private key")),
        ([Some(&many), Some(&key), None], Some("tls.client_cert holds more than 16")),
        ([Some(&cert), Some(""), None], Some("tls.client_key holds no private key")),
        ([Some(&cert), Some(&cert), None], Some("tls.client_key holds no private key")),
        ([Some(&cert), Some(garbled_key), None], Some("tls.client_key cannot be used")),
        ([Some(&cert), Some(encrypted), None], Some("tls.client_key is encrypted")),
        ([Some(&cert), Some(no_base64), None], Some("tls.client_key is not valid PEM")),
        (
            [Some(&cert), Some(&other.key_pem()), None],
            Some("tls.client_key does not belong to the first certificate"),
        ),
        (
            [Some(&cert), Some(&key.repeat(2)), None],
            Some("tls.client_key holds more than one private key"),
        ),
        ([None, None, Some("")], Some("tls.ca holds no certificate")),
        ([None, None, Some(&key)], Some("tls.ca holds a private key")),
        ([None, None, Some(garbled)], Some("tls.ca holds a certificate that cannot be read")),
        ([None, None, Some(&many)], Some("tls.ca holds more than 16")),
        ([None, None, Some(&long)], Some("tls.ca is longer than")),
    ];
    for ([client_cert, client_key, ca], expected) in cases.iter().copied() {
        let outcome = EndpointTls::from_pem(TlsPem { client_cert, client_key, ca });
        match (outcome, expected) {
            (Ok(_), None) => {}
            (Err(error), Some(expected)) => {
                let sentence = error.to_string();
                assert!(sentence.starts_with(expected), "{sentence}, not {expected}");
                assert!(!sentence.contains("secret"), "{sentence}");
            }
            (outcome, expected) => panic!("{outcome:?}, not {expected:?}"),
        }
    }
}

#[test]
fn no_key_is_ever_printed() {
    let leaf = Authority::new().issue(HERE);
    let (cert, key) = (leaf.certificate_pem(), leaf.key_pem());
    let pem = TlsPem { client_cert: Some(&cert), client_key: Some(&key), ca: None };
    let tls = EndpointTls::from_pem(pem).unwrap();
    let mut printed = String::new();
    write!(printed, "{pem:?} {tls:?} {:?} {:#?}", tls.client(), tls).unwrap();
    let post = Post { tls: Some(Arc::new(tls)), ..post_to("https://127.0.0.1/", AMPLE) };
    write!(printed, "{post:?}").unwrap();
    let body = key.lines().nth(1).unwrap();
    let bytes = format!("{:?}", leaf.key.secret_der());
    assert!(!printed.contains(&body[..16]), "{printed}");
    assert!(!printed.contains(bytes.trim_matches(['[', ']'])), "{printed}");
}
