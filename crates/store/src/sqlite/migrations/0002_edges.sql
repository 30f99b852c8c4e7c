-- Who may, who did, and what comes in from outside.

CREATE TABLE meta (
    name  TEXT PRIMARY KEY,
    value BLOB NOT NULL
) STRICT, WITHOUT ROWID;

ALTER TABLE tenants ADD COLUMN created_at INTEGER NOT NULL DEFAULT 0;

ALTER TABLE keys ADD COLUMN expires_at INTEGER;
ALTER TABLE keys ADD COLUMN revoked_at INTEGER;
ALTER TABLE keys ADD COLUMN last_used_at INTEGER;

-- `secrets` holds the token of the URL as well: whoever has it can post.
CREATE TABLE sources (
    id         INTEGER PRIMARY KEY,
    tenant_id  INTEGER NOT NULL,
    spec       TEXT NOT NULL,
    secrets    BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;

-- Secrets were text; sealed, they are bytes.
CREATE TABLE sealed_endpoints (
    id            INTEGER PRIMARY KEY,
    tenant_id     INTEGER NOT NULL,
    state         TEXT NOT NULL,
    spec          TEXT NOT NULL,
    secrets       BLOB NOT NULL,
    created_at    INTEGER NOT NULL,
    updated_at    INTEGER NOT NULL,
    failing_since INTEGER -- null: the last that is known of it is no failure
) STRICT;

INSERT INTO sealed_endpoints
    SELECT id, tenant_id, state, spec, CAST(secrets AS BLOB), created_at, updated_at, NULL
        FROM endpoints;
DROP TABLE endpoints;
ALTER TABLE sealed_endpoints RENAME TO endpoints;

CREATE TABLE audit (
    id        INTEGER PRIMARY KEY,
    at        INTEGER NOT NULL,
    tenant_id INTEGER,          -- null: it concerns no tenant alone
    key_id    INTEGER,          -- null: the gateway itself
    action    TEXT NOT NULL,
    subject   TEXT NOT NULL,
    detail    TEXT
) STRICT;

CREATE INDEX audit_tenant ON audit (tenant_id, id);

-- Written anew, so that the body stays last: what is asked of an event without its body is near the
-- row's start.
CREATE TABLE events_of_sources (
    id              INTEGER PRIMARY KEY,
    tenant_id       INTEGER NOT NULL,
    received_at     INTEGER NOT NULL,
    deliver_at      INTEGER,
    deliveries      INTEGER NOT NULL,
    kind            TEXT NOT NULL,
    content_type    TEXT NOT NULL,
    idempotency_key TEXT,
    ordering_key    TEXT,
    metadata        TEXT,
    source_id       INTEGER,
    verified        INTEGER,
    filter_errors   TEXT,
    headers         BLOB,
    body            BLOB NOT NULL
) STRICT;

INSERT INTO events_of_sources
    SELECT id, tenant_id, received_at, deliver_at, deliveries, kind, content_type,
        idempotency_key, ordering_key, metadata, NULL, NULL, NULL, NULL, body FROM events;
DROP TABLE events;
ALTER TABLE events_of_sources RENAME TO events;

-- What a source takes for the same webhook is its own affair: its keys and those of producers
-- never meet.
CREATE UNIQUE INDEX events_key ON events (tenant_id, idempotency_key)
    WHERE idempotency_key IS NOT NULL AND source_id IS NULL;
CREATE UNIQUE INDEX events_source_key ON events (source_id, idempotency_key)
    WHERE idempotency_key IS NOT NULL AND source_id IS NOT NULL;
