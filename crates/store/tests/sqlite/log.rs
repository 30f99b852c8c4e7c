//! The write-ahead log stays small however much is written.

use postrider_store::journal::{Journal, Page};

use super::*;

const LIMIT: u64 = 2 << 20;
/// The writer itself steps in at four times the limit; one more for the transaction under way.
const BOUND: u64 = 5 * LIMIT;
const BATCHES: i64 = 160;
const EVENTS: i64 = 64;
const BODY_BYTES: usize = 4_096;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_stays_small_under_constant_writing_and_reading() {
    let directory = Directory::new();
    let options = Options { checkpoint_pages: 64, wal_limit_bytes: LIMIT, ..Options::default() };
    let store = directory.store(options);
    let log = format!("{}-wal", directory.path().display());
    let body = Bytes::from(vec![b'x'; BODY_BYTES]);
    let mut largest = 0;
    for batch in 0..BATCHES {
        let events = (0..EVENTS).map(|index| event(batch * EVENTS + index, &body)).collect();
        let (limit, max_bytes) = (50, 1 << 20);
        let page = Page {
            endpoint: ENDPOINT,
            now: NOW,
            limit,
            max_bytes,
            held: Vec::new(),
            event_types: Vec::new(),
        };
        let (appended, paged) = tokio::join!(store.append(events), store.page(page));
        appended.expect("stored");
        paged.expect("a page");
        largest = largest.max(std::fs::metadata(&log).expect("there").len());
    }
    let written = std::fs::metadata(directory.path()).expect("there").len() + largest;
    assert!(written > 15 * LIMIT, "far more than the limit was written: {written} bytes");
    assert!(largest > 0 && largest <= BOUND, "the log grew to {largest} bytes");
    store.close().await;
    assert!(!std::fs::exists(&log).expect("known"), "closing empties it");
}
