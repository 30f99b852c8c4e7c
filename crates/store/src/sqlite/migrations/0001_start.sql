-- Ids are 63-bit integers that sort by time; times are Unix milliseconds. The codes of `state`,
-- `place`, `class` and `reason` stand in code.rs.

CREATE TABLE tenants (
    id   INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE
) STRICT;

INSERT INTO tenants (id, name) VALUES (1, 'default');

CREATE TABLE keys (
    id         INTEGER PRIMARY KEY,
    name       TEXT NOT NULL,
    sha256     BLOB NOT NULL UNIQUE,
    tenant_id  INTEGER, -- null: an admin key
    created_at INTEGER NOT NULL
) STRICT;

CREATE TABLE endpoints (
    id         INTEGER PRIMARY KEY,
    tenant_id  INTEGER NOT NULL,
    state      TEXT NOT NULL,
    spec       TEXT NOT NULL,
    secrets    TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;

CREATE TABLE jobs (
    id                INTEGER PRIMARY KEY,
    tenant_id         INTEGER NOT NULL,
    state             TEXT NOT NULL,
    filter            TEXT NOT NULL,
    rate_per_second   REAL,
    matched           INTEGER NOT NULL,
    replayed          INTEGER NOT NULL,
    skipped           INTEGER NOT NULL,
    position_event    INTEGER,
    position_delivery INTEGER,
    created_at        INTEGER NOT NULL,
    updated_at        INTEGER NOT NULL
) STRICT;

CREATE INDEX jobs_running ON jobs (id) WHERE state = 'running';

-- The body comes last, so that what is asked of an event without its body is near the row's start.
CREATE TABLE events (
    id              INTEGER PRIMARY KEY,
    tenant_id       INTEGER NOT NULL,
    received_at     INTEGER NOT NULL,
    deliver_at      INTEGER,
    deliveries      INTEGER NOT NULL, -- how many were made at acceptance: they have the ids that follow
    kind            TEXT NOT NULL,
    content_type    TEXT NOT NULL,
    idempotency_key TEXT,
    ordering_key    TEXT,
    metadata        TEXT,
    body            BLOB NOT NULL
) STRICT;

CREATE UNIQUE INDEX events_key ON events (tenant_id, idempotency_key)
    WHERE idempotency_key IS NOT NULL;

CREATE TABLE deliveries (
    id              INTEGER PRIMARY KEY,
    tenant_id       INTEGER NOT NULL,
    event_id        INTEGER NOT NULL,
    endpoint_id     INTEGER NOT NULL,
    state           INTEGER NOT NULL,
    place           INTEGER, -- null: it has ended
    attempts        INTEGER NOT NULL,
    deferrals       INTEGER NOT NULL,
    tries           INTEGER NOT NULL,
    fence           INTEGER NOT NULL,
    replay          INTEGER NOT NULL,
    born            INTEGER NOT NULL,
    at              INTEGER NOT NULL, -- while it waits, when it is due; then, when it ended
    last_attempt_at INTEGER,
    status          INTEGER, -- this and the next, and the response, only of a success at the first
    duration_ms     INTEGER, -- try, which has no row among the attempts
    class           INTEGER,
    reason          INTEGER,
    line            TEXT,
    last_error      TEXT,
    response        BLOB
) STRICT;

-- Only what waits or has failed is indexed: every index over all deliveries costs about half the
-- throughput. Everything else is found by key ranges, because ids sort by time.
CREATE INDEX deliveries_ready ON deliveries (endpoint_id, event_id) WHERE place = 1;
CREATE INDEX deliveries_timed ON deliveries (endpoint_id, at) WHERE place = 2;
CREATE INDEX deliveries_later ON deliveries (endpoint_id) WHERE place > 1;
CREATE INDEX deliveries_line ON deliveries (endpoint_id, line, place, event_id)
    WHERE line IS NOT NULL AND place IS NOT NULL;
CREATE INDEX deliveries_dead ON deliveries (tenant_id, event_id) WHERE state IN (3, 4);
CREATE INDEX deliveries_replay ON deliveries (event_id) WHERE replay = 1;
CREATE INDEX deliveries_replay_ready ON deliveries (endpoint_id) WHERE replay = 1 AND place = 1;

CREATE TABLE attempts (
    delivery_id INTEGER NOT NULL,
    number      INTEGER NOT NULL,
    counted     INTEGER NOT NULL,
    started_at  INTEGER NOT NULL,
    duration_ms INTEGER NOT NULL,
    status      INTEGER,
    class       INTEGER,
    error       TEXT,
    response    BLOB,
    PRIMARY KEY (delivery_id, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE delivery_counts (
    endpoint_id INTEGER NOT NULL,
    state       INTEGER NOT NULL,
    tenant_id   INTEGER NOT NULL,
    n           INTEGER NOT NULL,
    PRIMARY KEY (endpoint_id, state)
) STRICT, WITHOUT ROWID;

CREATE TABLE event_counts (
    tenant_id INTEGER PRIMARY KEY,
    n         INTEGER NOT NULL
) STRICT;
