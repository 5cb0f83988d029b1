-- Format 1. A server is known by a small number; a stream is a number of 128 bits, and so a uuid.

CREATE TABLE legwork.format (
    version integer PRIMARY KEY,
    applied timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE legwork.server (
    number smallint PRIMARY KEY,
    name text NOT NULL UNIQUE
);

-- Who holds a server. `epoch` counts holders, `opening` how often the store was opened; what is
-- committed must name both. `writer` and `writer_start` name the session that commits.
CREATE TABLE legwork.lease (
    server smallint PRIMARY KEY REFERENCES legwork.server,
    holder text NOT NULL,
    epoch bigint NOT NULL,
    opening bigint NOT NULL,
    expires timestamptz NOT NULL,
    writer integer,
    writer_start timestamptz
);

-- The widest first: no bytes are lost to alignment.
CREATE TABLE legwork.record (
    version integer NOT NULL,
    server smallint NOT NULL,
    stream uuid NOT NULL,
    bytes bytea NOT NULL,
    PRIMARY KEY (server, stream, version)
);

-- Streams that have not ended, with the last snapshot and the version it was taken at.
CREATE TABLE legwork.open_stream (
    version integer,
    server smallint NOT NULL,
    stream uuid NOT NULL,
    snapshot bytea,
    PRIMARY KEY (server, stream)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);

CREATE TABLE legwork.closed_stream (
    server smallint NOT NULL,
    stream uuid NOT NULL,
    summary bytea NOT NULL,
    PRIMARY KEY (server, stream)
);

-- Blobs belong to their content and not to a server: all servers of a database share them.
CREATE TABLE legwork.blob (
    id bytea PRIMARY KEY,
    size bigint NOT NULL
);

CREATE TABLE legwork.chunk (
    id bytea NOT NULL REFERENCES legwork.blob,
    number integer NOT NULL,
    bytes bytea NOT NULL,
    PRIMARY KEY (id, number)
);

-- Compressing what may be compressed already would cost more than it saves.
ALTER TABLE legwork.chunk ALTER COLUMN bytes SET STORAGE EXTERNAL;
