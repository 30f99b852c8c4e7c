//! Secrets in the database: sealed, and opened only with the key that sealed them.

use std::collections::BTreeMap;

use postrider_core::Endpoint;
use postrider_core::endpoint::{Destination, EndpointState, Ordering, Spec, StoredSecret};
use postrider_core::pattern::Pattern;
use postrider_core::policy::{self, Preset};
use postrider_core::signing::Scheme;
use postrider_store::declarations::{Applied, Declaration, Declarations as _, DeclaredKind};
use postrider_store::journal::Journal as _;
use postrider_store::postgres::{OpenError, Sealed};
use postrider_store::registry::Registry as _;

use super::*;

const SECRET: &str = "whsec_bm9ib2R5IG11c3QgZmluZCB0aGlz";

fn endpoint() -> Endpoint {
    Endpoint {
        id: ENDPOINT,
        tenant: TenantId::DEFAULT,
        state: EndpointState::Active,
        spec: Spec {
            name: None,
            destination: Destination::Url("https://example.com/hook".to_owned()),
            event_types: vec![Pattern::Any],
            sources: Vec::new(),
            filter: None,
            policy: policy::Spec::from(Preset::Standard),
            ordering: Ordering::None,
            rate_limit: None,
            max_in_flight: None,
            timeout: None,
            headers: BTreeMap::new(),
            signing: Scheme::None,
            format: None,
            metadata: serde_json::Map::new(),
        },
        secrets: vec![StoredSecret { text: SECRET.to_owned(), expires_at: None }],
        tls: None,
        created_at: NOW,
        updated_at: NOW,
    }
}

fn declaration() -> Declaration {
    Declaration {
        tenant: TenantId::DEFAULT,
        kind: DeclaredKind::Endpoint,
        name: "billing".to_owned(),
        object: ENDPOINT.as_i64(),
        applied: Applied([5; 32]),
    }
}

fn key(byte: u8) -> SealingKey {
    SealingKey::from_bytes([byte; 32])
}

async fn open(database: &Database, keys: &[u8]) -> Postgres {
    let keyring = Keyring::new(keys.iter().map(|byte| key(*byte)).collect()).expect("keys");
    Postgres::connect(&database.url, few(), keyring).await.expect("it opens")
}

#[tokio::test]
async fn a_secret_is_nowhere_in_the_database() {
    let database = Database::bare();
    let store = open(&database, &[1]).await;
    store.put_endpoint(endpoint(), None).await.expect("stored");
    let read = store.endpoints().await.expect("readable");
    assert_eq!(read[0].secrets[0].text, SECRET);
    let rows =
        database.sql("SELECT e::text || encode(e.secrets, 'escape') FROM postrider.endpoints e");
    assert!(!rows.is_empty() && !rows.contains(SECRET), "{rows}");
    store.close().await;
}

#[tokio::test]
async fn a_new_key_takes_over_and_the_old_one_can_go() {
    let database = Database::bare();
    let store = open(&database, &[1]).await;
    store.put_endpoint(endpoint(), None).await.expect("stored");
    store.put_declaration(declaration()).await.expect("stored");
    assert_eq!(store.reseal().await.expect("done"), 0, "it is the newest key's already");
    store.close().await;

    let other = Keyring::new(vec![key(2)]).expect("a key");
    let error = Postgres::connect(&database.url, few(), other).await.expect_err("another key");
    assert!(matches!(&error, OpenError::Refused(_)), "{error}");
    assert!(error.to_string().contains(&key(1).id().to_string()), "{error}");

    let store = open(&database, &[2, 1]).await;
    assert_eq!(store.reseal().await.expect("done"), 2);
    store.close().await;
    let store = open(&database, &[2]).await;
    assert_eq!(store.declarations().await.expect("readable"), [declaration()]);
    assert_eq!(store.endpoints().await.expect("readable")[0].secrets[0].text, SECRET);
    store.close().await;
}

#[tokio::test]
async fn whoever_makes_keys_is_told_whether_one_is_needed() {
    let database = Database::bare();
    for expected in [Sealed::None, Sealed::Some] {
        let mut told = None;
        let asking = |sealed| {
            told = Some(sealed);
            Ok::<_, OpenError>(keyring())
        };
        let store = Postgres::connect_asking(&database.url, few(), asking).await.expect("it opens");
        assert_eq!(told, Some(expected));
        store.put_endpoint(endpoint(), None).await.expect("stored");
        store.close().await;
    }
}

#[tokio::test]
async fn a_node_with_another_key_is_refused_even_before_there_is_a_secret() {
    let database = Database::new();
    let first = database.store(few()).await;
    let other = Keyring::new(vec![SealingKey::from_bytes([9; 32])]).expect("one key");
    let refused = Postgres::connect(&database.url, few(), other).await.expect_err("another key");
    assert!(matches!(refused, OpenError::Refused(_)), "{refused}");
    database.store(few()).await.close().await;
    first.close().await;
}
