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
    cause text,                            -- why it failed: the first cause, never another
    warn_at timestamptz,                   -- null: no warning
    deadline_at timestamptz,               -- null: no bound
    plan text NOT NULL DEFAULT '',         -- what its tasks were made from
    reclaimed_at timestamptz,              -- when its lanes were removed
    request uuid UNIQUE,                   -- who asks twice to begin it gets it twice
    cutting jsonb,                         -- how it is cut; null: only when asked
    lineage bigint[] NOT NULL DEFAULT '{}',  -- the runs that it was restored from, oldest first
    unaligned bigint NOT NULL DEFAULT 0,   -- its last checkpoint that waited for no barriers
    UNIQUE (pipeline, name, incarnation)
);

CREATE UNIQUE INDEX run_open ON tidegate.run (pipeline, name) WHERE state = 'open';

CREATE INDEX run_to_reclaim ON tidegate.run (id) WHERE state <> 'open' AND reclaimed_at IS NULL;

-- An ordered way from one task to another, per run. Written by the sender.
CREATE TABLE tidegate.lane (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run_id bigint NOT NULL REFERENCES tidegate.run ON DELETE CASCADE,
    from_task text NOT NULL,
    to_task text NOT NULL,
    input integer NOT NULL,                -- the receiver's input edge
    sent bigint NOT NULL DEFAULT 0,        -- the last sequence number in use
    declared bigint,                       -- how many came before its END; null: none was sent
    taken bigint NOT NULL DEFAULT 0,       -- where the cursor stood once; it may be further
    pruned bigint NOT NULL DEFAULT 0,      -- up to here messages were removed after their effect
    UNIQUE (run_id, to_task, from_task, input)
) WITH (fillfactor = 70);

CREATE INDEX lane_news ON tidegate.lane (to_task) WHERE sent > taken;

CREATE INDEX lane_declared ON tidegate.lane (to_task, run_id) WHERE declared IS NOT NULL;

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
    sent_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (lane_id, seq),
    UNIQUE (lane_id, id)
);

-- A source of a run: what its client has declared, and how far the deliveries have come.
CREATE TABLE tidegate.source (
    run_id bigint NOT NULL REFERENCES tidegate.run ON DELETE CASCADE,
    name text NOT NULL,
    delivered bigint NOT NULL DEFAULT 0,   -- how many chunks there are
    declared bigint CHECK (declared >= 0), -- how many there will be; null: not said yet
    declared_at timestamptz,
    ended_at timestamptz,                  -- when all of them were there and END was sent
    injected bigint NOT NULL DEFAULT 0,    -- the last checkpoint whose barrier is on its lanes
    watermark bigint,                      -- the latest of its chunks'; null: none has event time
    PRIMARY KEY (run_id, name)
) WITH (fillfactor = 70);

-- One piece of a source, as it was ingested.
CREATE TABLE tidegate.chunk (
    run_id bigint NOT NULL,
    source text NOT NULL,
    number bigint NOT NULL CHECK (number > 0),
    sha256 text NOT NULL,                  -- of what the client sent
    rows bigint NOT NULL,
    bytes bigint NOT NULL,
    files jsonb NOT NULL,                  -- relative to the deployment's root
    shard integer NOT NULL,
    delivered_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    behind bigint NOT NULL DEFAULT 0,      -- the checkpoint whose barrier it came behind
    watermark bigint,                      -- its latest event time less the delay, in ms since 1970
    PRIMARY KEY (run_id, source, number),
    FOREIGN KEY (run_id, source) REFERENCES tidegate.source ON DELETE CASCADE
);

-- What a sink of a run gave. Written for all sinks by the transaction that ends the run.
CREATE TABLE tidegate.result (
    run_id bigint NOT NULL REFERENCES tidegate.run ON DELETE CASCADE,
    sink text NOT NULL,
    rows bigint NOT NULL,
    batches jsonb NOT NULL,                -- which name their files
    published_at timestamptz NOT NULL DEFAULT now(),  -- the same for what one transaction wrote
    PRIMARY KEY (run_id, sink)
);

-- Where the monitor has let the END of a run pass.
CREATE TABLE tidegate.release (
    run_id bigint NOT NULL REFERENCES tidegate.run ON DELETE CASCADE,
    task text NOT NULL,
    released_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (run_id, task)
);

-- The tasks of a plan at which END passes when the monitor has released it.
CREATE TABLE tidegate.gate (
    plan text NOT NULL,
    task text NOT NULL,
    PRIMARY KEY (plan, task)
);

