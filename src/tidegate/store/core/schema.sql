-- The schema that the migrations lead to, for reading. A test compares the two.

CREATE SCHEMA tidegate;

-- Which migrations were applied.
CREATE TABLE tidegate.migration (
    number integer PRIMARY KEY,
    name text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
);


-- What has made the functions, views and triggers in `functions/`.
CREATE TABLE tidegate.functions (
    release text NOT NULL,                 -- of Tidegate, that has made them
    digest text NOT NULL,                  -- of their files
    made_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
-- Who owns what: one row for everything that has one owner at a time.
CREATE TABLE tidegate.lease (
    kind text NOT NULL,                    -- task, monitor, flow task, …
    key text NOT NULL,
    owner text,                            -- null: released
    epoch bigint NOT NULL CHECK (epoch > 0),  -- grows with every change of hands
    expires_at timestamptz NOT NULL,       -- by this server's clock
    seconds double precision,              -- its length: no expiry is much further away
    PRIMARY KEY (kind, key)
);

-- What was seen of this server's clock; nothing is removed by age after it has jumped.
CREATE TABLE tidegate.clock (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    seen_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    steady_since timestamptz NOT NULL DEFAULT '-infinity'  -- it has not jumped since
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
    reclaimed_at timestamptz,              -- when its channels were removed
    request uuid UNIQUE,                   -- who asks twice to begin it gets it twice
    checkpoints jsonb,                         -- how it is checkpoint; null: only when asked
    lineage bigint[] NOT NULL DEFAULT '{}',  -- the runs that it was restored from, oldest first
    unaligned bigint NOT NULL DEFAULT 0,   -- its last checkpoint that waited for no barriers
    request_body text,                     -- SHA-256 of what the request asked for; null: not known
    UNIQUE (pipeline, name, incarnation)
);

CREATE UNIQUE INDEX run_open ON tidegate.run (pipeline, name) WHERE state = 'open';

CREATE INDEX run_to_reclaim ON tidegate.run (id) WHERE state <> 'open' AND reclaimed_at IS NULL;

-- An ordered way from one task to another, per run. Written by the sender.
CREATE TABLE tidegate.channel (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run_id bigint NOT NULL REFERENCES tidegate.run ON DELETE CASCADE,
    from_task text NOT NULL,
    to_task text NOT NULL,
    input integer NOT NULL,                -- the receiver's input edge
    sent bigint NOT NULL DEFAULT 0,        -- the last sequence number in use
    declared bigint,                       -- how many came before its END; null: none was sent
    taken bigint NOT NULL DEFAULT 0,       -- where the cursor stood once; it may be further
    pruned bigint NOT NULL DEFAULT 0,      -- up to here messages were removed after their effect
    watermark bigint,                      -- the last one of those
    UNIQUE (run_id, to_task, from_task, input)
) WITH (fillfactor = 70);

CREATE INDEX channel_news ON tidegate.channel (to_task) WHERE sent > taken;

CREATE INDEX channel_declared ON tidegate.channel (to_task, run_id) WHERE declared IS NOT NULL;

-- How far a channel's receiver has come. Written by the receiver, hence not part of the channel.
CREATE TABLE tidegate.cursor (
    channel_id bigint PRIMARY KEY REFERENCES tidegate.channel ON DELETE CASCADE,
    seq bigint NOT NULL DEFAULT 0          -- everything up to here has had its effect
) WITH (fillfactor = 70);

-- What travels on a channel.
CREATE TABLE tidegate.message (
    channel_id bigint NOT NULL REFERENCES tidegate.channel ON DELETE CASCADE,
    seq bigint NOT NULL CHECK (seq > 0),   -- dense from 1
    id uuid NOT NULL,                      -- made from what caused it, so a repetition is seen
    kind text NOT NULL CHECK (kind IN ('event', 'watermark', 'barrier', 'instant')),
    payload jsonb NOT NULL,
    sent_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (channel_id, seq),
    UNIQUE (channel_id, id)
);

-- A source of a run: what its client has declared, and how far the deliveries have come.
CREATE TABLE tidegate.source (
    run_id bigint NOT NULL REFERENCES tidegate.run ON DELETE CASCADE,
    name text NOT NULL,
    delivered bigint NOT NULL DEFAULT 0,   -- how many chunks there are
    declared bigint CHECK (declared >= 0), -- how many there will be; null: not said yet
    declared_at timestamptz,
    ended_at timestamptz,                  -- when all of them were there and END was sent
    injected bigint NOT NULL DEFAULT 0,    -- the last checkpoint whose barrier is on its channels
    watermark bigint,                      -- the latest of its chunks'; null: none has event time
    begun bigint,                          -- the last batch begun of the stream that it follows
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
    seals jsonb NOT NULL DEFAULT '[]',     -- path, bytes and SHA-256 of each of its files
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

-- Runs that may be what a lost worker process was lost by, until a job of theirs is done.
CREATE TABLE tidegate.suspect (
    run_id bigint NOT NULL REFERENCES tidegate.run ON DELETE CASCADE,
    task text NOT NULL,
    losses integer NOT NULL DEFAULT 0,     -- workers lost while processing this run alone
    tried_by text,                         -- the worker that processes it alone at this moment
    lost_by text,                          -- the last worker that was lost with it
    error text,                            -- what that worker reported, if it could
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
    hash text PRIMARY KEY,                 -- what runs and the manifests of checkpoints name
    nodes text NOT NULL,                   -- what the hash is made from
    noted_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- With which plan each pipeline was served last, for those who begin runs and have no Spark.
CREATE TABLE tidegate.served (
    pipeline text PRIMARY KEY,
    plan text NOT NULL,
    shards integer NOT NULL,
    noted_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- A point in every channel of a run. A number is used once, whatever becomes of it.
CREATE TABLE tidegate.checkpoint (
    run_id bigint NOT NULL REFERENCES tidegate.run ON DELETE CASCADE,
    number bigint NOT NULL CHECK (number > 0),
    id uuid NOT NULL,                      -- sorts by time; a restored run has the same
    epoch bigint NOT NULL CHECK (epoch >= 0 AND epoch < 281474976710656),
    unpublished boolean NOT NULL DEFAULT false,  -- it keeps states, and sinks do not show it
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
    place bigint NOT NULL,                 -- in the order in which each channel had it
    from_task text NOT NULL,
    to_task text NOT NULL,
    input integer NOT NULL,
    kind text NOT NULL CHECK (kind IN ('event', 'watermark')),
    payload jsonb NOT NULL,
    files jsonb,                           -- path, bytes and SHA-256 of each; null: not checksummed yet
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

-- ── Durable flows ── moved by the functions in `functions/`; docs/operations.md says how they are used.

-- One run of a flow. The key is whoever began it: the same key is the same run.
CREATE TABLE tidegate.flow_run (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    flow text NOT NULL,
    key text NOT NULL,
    state text NOT NULL DEFAULT 'running' CHECK (
        state IN ('running', 'paused', 'canceling', 'completed', 'failed', 'canceled')
    ),
    input jsonb NOT NULL,
    cause text,                            -- why it failed or was cancelled: the first cause
    changes bigint NOT NULL DEFAULT 0,     -- how often its state was written
    begun_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    closed_at timestamptz,
    paused_at timestamptz,                 -- since when, while it is paused
    UNIQUE (flow, key)
);

CREATE INDEX flow_run_canceling ON tidegate.flow_run (id) WHERE state = 'canceling';

CREATE INDEX flow_run_closed ON tidegate.flow_run (closed_at) WHERE closed_at IS NOT NULL;

-- A step of a run, as its flow was declared when the run began.
CREATE TABLE tidegate.flow_step (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run_id bigint NOT NULL REFERENCES tidegate.flow_run ON DELETE CASCADE,
    number integer NOT NULL,               -- behind the steps that it depends on
    name text NOT NULL,
    kind text NOT NULL CHECK (kind IN ('plain', 'map', 'generator', 'reduce')),
    state text NOT NULL DEFAULT 'waiting' CHECK (
        state IN ('waiting', 'running', 'completed', 'skipped', 'failed', 'canceled')
    ),
    depends_on text[] NOT NULL,            -- a map step has an item for each result of the first
    optional text[] NOT NULL,              -- of those, the ones that may be skipped
    needs_signal boolean NOT NULL,
    retries integer NOT NULL,              -- of its own task
    item_retries integer NOT NULL,
    tolerated_count bigint,                -- items that may fail; both null: none
    tolerated_share double precision,
    generating text CHECK (generating IN ('started', 'complete', 'failed')),  -- null: no items
    cursor jsonb,                          -- what its generator has to know to go on
    cursor_position bigint NOT NULL DEFAULT 0,  -- the first item behind it
    spawned bigint NOT NULL DEFAULT 0,
    succeeded bigint NOT NULL DEFAULT 0,
    failed bigint NOT NULL DEFAULT 0,
    canceled bigint NOT NULL DEFAULT 0,
    result jsonb,                          -- of a step with items: a summary
    cause text,                            -- why it failed: the first cause
    last_error text,
    started_at timestamptz,
    closed_at timestamptz,
    signal_type jsonb,                     -- JSON Schema of its signal; null: not known
    UNIQUE (run_id, name)
) WITH (fillfactor = 50);

-- A piece of work: a step's own (position -1), or that of one item.
CREATE TABLE tidegate.flow_task (
    step_id bigint NOT NULL,               -- no foreign key: whoever inserts holds the run
    position bigint NOT NULL,
    run_id bigint NOT NULL,
    queue text NOT NULL,                   -- flow/step for its own, flow/step[] for items
    key text,                              -- what identifies an item, if not its position
    state text NOT NULL DEFAULT 'ready' CHECK (
        state IN ('ready', 'held', 'claimed', 'parked', 'succeeded', 'failed', 'canceled')
    ),
    available_at timestamptz NOT NULL DEFAULT now(),
    owner text,                            -- the worker that claimed it last; null: let go
    epoch bigint NOT NULL DEFAULT 0,       -- grows with every claim
    attempts integer NOT NULL DEFAULT 0,
    losses integer NOT NULL DEFAULT 0,     -- workers that died with it
    payload jsonb,                         -- the item
    result jsonb,
    cause text,                            -- its first error
    last_error text,
    waits_for text[],                      -- keys of the state, while it is parked
    wait_number integer,                   -- which of its waits that is
    waiting_since timestamptz,
    wait_until timestamptz,                -- the bound of the wait; null: none
    closed_at timestamptz,
    wait_gate jsonb,                       -- what the wait compares, where it can be told
    PRIMARY KEY (step_id, position)
) WITH (
    fillfactor = 70, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_scale_factor = 0.01,
    vacuum_index_cleanup = on
);

CREATE UNIQUE INDEX flow_task_key ON tidegate.flow_task (step_id, key) WHERE key IS NOT NULL;

CREATE INDEX flow_task_ready ON tidegate.flow_task (queue, available_at, step_id, position)
    WHERE state = 'ready';

CREATE INDEX flow_task_claimed ON tidegate.flow_task (owner, run_id) WHERE state = 'claimed';

CREATE INDEX flow_task_parked ON tidegate.flow_task (run_id) WHERE state = 'parked';

-- What the steps of a run coordinate by; a row for every declared key, from the beginning.
CREATE TABLE tidegate.flow_state (
    run_id bigint NOT NULL REFERENCES tidegate.flow_run ON DELETE CASCADE,
    key text NOT NULL,
    is_monotonic boolean NOT NULL,
    is_external boolean NOT NULL,
    writers text[] NOT NULL,               -- the steps that may write it
    value jsonb,                           -- null: nobody has written it
    version bigint NOT NULL DEFAULT 0,     -- flow_run.changes when it was written
    writer text,
    written_at timestamptz,
    type jsonb,                            -- JSON Schema of its values; null: not known
    PRIMARY KEY (run_id, key)
) WITH (fillfactor = 50);

-- One-shot input for a step, from outside.
CREATE TABLE tidegate.flow_signal (
    run_id bigint NOT NULL REFERENCES tidegate.flow_run ON DELETE CASCADE,
    step text NOT NULL,
    payload jsonb NOT NULL,
    given_by text NOT NULL,
    given_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (run_id, step)
);

-- ── Aliases: by which name readers know an index, and which one it is ──

-- Every switch of an alias; the last one is what it stands for. Written with the switch itself.
CREATE TABLE tidegate.alias_switch (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    alias text NOT NULL,
    index text NOT NULL,                   -- what it stands for since
    previous text,                         -- what it stood for before; null: it was not there
    run_id bigint,                         -- the run of a flow that did it; null: a person
    switched_by text NOT NULL,
    pending bigint,                        -- changes that were not in the index at that moment
    staleness double precision,            -- seconds since the oldest of those was made
    switched_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE INDEX alias_switch_alias ON tidegate.alias_switch (alias, id);

-- ── Seeing flows: waits, events ──

-- A task waits from when it was first parked until it has gone on, also while it looks again.
CREATE INDEX flow_task_waiting ON tidegate.flow_task (run_id, position)
    WHERE wait_number IS NOT NULL AND state IN ('ready', 'held', 'claimed', 'parked');

CREATE INDEX flow_run_open ON tidegate.flow_run (id) WHERE closed_at IS NULL;

-- What has happened to a run, for people and for log shippers; removed with it. Rows of one run
-- are committed in the order of their ids, as whoever moves a run holds its row.
CREATE TABLE tidegate.flow_event (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run_id bigint NOT NULL REFERENCES tidegate.flow_run ON DELETE CASCADE,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    kind text NOT NULL CHECK (kind IN ('run', 'step', 'policy', 'signal', 'state', 'wait')),
    name text NOT NULL,                    -- of the flow, the step, or the key of the state
    detail jsonb NOT NULL
);

CREATE INDEX flow_event_run ON tidegate.flow_event (run_id, id);

COMMENT ON TABLE tidegate.flow_event IS
    'What has happened to runs: states of runs and steps, failure policies, signals, writes of the '
    'state (of a monotonic key at most one in a second), and waits of steps, begun and ended.';

-- ── Runs of pipelines that tasks of flows have begun ──

CREATE TABLE tidegate.flow_pipeline (
    step_id bigint NOT NULL,
    position bigint NOT NULL,
    pipeline text NOT NULL,
    name text NOT NULL,                    -- of the pipeline's run
    flow_run_id bigint NOT NULL REFERENCES tidegate.flow_run ON DELETE CASCADE,
    pipeline_run_id bigint NOT NULL,       -- no foreign key: it may be removed before the flow's
    attempt integer NOT NULL,              -- of the task, that has begun it
    is_settled boolean NOT NULL DEFAULT false,  -- nobody needs to look at it any more
    PRIMARY KEY (step_id, position, pipeline, name)
);

CREATE INDEX flow_pipeline_open ON tidegate.flow_pipeline (pipeline_run_id) WHERE NOT is_settled;

CREATE INDEX flow_pipeline_of_run ON tidegate.flow_pipeline (flow_run_id);

COMMENT ON TABLE tidegate.flow_run IS
    'Runs of flows: running, paused, canceling, completed, failed or canceled, and the first cause.';

COMMENT ON TABLE tidegate.flow_step IS
    'The steps of runs as they were declared when the run began, with the counters of their items.';

COMMENT ON TABLE tidegate.flow_task IS
    'Pieces of work: a step''s own (position -1) or that of an item; who has claimed it, under '
    'which epoch, and what came of it.';

COMMENT ON TABLE tidegate.flow_state IS
    'What the steps of a run coordinate by; who wrote it last. Written by flow_set_state only.';

COMMENT ON TABLE tidegate.flow_signal IS
    'One-shot input for a step, from outside. Given by the function of the same name.';

COMMENT ON TABLE tidegate.alias_switch IS
    'Every switch of an alias to an index, who made it, and how stale the index was then.';

