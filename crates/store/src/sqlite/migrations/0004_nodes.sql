-- Several nodes in one process, and what is kept of endpoints when another node, or the next start,
-- carries them on.

CREATE TABLE nodes (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    number        INTEGER NOT NULL, -- what its ids are told from others' by
    name          TEXT NOT NULL,
    version       TEXT NOT NULL,
    address       TEXT NOT NULL,
    place         TEXT, -- where no two can be at the same time
    lease_ms      INTEGER NOT NULL, -- 0: it left
    joined_at     INTEGER NOT NULL,
    seen_at       INTEGER NOT NULL,
    until         INTEGER NOT NULL, -- believed to live until then; when it left, if it left
    in_flight     INTEGER NOT NULL DEFAULT 0,
    waiting_since INTEGER,
    listens       INTEGER NOT NULL DEFAULT 0,
    takes         INTEGER NOT NULL DEFAULT 1 -- 0: it is stopping, and has no share
) STRICT;

-- What one node at a time carries: `key` is a lane, or the id of a hub.
CREATE TABLE tenures (
    key     INTEGER PRIMARY KEY,
    node_id INTEGER, -- null: given up
    epoch   INTEGER NOT NULL
) STRICT;

-- Grows with every change of configuration. One row.
CREATE TABLE revision (
    n INTEGER NOT NULL
) STRICT;

INSERT INTO revision (n) VALUES (1);

ALTER TABLE endpoints ADD COLUMN hold_until INTEGER; -- it asked not to be sent to before then
ALTER TABLE endpoints ADD COLUMN breaker TEXT; -- null: closed
