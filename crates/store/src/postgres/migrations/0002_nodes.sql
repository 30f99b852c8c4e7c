-- Several nodes on one database. Times are Unix milliseconds of the server's clock.

CREATE TABLE nodes (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    number        smallint NOT NULL, -- what its ids are told from others' by
    name          text NOT NULL,
    version       text NOT NULL,
    address       text NOT NULL,
    place         text, -- where no two can be at the same time
    lease_ms      bigint NOT NULL, -- 0: it left
    joined_at     bigint NOT NULL,
    seen_at       bigint NOT NULL,
    until         bigint NOT NULL, -- believed to live until then; when it left, if it left
    in_flight     integer NOT NULL DEFAULT 0,
    waiting_since bigint,
    listens       boolean NOT NULL DEFAULT false,
    takes         boolean NOT NULL DEFAULT true -- false: it is stopping, and has no share
) WITH (fillfactor = 20);

-- What one node at a time carries: `key` is a lane, or the id of a hub.
CREATE TABLE tenures (
    key     bigint PRIMARY KEY,
    node_id bigint, -- null: given up
    epoch   bigint NOT NULL
) WITH (fillfactor = 20);

-- Grows with every change of configuration. One row.
CREATE TABLE revision (
    n bigint NOT NULL
) WITH (fillfactor = 20);

INSERT INTO revision (n) VALUES (1);

CREATE FUNCTION clock_ms() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint
$$;

-- One at a time joins or beats: what each decides, it decides from what all the others did. The lock
-- is taken and let go within one statement, so a node that stalls holds up nobody; and the statements
-- after it see all that was committed before. Everything that has a key up to 65535 is a lane.
CREATE FUNCTION lock_nodes() RETURNS void LANGUAGE sql VOLATILE AS $$
    SELECT pg_advisory_xact_lock(x'506f73744e6f6465'::bigint)
$$;

-- The lowest number is taken that no node has or had until a short while ago. If there is none,
-- nothing comes back.
CREATE FUNCTION join_nodes(
    its_name text, its_version text, its_address text, its_place text, its_lease_ms bigint,
    wanted_lanes integer, rest_ms bigint, memory_ms bigint,
    OUT its_id bigint, OUT its_number smallint, OUT lanes integer
) LANGUAGE plpgsql AS $$
DECLARE
    now_ms bigint;
BEGIN
    PERFORM lock_nodes();
    now_ms := clock_ms();
    DELETE FROM nodes WHERE until < now_ms - memory_ms;
    UPDATE tenures SET node_id = NULL WHERE node_id IN (SELECT id FROM nodes WHERE place = its_place);
    UPDATE nodes SET until = least(until, now_ms), lease_ms = 0 WHERE place = its_place;
    lanes := (SELECT count(*) FROM tenures WHERE key <= 65535);
    IF lanes = 0 THEN
        lanes := wanted_lanes;
        INSERT INTO tenures (key, epoch) SELECT lane, 0 FROM generate_series(0, lanes - 1) lane;
    END IF;
    its_number := (SELECT min(free) FROM generate_series(0, 255) free WHERE NOT EXISTS
        (SELECT 1 FROM nodes n WHERE n.number = free AND n.until > now_ms - rest_ms));
    IF its_number IS NOT NULL THEN
        INSERT INTO nodes (number, name, version, address, place, lease_ms, joined_at, seen_at,
                until)
            VALUES (its_number, its_name, its_version, its_address, its_place, its_lease_ms, now_ms,
                now_ms, now_ms + its_lease_ms)
            RETURNING id INTO its_id;
    END IF;
END $$;

-- Without a time, if the node is no member any more. One that left does not come back, nor does one
-- whose number has passed to another: both would make the same ids.
CREATE FUNCTION beat(
    me bigint, may_take boolean, is_heard boolean, flying integer, oldest bigint,
    OUT now_ms bigint, OUT surplus integer, OUT next_lapse_ms bigint, OUT revision_now bigint,
    OUT node_ids bigint[], OUT node_listens boolean[],
    OUT held_keys bigint[], OUT held_nodes bigint[], OUT held_epochs bigint[]
) LANGUAGE plpgsql AS $$
DECLARE
    lanes integer;
    takers integer;
    earlier integer;
    mine integer;
    taken integer := 0;
    share integer := 0;
BEGIN
    PERFORM lock_nodes();
    now_ms := clock_ms();
    UPDATE nodes n SET seen_at = now_ms, until = now_ms + n.lease_ms, takes = may_take,
            listens = is_heard, in_flight = flying, waiting_since = oldest
        WHERE n.id = me AND n.lease_ms > 0 AND NOT EXISTS
            (SELECT 1 FROM nodes heir WHERE heir.number = n.number AND heir.id > n.id);
    IF NOT FOUND THEN
        now_ms := NULL;
        RETURN;
    END IF;

    SELECT count(*) FILTER (WHERE n.takes), count(*) FILTER (WHERE n.takes AND n.id < me),
            array_agg(n.id ORDER BY n.id), array_agg(n.listens ORDER BY n.id),
            min(n.until) FILTER (WHERE n.id <> me) - now_ms
        INTO takers, earlier, node_ids, node_listens, next_lapse_ms
        FROM nodes n WHERE n.until > now_ms;
    SELECT count(*), count(*) FILTER (WHERE t.node_id = me) INTO lanes, mine
        FROM tenures t WHERE t.key <= 65535;
    IF may_take THEN
        share := lanes / takers + CASE WHEN earlier < lanes % takers THEN 1 ELSE 0 END;
    END IF;
    IF mine < share THEN
        -- Nobody is waited for: what somebody is just giving up is there for the next beat.
        UPDATE tenures t SET node_id = me, epoch = t.epoch + 1
            WHERE t.key = ANY (ARRAY(
                SELECT f.key FROM tenures f
                    WHERE f.key <= 65535 AND (f.node_id IS NULL OR f.node_id <> ALL (node_ids))
                    ORDER BY f.key LIMIT share - mine FOR UPDATE SKIP LOCKED));
        GET DIAGNOSTICS taken = ROW_COUNT;
    END IF;
    surplus := greatest(mine + taken - share, 0);

    SELECT array_agg(t.key ORDER BY t.key), array_agg(t.node_id ORDER BY t.key),
            array_agg(t.epoch ORDER BY t.key)
        INTO held_keys, held_nodes, held_epochs
        FROM tenures t WHERE t.node_id = ANY (node_ids);
    revision_now := (SELECT r.n FROM revision r);
END $$;

ALTER TABLE endpoints ADD COLUMN hold_until bigint; -- it asked not to be sent to before then
ALTER TABLE endpoints ADD COLUMN breaker text; -- null: closed

-- Where a delivery stands in its line; null outside of lines. That is its event's id, unless one with
-- a higher id was in the line already: nodes that give out ids at the same time do not agree on their
-- order, but whoever was stored first goes first.
ALTER TABLE unfinished ADD COLUMN turn bigint;
UPDATE unfinished SET turn = event_id WHERE line IS NOT NULL;
DROP INDEX unfinished_line;
CREATE INDEX unfinished_line ON unfinished (endpoint_id, line, place, turn, id)
    WHERE line IS NOT NULL;
