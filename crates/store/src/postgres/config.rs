//! What can be set when a database is connected to, and the sizes that cannot.

use std::time::Duration;

/// How a database is used. The defaults suit a server of a few cores.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Connections that append and settle.
    pub writers: usize,
    /// Connections that answer what the engine asks; apart from the others, so that long lists
    /// never hold up deliveries.
    pub journal_readers: usize,
    /// Connections that answer what the API asks.
    pub ledger_readers: usize,
    /// How long a new connection may take until it can be used.
    pub connect_timeout: Duration,
    /// How long the server may take for one batch or one question. Then the connection is given up:
    /// what became of the batch is not known.
    pub patience: Duration,
    /// How long a node waits for somebody who has the database to itself, and whoever wants it so,
    /// for the nodes.
    pub lock_patience: Duration,
    /// History of a day that takes this much space or more is not removed row by row, but dropped
    /// whole, when nearly all of it may go: up to a day later.
    pub drop_from_bytes: u64,
}

impl Options {
    /// How many connections a process has open at most: one more makes the changes that are neither
    /// appended nor settled, one tidies up, one says that the node lives, and one hears what other
    /// nodes tell. Each node has so many.
    pub const fn connections(&self) -> usize {
        self.writers + self.journal_readers + self.ledger_readers + 4
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            writers: 2,
            journal_readers: 2,
            ledger_readers: 2,
            connect_timeout: Duration::from_secs(5),
            patience: Duration::from_secs(10),
            lock_patience: Duration::from_secs(2),
            drop_from_bytes: 64 << 20,
        }
    }
}

/// The most connections of each kind.
pub(crate) const MAX_CONNECTIONS: usize = 64;

/// The schema that all tables are in.
pub(crate) const SCHEMA: &str = "postrider";

/// The oldest server that is known to do: `server_version_num`.
pub(crate) const OLDEST_SERVER: i32 = 140_000;

/// Commands that may wait for the writers.
pub(crate) const WRITE_QUEUE: usize = 8_192;

/// Bodies and answers that may wait for the writers; a single larger command may wait alone.
pub(crate) const WRITE_QUEUE_BYTES: usize = 128 << 20;

/// A transaction takes on no more commands once it has this many rows to write …
pub(crate) const MAX_ROWS_PER_COMMIT: usize = 1_024;
/// … or this many bytes.
pub(crate) const MAX_BYTES_PER_COMMIT: usize = 16 << 20;

/// How long a commit of nothing but lazy writes waits for company.
pub(crate) const LINGER: Duration = Duration::from_millis(8);

/// How long what is urgent waits for company while another batch is being written …
pub(crate) const COMPANY: Duration = Duration::from_millis(10);
/// … unless this many rows wait, which are worth a batch of their own.
pub(crate) const WORTH_ANOTHER: usize = 128;
/// After a batch that had, with those that waited, this many commands the next one waits for all of
/// them to come again …
pub(crate) const CROWD: usize = 8;
/// … for this long at most.
pub(crate) const REGROUP: Duration = Duration::from_millis(2);

/// Questions that may wait for a connection.
pub(crate) const READ_QUEUE: usize = 1_024;

/// Statements that each connection keeps prepared; beyond that, all are prepared again.
pub(crate) const PREPARED_STATEMENTS: usize = 128;

/// A transaction that the server undid for the sake of another is tried so often.
pub(crate) const MAX_TRIES: usize = 4;

/// The busy tables are vacuumed after so many rows have been left behind in them.
pub(crate) const VACUUM_EVERY: u64 = 8_192;

/// Between two tries to connect: from the first to the longest, doubling.
pub(crate) const FIRST_PAUSE: Duration = Duration::from_millis(50);
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The server may take no longer than this for what other nodes wait for: whoever does not hear of a
/// node for some seconds takes over what it has, and another connection may be faster.
pub(crate) const BRISK_PATIENCE: Duration = Duration::from_secs(2);

/// A node that has ended is remembered for so long.
pub(crate) const NODE_MEMORY: Duration = Duration::from_hours(1);

/// The longest that a node can be believed to live without a word of it.
pub(crate) const LONGEST_LEASE: Duration = Duration::from_hours(24);

/// Endpoints that are looked at by one statement, so that others are answered in between.
pub(crate) const LOOK_PIECE: usize = 8_192;

/// Words to other nodes that may wait to be sent …
pub(crate) const OUTBOX: usize = 4_096;
/// … how many go at a time …
pub(crate) const WORDS_AT_ONCE: usize = 256;
/// … and how long one is worth sending: what waited longer, while there was no way, is not said.
pub(crate) const WORD_LIFE: Duration = Duration::from_secs(5);

/// The most words that are kept for somebody who does not take them.
pub(crate) const MAX_ROOM: usize = 1 << 20;

/// How often the connection that hears is asked whether it lives.
pub(crate) const PRESENCE_CHECK: Duration = Duration::from_secs(2);

/// Between two complaints in the log about the same trouble.
pub(crate) const COMPLAINT_INTERVAL: Duration = Duration::from_secs(1);

/// The server gives up a connection that does not answer it after about three times this.
pub(crate) const KEEPALIVE: Duration = Duration::from_secs(5);
