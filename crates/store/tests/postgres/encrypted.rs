//! TLS to the server, as `sslmode` asks for it.

use std::fs;
use std::net::TcpListener;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use postrider_store::journal::Journal as _;
use postrider_store::ledger::Ledger as _;
use postrider_store::postgres::OpenError;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

use super::*;
use crate::cluster::{Disk, USER};

/// A server that speaks nothing but TLS over the network, with a certificate for `localhost`.
struct Encrypted {
    cluster: Cluster,
    files: tempfile::TempDir,
    port: u16,
}

impl Encrypted {
    fn start() -> Self {
        let mut authority = CertificateParams::new(Vec::new()).expect("parameters");
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let authority = CertifiedIssuer::self_signed(authority, key).expect("an authority");
        let key = KeyPair::generate().expect("a key");
        let names = vec!["localhost".to_owned()];
        let certificate = CertificateParams::new(names).expect("parameters");
        let certificate = certificate.signed_by(&key, &authority).expect("signed");

        let files = tempfile::TempDir::new().expect("a folder");
        fs::write(files.path().join("root.pem"), pem("CERTIFICATE", authority.der()))
            .expect("written");
        let port = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("known");
        let settings = "listen_addresses = 'localhost'\nssl = on\nssl_cert_file = 'server.crt'\n\
             ssl_key_file = 'server.key'\n";
        let cluster = Cluster::start_with(
            Disk::Trusted,
            &format!("port = {}\n{settings}", port.port()),
            &[
                ("server.crt", pem("CERTIFICATE", certificate.der())),
                ("server.key", pem("PRIVATE KEY", &key.serialize_der())),
            ],
            "local all all trust\nhostssl all all localhost trust\n",
        );
        Self { cluster, files, port: port.port() }
    }

    fn url(&self, database: &str, settings: &str) -> String {
        format!("postgres://{USER}@localhost:{}/{database}?{settings}", self.port)
    }
}

fn pem(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines: Vec<&str> =
        text.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).expect("ASCII")).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

#[tokio::test]
async fn the_server_is_believed_as_sslmode_says() {
    let server = Encrypted::start();
    server.cluster.sql("postgres", "CREATE DATABASE app");
    let root = format!("sslrootcert={}", server.files.path().join("root.pem").display());
    let by_address =
        |settings: &str| server.url("app", settings).replace("@localhost:", "@127.0.0.1:");
    let full = format!("sslmode=verify-full&{root}");
    let authority = format!("sslmode=verify-ca&{root}");
    let cases = [
        ("encrypted if it can be", server.url("app", ""), true),
        ("encrypted", server.url("app", "sslmode=require"), true),
        ("of the authority", server.url("app", &authority), true),
        ("of the authority, whatever its name", by_address(&authority), true),
        ("of the authority and by its name", server.url("app", &full), true),
        ("by another name", by_address(&full), false),
        ("of no public authority", server.url("app", "sslmode=verify-full"), false),
        ("not encrypted", server.url("app", "sslmode=disable"), false),
    ];
    for (what, url, opens) in cases {
        let opened = Postgres::connect(&url, few(), keyring()).await;
        match opened {
            Ok(store) => {
                assert!(opens, "{what}");
                let encrypted = server.cluster.sql(
                    "app",
                    "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
                     WHERE datname = 'app' AND pid <> pg_backend_pid()",
                );
                assert_eq!(encrypted, "t", "{what}");
                store.ping().await.expect("it answers");
                store.close().await;
            }
            Err(error) => {
                assert!(!opens, "{what}: {error}");
                assert!(matches!(error, OpenError::Unreachable(_)), "{what}: {error}");
            }
        }
    }
}
