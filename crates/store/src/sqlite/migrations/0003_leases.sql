-- Workers that lease, and hubs that dial in.

-- What a worker called its result; null unless it named one.
ALTER TABLE deliveries ADD COLUMN result TEXT;

-- While a delivery is leased (place 4), `at` is when the lease ends and `last_attempt_at` when it
-- began. Whatever endpoint they belong to, the first to end is looked for.
CREATE INDEX deliveries_leased ON deliveries (at) WHERE place = 4;

CREATE TABLE hubs (
    id         INTEGER PRIMARY KEY,
    tenant_id  INTEGER NOT NULL,
    name       TEXT NOT NULL,
    sha256     BLOB NOT NULL UNIQUE,
    created_at INTEGER NOT NULL
) STRICT;
