-- What the dashboard keeps: who has signed in, and how much happened. Programs that do not know of
-- it can go on beside those that do.

-- Few, and looked for by their key alone.
CREATE TABLE sessions (
    sha256    bytea PRIMARY KEY, -- of the token, which only the browser has
    key_id    bigint NOT NULL,
    tenant_id bigint NOT NULL,
    begun_at  bigint NOT NULL,
    seen_at   bigint NOT NULL
) WITH (fillfactor = 50);

-- A chart is one range of the key. `endpoint_id` is 0 for the tenant as a whole; the codes of `grain`
-- stand in measures.rs. Every node adds to the newest rows every few seconds, and no index changes by
-- that.
CREATE TABLE measures (
    tenant_id   bigint NOT NULL,
    endpoint_id bigint NOT NULL,
    start       bigint NOT NULL,
    received    bigint NOT NULL,
    delivered   bigint NOT NULL,
    failures    bigint NOT NULL,
    dead        bigint NOT NULL,
    latency     bigint[] NOT NULL, -- counts, without the zeros at the end
    grain       smallint NOT NULL,
    PRIMARY KEY (tenant_id, grain, endpoint_id, start)
) WITH (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);

-- What is past its time is found by this.
CREATE INDEX measures_start ON measures (grain, start);

-- Adds counts one by one; the shorter list goes on with zeros.
CREATE FUNCTION add_counts(counts bigint[], others bigint[]) RETURNS bigint[]
LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(array_agg(coalesce(count, 0) + coalesce(other, 0) ORDER BY entry), '{}')
        FROM unnest(counts, others) WITH ORDINALITY both_lists (count, other, entry)
$$;