-- What plans consist of, for those who restore a run under another.
CREATE TABLE tidegate.plan (
    hash text PRIMARY KEY,                 -- what runs and the manifests of cuts name
    nodes text NOT NULL,                   -- what the hash is made from
    noted_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- A point in every lane of a run. A number is used once, whatever becomes of it.
CREATE TABLE tidegate.checkpoint (
    run_id bigint NOT NULL REFERENCES tidegate.run ON DELETE CASCADE,
    number bigint NOT NULL CHECK (number > 0),
    id uuid NOT NULL,                      -- sorts by time; a restored run has the same
    epoch bigint NOT NULL CHECK (epoch >= 0 AND epoch < 281474976710656),
    quiet boolean NOT NULL DEFAULT false,  -- it keeps states, and sinks do not show it
    state text NOT NULL DEFAULT 'triggered' CHECK (
        state IN ('triggered', 'injected', 'aligning', 'acknowledged', 'committed', 'aborted')
    ),
    triggered_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    injected_at timestamptz,
    aligning_at timestamptz,
    acknowledged_at timestamptz,
    settled_at timestamptz,                -- when it was committed or aborted
    reason text,                           -- why it was aborted
    offender text,                         -- and who is to blame
    manifest jsonb,                        -- what a committed one holds
    patience double precision CHECK (patience >= 0),  -- seconds it waits for barriers; null: all
    unaligned boolean NOT NULL DEFAULT false,  -- it has waited no longer
    PRIMARY KEY (run_id, number)
);

-- One at a time.
CREATE UNIQUE INDEX checkpoint_open ON tidegate.checkpoint (run_id)
    WHERE state NOT IN ('committed', 'aborted');

-- The tasks that a checkpoint's barrier has left.
CREATE TABLE tidegate.acknowledgement (
    run_id bigint NOT NULL,
    number bigint NOT NULL,
    task text NOT NULL,
    acknowledged_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    waited double precision NOT NULL DEFAULT 0,  -- seconds from its first copy to its last
    last text,                             -- who brought that
    bytes bigint NOT NULL DEFAULT 0,       -- of the files that were added
    PRIMARY KEY (run_id, number, task),
    FOREIGN KEY (run_id, number) REFERENCES tidegate.checkpoint ON DELETE CASCADE
);

-- What tasks keep of a run: each row from the checkpoint on that added it, up to its removal.
CREATE TABLE tidegate.state (
    run_id bigint NOT NULL REFERENCES tidegate.run ON DELETE CASCADE,
    task text NOT NULL,
    number bigint NOT NULL,
    place integer NOT NULL,
    input integer NOT NULL,                -- the task's input that it came by
    payload jsonb NOT NULL,
    files jsonb NOT NULL DEFAULT '[]',     -- path, bytes and SHA-256 of each
    removed bigint,                        -- the checkpoint from which on another row holds it
    PRIMARY KEY (run_id, task, number, place)
);

-- What sinks gave for one checkpoint, and the next replaces; visible once that is committed.
CREATE TABLE tidegate.output (
    run_id bigint NOT NULL,
    number bigint NOT NULL,
    place integer NOT NULL,
    payload jsonb NOT NULL,
    files jsonb NOT NULL DEFAULT '[]',
    PRIMARY KEY (run_id, number, place),
    FOREIGN KEY (run_id, number) REFERENCES tidegate.checkpoint ON DELETE CASCADE
);

-- What was on its way when a checkpoint became unaligned; whoever restores it sends it again.
CREATE TABLE tidegate.in_flight (
    run_id bigint NOT NULL,
    number bigint NOT NULL,
    place bigint NOT NULL,                 -- in the order in which each lane had it
    from_task text NOT NULL,
    to_task text NOT NULL,
    input integer NOT NULL,
    kind text NOT NULL CHECK (kind IN ('event', 'watermark')),
    payload jsonb NOT NULL,
    files jsonb,                           -- path, bytes and SHA-256 of each; null: not sealed yet
    PRIMARY KEY (run_id, number, place),
    FOREIGN KEY (run_id, number) REFERENCES tidegate.checkpoint ON DELETE CASCADE
);

-- Files of open runs that have lost a name; a sweeper removes those that have no other.
CREATE TABLE tidegate.garbage (
    run_id bigint NOT NULL REFERENCES tidegate.run ON DELETE CASCADE,
    file text NOT NULL,
    noted_at timestamptz NOT NULL DEFAULT clock_timestamp(),  -- somebody may still be reading it
    PRIMARY KEY (run_id, file)
);
