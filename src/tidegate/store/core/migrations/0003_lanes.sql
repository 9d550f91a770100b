CREATE TABLE tidegate.run (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    pipeline text NOT NULL,
    name text NOT NULL,
    incarnation integer NOT NULL CHECK (incarnation > 0),
    state text NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'ended', 'cancelled', 'failed')),
    begun_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    closed_at timestamptz,
    UNIQUE (pipeline, name, incarnation)
);

CREATE UNIQUE INDEX run_open ON tidegate.run (pipeline, name) WHERE state = 'open';

CREATE TABLE tidegate.channel (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run_id bigint NOT NULL REFERENCES tidegate.run ON DELETE CASCADE,
    from_task text NOT NULL,
    to_task text NOT NULL,
    input integer NOT NULL,
    sent bigint NOT NULL DEFAULT 0,
    UNIQUE (run_id, to_task, from_task, input)
) WITH (fillfactor = 70);

CREATE TABLE tidegate.cursor (
    channel_id bigint PRIMARY KEY REFERENCES tidegate.channel ON DELETE CASCADE,
    seq bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 70);

CREATE TABLE tidegate.message (
    channel_id bigint NOT NULL REFERENCES tidegate.channel ON DELETE CASCADE,
    seq bigint NOT NULL CHECK (seq > 0),
    id uuid NOT NULL,
    kind text NOT NULL CHECK (kind IN ('event', 'watermark', 'barrier', 'instant')),
    payload jsonb NOT NULL,
    PRIMARY KEY (channel_id, seq),
    UNIQUE (channel_id, id)
);
