-- Durable flows; what moves them is in `functions/`.

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
    PRIMARY KEY (step_id, position)
) WITH (fillfactor = 70);

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
