-- The schema of Tidegate's control plane, in the order of the data's way: a run is started, chunks
-- arrive, messages travel on channels, checkpoints are taken, results are published. Then come
-- durable flows and index aliases.
--
-- This file is migration 1. Later migrations are numbered files in `migrations/`, applied after it.
-- Functions, views and triggers are in `functions/` and are recreated whenever those files change.

CREATE SCHEMA tidegate;


-- ── Versions, ownership, time ──

-- The migrations that were applied to this database.
CREATE TABLE tidegate.migration (
    number integer PRIMARY KEY,
    name text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- The version of the functions, views and triggers in this database; one row.
CREATE TABLE tidegate.function_version (
    release text NOT NULL,                 -- the Tidegate release that created them
    digest text NOT NULL,                  -- SHA-256 of their files
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Exclusive ownership of tasks, monitors, worker registrations, flow workers, …
CREATE TABLE tidegate.lease (
    kind text NOT NULL,
    key text NOT NULL,
    owner text,                            -- null: released
    epoch bigint NOT NULL CHECK (epoch > 0),  -- fencing number: grows with every change of owner
    expires_at timestamptz NOT NULL,       -- by this server's clock
    seconds double precision,              -- the lease's duration; no valid expiry is further away
    PRIMARY KEY (kind, key)
);

-- The last observation of this server's clock. After a jump nothing is removed by age for a while.
CREATE TABLE tidegate.clock (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    seen_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    steady_since timestamptz NOT NULL DEFAULT '-infinity'  -- the clock has not jumped since
);

INSERT INTO tidegate.clock DEFAULT VALUES;


-- ── Plans ──

-- The contents of plans, compared when a run is restored under a changed pipeline.
CREATE TABLE tidegate.plan (
    hash text PRIMARY KEY,                 -- named by runs and by the manifests of checkpoints
    nodes text NOT NULL,                   -- the text that the hash is computed from
    recorded_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- The plan with which each pipeline was served last. Processes without Spark start runs from it.
CREATE TABLE tidegate.current_plan (
    pipeline text PRIMARY KEY,
    plan text NOT NULL,
    shards integer NOT NULL,
    recorded_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- The tasks of a plan at which END waits until the monitor releases the run.
CREATE TABLE tidegate.release_point (
    plan text NOT NULL,
    task text NOT NULL,
    PRIMARY KEY (plan, task)
);


-- ── Runs, sources, chunks ──

-- One client's data set going through a pipeline. Reusing a name starts a new incarnation.
CREATE TABLE tidegate.run (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    pipeline text NOT NULL,
    name text NOT NULL,
    incarnation integer NOT NULL CHECK (incarnation > 0),
    state text NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'ended', 'cancelled', 'failed')),
    begun_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    closed_at timestamptz,
    cause text,                            -- why it failed: the first cause
    warn_at timestamptz,                   -- null: no warning
    deadline_at timestamptz,               -- null: no deadline
    plan text NOT NULL DEFAULT '',         -- hash of the plan that its tasks are built from
    request uuid UNIQUE,                   -- idempotency key: a repeated request gets the same run
    request_digest text,                   -- SHA-256 of the request's body; null: not known
    checkpoints jsonb,                     -- checkpoint configuration; null: only on request
    last_unaligned bigint NOT NULL DEFAULT 0,  -- its last unaligned checkpoint; 0: none
    lineage bigint[] NOT NULL DEFAULT '{}',  -- the runs that it was restored from, oldest first
    reclaimed_at timestamptz,              -- when its channels were removed
    UNIQUE (pipeline, name, incarnation)
);

CREATE UNIQUE INDEX run_open ON tidegate.run (pipeline, name) WHERE state = 'open';

CREATE INDEX run_to_reclaim ON tidegate.run (id) WHERE state <> 'open' AND reclaimed_at IS NULL;

-- A source of a run: how many chunks are declared and how many have been delivered.
CREATE TABLE tidegate.source (
    run_id bigint NOT NULL REFERENCES tidegate.run ON DELETE CASCADE,
    name text NOT NULL,
    delivered bigint NOT NULL DEFAULT 0,   -- number of chunks delivered
    declared bigint CHECK (declared >= 0), -- number of chunks expected; null: not declared yet
    declared_at timestamptz,
    ended_at timestamptz,                  -- when all were delivered and END was sent
    injected bigint NOT NULL DEFAULT 0,    -- the last checkpoint whose barrier is on its channels
    watermark bigint,                      -- the latest of its chunks'; null: none has event time
    last_batch bigint,                     -- the last batch started, if it reads a stream
    PRIMARY KEY (run_id, name)
) WITH (fillfactor = 70);

-- A numbered piece of a source, as it was ingested.
CREATE TABLE tidegate.chunk (
    run_id bigint NOT NULL,
    source text NOT NULL,
    number bigint NOT NULL CHECK (number > 0),
    sha256 text NOT NULL,                  -- of the client's content
    rows bigint NOT NULL,
    bytes bigint NOT NULL,
    files jsonb NOT NULL,                  -- relative to the deployment's root
    file_checksums jsonb NOT NULL DEFAULT '[]',  -- path, bytes and SHA-256 of each file
    shard integer NOT NULL,
    watermark bigint,                      -- latest event time less the delay, in ms since 1970
    after_checkpoint bigint NOT NULL DEFAULT 0,  -- the last barrier before it; 0: none
    delivered_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (run_id, source, number),
    FOREIGN KEY (run_id, source) REFERENCES tidegate.source ON DELETE CASCADE
);


-- ── Channels ──

-- An ordered channel from one task to another, per run. Written by the sender.
CREATE TABLE tidegate.channel (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run_id bigint NOT NULL REFERENCES tidegate.run ON DELETE CASCADE,
    from_task text NOT NULL,
    to_task text NOT NULL,
    input integer NOT NULL,                -- the receiver's input edge
    sent bigint NOT NULL DEFAULT 0,        -- the last sequence number in use
    declared bigint,                       -- number of messages before END; null: END not sent
    read_at_least bigint NOT NULL DEFAULT 0,  -- an earlier position of the cursor
    pruned bigint NOT NULL DEFAULT 0,      -- processed messages up to here were removed
    watermark bigint,                      -- the last watermark among the removed messages
    UNIQUE (run_id, to_task, from_task, input)
) WITH (fillfactor = 70);

CREATE INDEX channel_unread ON tidegate.channel (to_task) WHERE sent > read_at_least;

CREATE INDEX channel_declared ON tidegate.channel (to_task, run_id) WHERE declared IS NOT NULL;

-- The receiver's position on a channel. Separate from the channel because the receiver writes it.
CREATE TABLE tidegate.cursor (
    channel_id bigint PRIMARY KEY REFERENCES tidegate.channel ON DELETE CASCADE,
    seq bigint NOT NULL DEFAULT 0          -- messages up to here were processed
) WITH (fillfactor = 70);

-- The messages on channels.
CREATE TABLE tidegate.message (
    channel_id bigint NOT NULL REFERENCES tidegate.channel ON DELETE CASCADE,
    seq bigint NOT NULL CHECK (seq > 0),   -- dense from 1
    id uuid NOT NULL,                      -- derived from the message's cause: detects repetitions
    kind text NOT NULL CHECK (kind IN ('event', 'watermark', 'barrier', 'instant')),
    payload jsonb NOT NULL,
    sent_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (channel_id, seq),
    UNIQUE (channel_id, id)
);

-- The tasks at which the monitor has released the END of a run.
CREATE TABLE tidegate.release (
    run_id bigint NOT NULL REFERENCES tidegate.run ON DELETE CASCADE,
    task text NOT NULL,
    released_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (run_id, task)
);

-- Runs that may have caused the loss of a worker process. They are processed alone until a job of
-- theirs completes.
CREATE TABLE tidegate.isolated_run (
    run_id bigint NOT NULL REFERENCES tidegate.run ON DELETE CASCADE,
    task text NOT NULL,
    losses integer NOT NULL DEFAULT 0,     -- workers lost while processing this run alone
    running_on text,                       -- the worker that is processing it alone
    lost_worker text,                      -- the last worker lost while processing it
    error text,                            -- reported by that worker, if it could
    PRIMARY KEY (run_id, task)
);


-- ── Checkpoints ──

-- A checkpoint of a run. Numbers are never reused, also not those of aborted checkpoints.
CREATE TABLE tidegate.checkpoint (
    run_id bigint NOT NULL REFERENCES tidegate.run ON DELETE CASCADE,
    number bigint NOT NULL CHECK (number > 0),
    id uuid NOT NULL,                      -- sorts by time; a restored run keeps it
    epoch bigint NOT NULL CHECK (epoch >= 0 AND epoch < 281474976710656),
    unpublished boolean NOT NULL DEFAULT false,  -- it stores state only; sinks do not show it
    alignment_timeout double precision CHECK (alignment_timeout >= 0),  -- seconds; null: none
    unaligned boolean NOT NULL DEFAULT false,  -- the timeout has passed
    state text NOT NULL DEFAULT 'triggered' CHECK (
        state IN ('triggered', 'injected', 'aligning', 'acknowledged', 'committed', 'aborted')
    ),
    triggered_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    injected_at timestamptz,
    aligning_at timestamptz,
    acknowledged_at timestamptz,
    settled_at timestamptz,                -- when it was committed or aborted
    reason text,                           -- why it was aborted
    offender text,                         -- the source or task that caused the abort
    manifest jsonb,                        -- contents of a committed checkpoint
    PRIMARY KEY (run_id, number)
);

-- A run has at most one checkpoint in progress.
CREATE UNIQUE INDEX checkpoint_open ON tidegate.checkpoint (run_id)
    WHERE state NOT IN ('committed', 'aborted');

-- The tasks that have forwarded a checkpoint's barrier.
CREATE TABLE tidegate.acknowledgement (
    run_id bigint NOT NULL,
    number bigint NOT NULL,
    task text NOT NULL,
    acknowledged_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    alignment_seconds double precision NOT NULL DEFAULT 0,  -- from the first copy to the last
    last_upstream text,                    -- delivered the last copy; null: did not align
    bytes bigint NOT NULL DEFAULT 0,       -- size of the files that were added
    PRIMARY KEY (run_id, number, task),
    FOREIGN KEY (run_id, number) REFERENCES tidegate.checkpoint ON DELETE CASCADE
);

-- State of tasks: each row belongs to the checkpoints from `number` on, until before `removed`.
CREATE TABLE tidegate.task_state (
    run_id bigint NOT NULL REFERENCES tidegate.run ON DELETE CASCADE,
    task text NOT NULL,
    number bigint NOT NULL,
    position integer NOT NULL,
    input integer NOT NULL,                -- the task's input edge
    payload jsonb NOT NULL,
    files jsonb NOT NULL DEFAULT '[]',     -- path, bytes and SHA-256 of each
    removed bigint,                        -- the checkpoint whose compacted rows replace it
    PRIMARY KEY (run_id, task, number, position)
);

-- Sink output that belongs to one checkpoint only. Visible when that checkpoint is committed.
CREATE TABLE tidegate.sink_output (
    run_id bigint NOT NULL,
    number bigint NOT NULL,
    position integer NOT NULL,
    payload jsonb NOT NULL,
    files jsonb NOT NULL DEFAULT '[]',
    PRIMARY KEY (run_id, number, position),
    FOREIGN KEY (run_id, number) REFERENCES tidegate.checkpoint ON DELETE CASCADE
);

-- Messages in flight when a checkpoint became unaligned. Restoring it sends them again.
CREATE TABLE tidegate.in_flight_message (
    run_id bigint NOT NULL,
    number bigint NOT NULL,
    position bigint NOT NULL,              -- keeps the order of each channel
    from_task text NOT NULL,
    to_task text NOT NULL,
    input integer NOT NULL,
    kind text NOT NULL CHECK (kind IN ('event', 'watermark')),
    payload jsonb NOT NULL,
    files jsonb,                           -- path, bytes, SHA-256 of each; null: no checksums yet
    PRIMARY KEY (run_id, number, position),
    FOREIGN KEY (run_id, number) REFERENCES tidegate.checkpoint ON DELETE CASCADE
);


-- ── Results, retention ──

-- The results of an ended run. All sinks are written by the transaction that ends the run.
CREATE TABLE tidegate.result (
    run_id bigint NOT NULL REFERENCES tidegate.run ON DELETE CASCADE,
    sink text NOT NULL,
    rows bigint NOT NULL,
    batches jsonb NOT NULL,                -- file references and counts
    published_at timestamptz NOT NULL DEFAULT now(),  -- equal for all rows of one transaction
    PRIMARY KEY (run_id, sink)
);

-- Files of open runs that lost a reference. The sweeper removes those without any other reference.
CREATE TABLE tidegate.unused_file (
    run_id bigint NOT NULL REFERENCES tidegate.run ON DELETE CASCADE,
    file text NOT NULL,
    unused_since timestamptz NOT NULL DEFAULT clock_timestamp(),  -- readers get time to finish
    PRIMARY KEY (run_id, file)
);


-- ── Durable flows ──
-- Changed by the functions in `functions/` only; docs/operations.md describes their use.

-- One run of a flow. Starting a flow again with the same key returns the same run.
CREATE TABLE tidegate.flow_run (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    flow text NOT NULL,
    key text NOT NULL,
    state text NOT NULL DEFAULT 'running' CHECK (
        state IN ('running', 'paused', 'canceling', 'completed', 'failed', 'canceled')
    ),
    input jsonb NOT NULL,
    cause text,                            -- why it failed or was canceled: the first cause
    changes bigint NOT NULL DEFAULT 0,     -- number of writes of its state
    begun_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    closed_at timestamptz,
    paused_at timestamptz,                 -- null: not paused
    UNIQUE (flow, key)
);

CREATE INDEX flow_run_open ON tidegate.flow_run (id) WHERE closed_at IS NULL;

CREATE INDEX flow_run_canceling ON tidegate.flow_run (id) WHERE state = 'canceling';

CREATE INDEX flow_run_closed ON tidegate.flow_run (closed_at) WHERE closed_at IS NOT NULL;

COMMENT ON TABLE tidegate.flow_run IS
    'Runs of flows: running, paused, canceling, completed, failed or canceled, and the first cause.';

-- A step of a run, as its flow was declared when the run started.
CREATE TABLE tidegate.flow_step (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run_id bigint NOT NULL REFERENCES tidegate.flow_run ON DELETE CASCADE,
    number integer NOT NULL,               -- topological order: greater than its dependencies'
    name text NOT NULL,
    kind text NOT NULL CHECK (kind IN ('plain', 'map', 'generator', 'reduce')),
    state text NOT NULL DEFAULT 'waiting' CHECK (
        state IN ('waiting', 'running', 'completed', 'skipped', 'failed', 'canceled')
    ),
    depends_on text[] NOT NULL,            -- a map step has an item for each result of the first
    optional text[] NOT NULL,              -- the dependencies that may be skipped
    needs_signal boolean NOT NULL,
    signal_type jsonb,                     -- JSON Schema of its signal; null: not known
    retries integer NOT NULL,              -- of its own task
    item_retries integer NOT NULL,
    tolerated_count bigint,                -- items that may fail; both null: none
    tolerated_share double precision,
    generating text CHECK (generating IN ('started', 'complete', 'failed')),  -- null: no items
    cursor jsonb,                          -- position from which its generator resumes
    cursor_position bigint NOT NULL DEFAULT 0,  -- the first item after the cursor
    spawned bigint NOT NULL DEFAULT 0,
    succeeded bigint NOT NULL DEFAULT 0,
    failed bigint NOT NULL DEFAULT 0,
    canceled bigint NOT NULL DEFAULT 0,
    result jsonb,                          -- of a step with items: a summary
    cause text,                            -- why it failed: the first cause
    last_error text,
    started_at timestamptz,
    closed_at timestamptz,
    UNIQUE (run_id, name)
) WITH (fillfactor = 50);

COMMENT ON TABLE tidegate.flow_step IS
    'The steps of runs as declared when the run started, with the counters of their items.';

-- A unit of work: a step's own (position -1), or that of one item.
CREATE TABLE tidegate.flow_task (
    step_id bigint NOT NULL,               -- no foreign key: inserts happen under the run's lock
    position bigint NOT NULL,
    run_id bigint NOT NULL,
    queue text NOT NULL,                   -- flow/step for its own, flow/step[] for items
    key text,                              -- identifies an item, if its position does not
    state text NOT NULL DEFAULT 'ready' CHECK (
        state IN ('ready', 'held', 'claimed', 'suspended', 'succeeded', 'failed', 'canceled')
    ),
    available_at timestamptz NOT NULL DEFAULT now(),
    owner text,                            -- the worker of the last claim; null: given up
    epoch bigint NOT NULL DEFAULT 0,       -- grows with every claim
    attempts integer NOT NULL DEFAULT 0,
    losses integer NOT NULL DEFAULT 0,     -- workers lost while executing it
    payload jsonb,                         -- the item
    result jsonb,
    cause text,                            -- its first error
    last_error text,
    waits_for text[],                      -- keys of the state that a suspended task waits for
    wait_number integer,                   -- the ordinal of that wait within the task
    wait_gate jsonb,                       -- the condition, where it can be expressed
    waiting_since timestamptz,
    wait_until timestamptz,                -- timeout of the wait; null: none
    closed_at timestamptz,
    PRIMARY KEY (step_id, position)
) WITH (
    fillfactor = 70, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_scale_factor = 0.01,
    vacuum_index_cleanup = on
);

CREATE UNIQUE INDEX flow_task_key ON tidegate.flow_task (step_id, key) WHERE key IS NOT NULL;

CREATE INDEX flow_task_ready ON tidegate.flow_task (queue, available_at, step_id, position)
    WHERE state = 'ready';

CREATE INDEX flow_task_claimed ON tidegate.flow_task (owner, run_id) WHERE state = 'claimed';

CREATE INDEX flow_task_suspended ON tidegate.flow_task (run_id) WHERE state = 'suspended';

-- A wait lasts from when the task is first suspended until it continues, including re-evaluations.
CREATE INDEX flow_task_waiting ON tidegate.flow_task (run_id, position)
    WHERE wait_number IS NOT NULL AND state IN ('ready', 'held', 'claimed', 'suspended');

COMMENT ON TABLE tidegate.flow_task IS
    'Units of work: a step''s own (position -1) or that of an item, with its owner, epoch and outcome.';

-- State shared by the steps of a run. Every declared key has a row from the start.
CREATE TABLE tidegate.flow_state (
    run_id bigint NOT NULL REFERENCES tidegate.flow_run ON DELETE CASCADE,
    key text NOT NULL,
    is_monotonic boolean NOT NULL,
    is_external boolean NOT NULL,
    writers text[] NOT NULL,               -- the steps that may write it
    type jsonb,                            -- JSON Schema of its values; null: not known
    value jsonb,                           -- null: not written yet
    version bigint NOT NULL DEFAULT 0,     -- flow_run.changes when it was written
    writer text,
    written_at timestamptz,
    PRIMARY KEY (run_id, key)
) WITH (fillfactor = 50);

COMMENT ON TABLE tidegate.flow_state IS
    'State shared by the steps of a run, and its last writers. Written by flow_set_state only.';

-- One-shot input for a step, from outside of the flow.
CREATE TABLE tidegate.flow_signal (
    run_id bigint NOT NULL REFERENCES tidegate.flow_run ON DELETE CASCADE,
    step text NOT NULL,
    payload jsonb NOT NULL,
    given_by text NOT NULL,
    given_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (run_id, step)
);

COMMENT ON TABLE tidegate.flow_signal IS
    'One-shot input for a step, from outside of the flow. Sent with the function flow_signal.';

-- The history of a run, removed with it. Rows of one run are committed in the order of their ids,
-- because every change of a run locks its row.
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
    'History of runs: state changes of runs and steps, failure policies, signals, state writes '
    '(at most one per second for a monotonic key), and starts and ends of waits.';

-- Pipeline runs that were started by tasks of flows.
CREATE TABLE tidegate.flow_pipeline (
    step_id bigint NOT NULL,
    position bigint NOT NULL,
    pipeline text NOT NULL,
    name text NOT NULL,                    -- of the pipeline run
    flow_run_id bigint NOT NULL REFERENCES tidegate.flow_run ON DELETE CASCADE,
    pipeline_run_id bigint NOT NULL,       -- no foreign key: it may be removed before the flow run
    attempt integer NOT NULL,              -- the attempt of the task that started it
    is_settled boolean NOT NULL DEFAULT false,  -- its outcome has been handled
    PRIMARY KEY (step_id, position, pipeline, name)
);

CREATE INDEX flow_pipeline_open ON tidegate.flow_pipeline (pipeline_run_id) WHERE NOT is_settled;

CREATE INDEX flow_pipeline_of_run ON tidegate.flow_pipeline (flow_run_id);


-- ── Index aliases ──

-- Every switch of an alias to an index; the last one is current. Written in the switch itself.
CREATE TABLE tidegate.alias_switch (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    alias text NOT NULL,
    index text NOT NULL,                   -- the index that the alias names from here on
    previous text,                         -- the index it named before; null: alias created
    run_id bigint,                         -- the flow run that switched it; null: a person
    switched_by text NOT NULL,
    pending bigint,                        -- changes not yet applied to the index at the switch
    staleness double precision,            -- age of the oldest of those, in seconds
    switched_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE INDEX alias_switch_alias ON tidegate.alias_switch (alias, id);

COMMENT ON TABLE tidegate.alias_switch IS
    'Every switch of an alias to an index: its author, and how stale the index was.';
