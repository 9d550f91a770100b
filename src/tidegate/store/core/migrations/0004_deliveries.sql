ALTER TABLE tidegate.run
    ADD COLUMN cause text,
    ADD COLUMN warn_at timestamptz,
    ADD COLUMN deadline_at timestamptz,
    ADD COLUMN plan text NOT NULL DEFAULT '',
    ADD COLUMN reclaimed_at timestamptz,
    ADD COLUMN request uuid UNIQUE;

ALTER TABLE tidegate.channel
    ADD COLUMN declared bigint;

UPDATE tidegate.channel
SET declared = (message.payload ->> 'count')::bigint
FROM tidegate.message
WHERE message.channel_id = channel.id AND message.kind = 'barrier'
    AND message.payload ->> 'kind' = 'end_of_run';

ALTER TABLE tidegate.message
    ADD COLUMN sent_at timestamptz NOT NULL DEFAULT clock_timestamp();

CREATE TABLE tidegate.source (
    run_id bigint NOT NULL REFERENCES tidegate.run ON DELETE CASCADE,
    name text NOT NULL,
    delivered bigint NOT NULL DEFAULT 0,
    declared bigint CHECK (declared >= 0),
    declared_at timestamptz,
    ended_at timestamptz,
    PRIMARY KEY (run_id, name)
) WITH (fillfactor = 70);

CREATE TABLE tidegate.chunk (
    run_id bigint NOT NULL,
    source text NOT NULL,
    number bigint NOT NULL CHECK (number > 0),
    sha256 text NOT NULL,
    rows bigint NOT NULL,
    bytes bigint NOT NULL,
    files jsonb NOT NULL,
    shard integer NOT NULL,
    delivered_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (run_id, source, number),
    FOREIGN KEY (run_id, source) REFERENCES tidegate.source ON DELETE CASCADE
);
