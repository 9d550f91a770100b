-- The schema that the migrations lead to, for reading. A test compares the two.

CREATE SCHEMA tidegate;

-- Which migrations were applied.
CREATE TABLE tidegate.migration (
    number integer PRIMARY KEY,
    name text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Who owns what: one row for everything that has one owner at a time.
CREATE TABLE tidegate.lease (
    kind text NOT NULL,                    -- task, monitor, flow task, …
    key text NOT NULL,
    owner text,                            -- null: released
    epoch bigint NOT NULL CHECK (epoch > 0),  -- grows with every change of hands
    expires_at timestamptz NOT NULL,       -- by this server's clock
    PRIMARY KEY (kind, key)
);

-- One client's data set going through a pipeline. A name that is used again is a new incarnation.
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

-- An ordered way from one task to another, per run. Written by the sender.
CREATE TABLE tidegate.lane (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run_id bigint NOT NULL REFERENCES tidegate.run ON DELETE CASCADE,
    from_task text NOT NULL,
    to_task text NOT NULL,
    input integer NOT NULL,                -- the receiver's input edge
    sent bigint NOT NULL DEFAULT 0,        -- the last sequence number in use
    UNIQUE (run_id, to_task, from_task, input)
) WITH (fillfactor = 70);

-- How far a lane's receiver has come. Written by the receiver, hence not part of the lane.
CREATE TABLE tidegate.cursor (
    lane_id bigint PRIMARY KEY REFERENCES tidegate.lane ON DELETE CASCADE,
    seq bigint NOT NULL DEFAULT 0          -- everything up to here has had its effect
) WITH (fillfactor = 70);

-- What travels on a lane.
CREATE TABLE tidegate.message (
    lane_id bigint NOT NULL REFERENCES tidegate.lane ON DELETE CASCADE,
    seq bigint NOT NULL CHECK (seq > 0),   -- dense from 1
    id uuid NOT NULL,                      -- made from what caused it, so a repetition is seen
    kind text NOT NULL CHECK (kind IN ('event', 'watermark', 'barrier', 'instant')),
    payload jsonb NOT NULL,
    PRIMARY KEY (lane_id, seq),
    UNIQUE (lane_id, id)
);
