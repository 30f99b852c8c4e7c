-- What a gateway in production keeps beside: which trace an event belongs to, and what a configuration
-- file has declared.

-- A W3C trace context as text: the parent, and after a space the state if there is one.
ALTER TABLE events ADD COLUMN trace TEXT;

-- What was made because a file declares it, so that it can be told from what was made by hand. The
-- codes of `kind` stand in declarations.rs.
CREATE TABLE declarations (
    tenant_id INTEGER NOT NULL,
    kind      INTEGER NOT NULL,
    name      TEXT NOT NULL,
    object_id INTEGER NOT NULL,
    applied   BLOB NOT NULL, -- sealed: a digest of the secrets that were declared
    PRIMARY KEY (tenant_id, kind, name)
) STRICT, WITHOUT ROWID;

-- A thing has one name.
CREATE UNIQUE INDEX declarations_object ON declarations (object_id);
