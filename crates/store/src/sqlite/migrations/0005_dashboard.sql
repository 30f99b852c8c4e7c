-- What the dashboard keeps: who has signed in, and how much happened.

-- Few, and looked for by their key alone.
CREATE TABLE sessions (
    sha256    BLOB PRIMARY KEY, -- of the token, which only the browser has
    key_id    INTEGER NOT NULL,
    tenant_id INTEGER NOT NULL,
    begun_at  INTEGER NOT NULL,
    seen_at   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- A chart is one range of the key. `endpoint_id` is 0 for the tenant as a whole; the codes of `grain`
-- stand in measures.rs.
CREATE TABLE measures (
    tenant_id   INTEGER NOT NULL,
    grain       INTEGER NOT NULL,
    endpoint_id INTEGER NOT NULL,
    start       INTEGER NOT NULL,
    received    INTEGER NOT NULL,
    delivered   INTEGER NOT NULL,
    failures    INTEGER NOT NULL,
    dead        INTEGER NOT NULL,
    latency     TEXT NOT NULL, -- a JSON list of counts, without the zeros at its end
    PRIMARY KEY (tenant_id, grain, endpoint_id, start)
) STRICT, WITHOUT ROWID;

-- What is past its time is found by this.
CREATE INDEX measures_start ON measures (grain, start);
