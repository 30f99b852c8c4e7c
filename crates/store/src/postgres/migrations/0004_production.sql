-- What a gateway in production keeps beside: which trace an event belongs to, and what a configuration
-- file has declared. Programs that do not know of it can go on beside those that do.

-- A W3C trace context as text: the parent, and after a space the state if there is one.
ALTER TABLE events ADD COLUMN trace text;

-- What was made because a file declares it, so that it can be told from what was made by hand. The
-- codes of `kind` stand in declarations.rs.
CREATE TABLE declarations (
    tenant_id bigint NOT NULL,
    object_id bigint NOT NULL,
    kind      smallint NOT NULL,
    name      text NOT NULL,
    applied   bytea NOT NULL, -- sealed: a digest of the secrets that were declared
    PRIMARY KEY (tenant_id, kind, name)
);

-- A thing has one name.
CREATE UNIQUE INDEX declarations_object ON declarations (object_id);
