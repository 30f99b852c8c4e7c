//! Secrets in the file: sealed from the first moment, also those from before there were keys.

use std::fs;

use postrider_core::endpoint::EndpointState;
use postrider_core::{DeliveryId, Endpoint, EndpointId};
use postrider_store::declarations::{Applied, Declaration, Declarations as _, DeclaredKind};
use postrider_store::journal::Journal as _;
use postrider_store::registry::Registry as _;
use postrider_store::{Error, Ledger as _};
use rusqlite::Connection;

use super::*;

const SECRET: &str = "whsec_bm9ib2R5IG11c3QgZmluZCB0aGlz";

/// A database as the first schema had it, with one endpoint, one event and one delivery.
fn first_version(directory: &Directory) {
    let conn = Connection::open(directory.path()).expect("made");
    conn.execute_batch(include_str!("../../src/sqlite/migrations/0001_start.sql")).expect("made");
    conn.pragma_update(None, "application_id", u32::from_be_bytes(*b"Post")).expect("set");
    conn.pragma_update(None, "user_version", 1).expect("set");
    let spec = r#"{"url":"https://example.com/hook","event_types":["*"],"policy":{},"ordering":"none","signing":{"scheme":"standard"}}"#;
    let secrets = format!(r#"[{{"text":"{SECRET}"}}]"#);
    conn.execute(
        "INSERT INTO endpoints VALUES (5, 1, 'active', ?1, ?2, 1000, 2000)",
        (spec, secrets),
    )
    .expect("stored");
    conn.execute_batch(
        "INSERT INTO events VALUES (10, 1, 3000, NULL, 1, 'order.created', 'application/json', 'k', \
             NULL, NULL, x'7b7d'); \
         INSERT INTO deliveries (id, tenant_id, event_id, endpoint_id, state, place, attempts, \
             deferrals, tries, fence, replay, born, at) \
             VALUES (11, 1, 10, 5, 0, 1, 0, 0, 0, 0, 0, 3000, 3000); \
         INSERT INTO delivery_counts VALUES (5, 0, 1, 1); \
         INSERT INTO event_counts VALUES (1, 1)",
    )
    .expect("stored");
}

async fn only_endpoint(store: &Sqlite) -> Endpoint {
    let mut endpoints = store.endpoints().await.expect("readable");
    assert_eq!(endpoints.len(), 1);
    endpoints.remove(0)
}

#[tokio::test]
async fn a_database_of_the_first_version_is_brought_up_to_date() {
    let directory = Directory::new();
    first_version(&directory);
    let store = directory.store(Options::default());
    let endpoint = only_endpoint(&store).await;
    assert_eq!((endpoint.id, endpoint.state), (EndpointId::from_i64(5), EndpointState::Active));
    assert_eq!(endpoint.secrets[0].text, SECRET);
    let event = store.event(TenantId::DEFAULT, EventId::from_i64(10)).await.expect("readable");
    let event = event.expect("kept");
    assert_eq!((event.idempotency_key.as_deref(), &event.body[..]), (Some("k"), &b"{}"[..]));
    assert_eq!((event.source, event.verified, event.headers.len()), (None, None, 0));
    let delivery =
        store.delivery(TenantId::DEFAULT, DeliveryId::from_i64(11)).await.expect("readable");
    assert_eq!(delivery.expect("kept").result, None);
    assert_eq!(store.hubs().await.expect("readable"), []);
    store.close().await;
    // Also nowhere in what the file has let go of.
    assert!(!file_holds(&directory, SECRET), "the secret stands in the file");
}

fn file_holds(directory: &Directory, text: &str) -> bool {
    let bytes = fs::read(directory.path()).expect("readable");
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

#[tokio::test]
async fn a_new_key_takes_over_and_the_old_one_can_go() {
    let key = |byte| SealingKey::from_bytes([byte; 32]);
    let ring = |keys: &[u8]| Keyring::new(keys.iter().map(|byte| key(*byte)).collect());
    let directory = Directory::new();
    first_version(&directory);
    let open = |keys: &[u8]| {
        let keyring = ring(keys).expect("keys");
        Sqlite::open(&directory.path(), Options::default(), keyring).expect("it opens")
    };
    let store = open(&[1]);
    let declaration = Declaration {
        tenant: TenantId::DEFAULT,
        kind: DeclaredKind::Endpoint,
        name: "billing".to_owned(),
        object: 5,
        applied: Applied([5; 32]),
    };
    store.put_declaration(declaration.clone()).await.expect("stored");
    assert_eq!(store.reseal().await.expect("done"), 0, "it is the newest key's already");
    store.close().await;
    drop(store);

    let store = open(&[2]);
    let error = store.endpoints().await.expect_err("sealed with another key");
    assert!(matches!(&error, Error::Refused(_)), "{error}");
    assert!(error.to_string().contains(&key(1).id().to_string()), "{error}");
    store.close().await;
    drop(store);

    let store = open(&[2, 1]);
    assert_eq!(store.reseal().await.expect("done"), 2);
    store.close().await;
    drop(store);
    let store = open(&[2]);
    assert_eq!(only_endpoint(&store).await.secrets[0].text, SECRET);
    assert_eq!(store.declarations().await.expect("readable"), [declaration]);
    store.close().await;
}
