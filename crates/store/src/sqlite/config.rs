//! What can be set when a database is opened, and the sizes that cannot.

use std::time::Duration;

/// How a database is opened. The defaults suit every ordinary machine.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// How long a commit waits for a lock that another program holds on the file.
    pub busy_timeout: Duration,
    /// The file may not grow beyond this many pages of [`PAGE_BYTES`].
    pub max_pages: Option<u32>,
    /// The write-ahead log is copied into the database whenever it has grown by this many pages.
    pub checkpoint_pages: u32,
    /// The write-ahead log starts over from its beginning when it has reached this size.
    pub wal_limit_bytes: u64,
    /// Several nodes of this process share the database, each with lanes of its own. Otherwise one
    /// carries everything.
    pub shared: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            busy_timeout: Duration::from_secs(5),
            max_pages: None,
            checkpoint_pages: 4_000,
            wal_limit_bytes: 64 << 20,
            shared: false,
        }
    }
}

pub const PAGE_BYTES: u32 = 8_192;

pub(crate) const WRITER_CACHE_KIB: u32 = 32 << 10;
pub(crate) const READER_CACHE_KIB: u32 = 4 << 10;

/// Commands that may wait for the writer.
pub(crate) const WRITE_QUEUE: usize = 8_192;

/// Bodies and answers that may wait for the writer, or are being written; a single larger command may
/// wait alone.
pub(crate) const WRITE_QUEUE_BYTES: usize = 128 << 20;

/// A transaction takes on no more commands once it has this many rows to write.
pub(crate) const MAX_ROWS_PER_COMMIT: usize = 1_024;

/// How long a commit of nothing but lazy writes waits for company.
pub(crate) const LINGER: Duration = Duration::from_millis(8);

/// After a commit of this many commands the next one waits for them to come again …
pub(crate) const CROWD: usize = 8;
/// … for this long at most.
pub(crate) const REGROUP: Duration = Duration::from_micros(150);

/// Questions that may wait for a reader.
pub(crate) const READ_QUEUE: usize = 1_024;

/// Threads that answer what the engine asks; apart from the others, so that long lists never hold
/// up deliveries.
pub(crate) const JOURNAL_READERS: usize = 1;

/// Threads that answer what the API asks.
pub(crate) const LEDGER_READERS: usize = 2;

/// Statements that each connection keeps prepared.
pub(crate) const PREPARED_STATEMENTS: usize = 64;

/// Between two complaints in the log about the same trouble.
pub(crate) const COMPLAINT_INTERVAL: Duration = Duration::from_secs(1);
