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
    watermark bigint,                      -- the last one of those
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

-- With which plan each pipeline was served last, for those who begin runs and have no Spark.
CREATE TABLE tidegate.served (
    pipeline text PRIMARY KEY,
    plan text NOT NULL,
    shards integer NOT NULL,
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

-- ── Durable flows ── see docs/operations.md for how the functions are used.
--
-- Whatever moves a run locks its row first (`flow_lock`), so that everything that happens to one run
-- happens one after the other and nobody waits in a ring. Only `flow_claim` locks tasks alone, and
-- waits for nobody. Batches make the lock cheap.
--
-- Functions that move tasks are told to go by indexes: a plan for many of them, kept from a moment
-- when there were few or made from their statistics, would read all tasks for each batch.

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

-- How far the steps of all runs are.
CREATE VIEW tidegate.flow_progress AS
SELECT
    run.id AS run_id, run.flow, run.key, run.state AS run_state,
    step.name AS step, step.kind, step.state, step.generating,
    step.spawned, step.succeeded, step.failed, step.canceled,
    step.spawned - step.succeeded - step.failed - step.canceled AS in_flight,
    step.cause, step.last_error, step.started_at, step.closed_at
FROM tidegate.flow_run AS run
JOIN tidegate.flow_step AS step ON step.run_id = run.id
ORDER BY run.id, step.number;

-- ── Decisions: the same as in tidegate.flows, which a test compares ──

CREATE FUNCTION tidegate.flow_may_move(p_kind text, p_old text, p_new text) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT (p_kind, p_old, p_new) IN (VALUES
        ('flow', 'running', 'paused'), ('flow', 'running', 'canceling'),
        ('flow', 'running', 'completed'), ('flow', 'running', 'failed'),
        ('flow', 'paused', 'running'), ('flow', 'paused', 'canceling'),
        ('flow', 'paused', 'completed'), ('flow', 'paused', 'failed'),
        ('flow', 'canceling', 'canceled'),
        ('flow', 'failed', 'running'),
        ('step', 'waiting', 'running'), ('step', 'waiting', 'skipped'),
        ('step', 'waiting', 'canceled'),
        ('step', 'running', 'completed'), ('step', 'running', 'skipped'),
        ('step', 'running', 'failed'), ('step', 'running', 'canceled'),
        ('step', 'failed', 'running'),
        ('step', 'canceled', 'waiting'), ('step', 'canceled', 'running'),
        ('task', 'ready', 'claimed'), ('task', 'ready', 'held'), ('task', 'ready', 'canceled'),
        ('task', 'held', 'ready'), ('task', 'held', 'canceled'),
        ('task', 'claimed', 'ready'), ('task', 'claimed', 'held'), ('task', 'claimed', 'parked'),
        ('task', 'claimed', 'succeeded'), ('task', 'claimed', 'failed'),
        ('task', 'claimed', 'canceled'),
        ('task', 'parked', 'ready'), ('task', 'parked', 'held'), ('task', 'parked', 'canceled'),
        ('task', 'failed', 'ready'),
        ('task', 'canceled', 'ready')
    )
$$;

CREATE FUNCTION tidegate.flow_readiness(
    p_states text[], p_optional boolean[], p_needs_signal boolean, p_has_signal boolean
) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN bool_or(it.state = 'skipped' AND NOT it.is_optional) THEN 'skip'
        WHEN bool_or(it.state NOT IN ('completed', 'skipped')) THEN 'wait'
        WHEN p_needs_signal AND NOT p_has_signal THEN 'wait'
        ELSE 'start'
    END
    FROM unnest(p_states, p_optional) AS it (state, is_optional)
$$;

CREATE FUNCTION tidegate.flow_verdict(
    p_is_ended boolean, p_spawned bigint, p_succeeded bigint, p_failed bigint, p_canceled bigint,
    p_count bigint, p_share double precision
) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN p_count IS NULL AND p_share IS NULL AND p_failed > 0 THEN 'fail'
        WHEN p_failed > p_count THEN 'fail'
        WHEN NOT p_is_ended OR p_spawned <> p_succeeded + p_failed + p_canceled THEN 'go on'
        WHEN p_failed > p_share * p_spawned THEN 'fail'
        ELSE 'complete'
    END
$$;

-- ── What the functions below are made of; not to be called alone ──

CREATE FUNCTION tidegate.flow_check_move() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF NOT tidegate.flow_may_move(TG_ARGV[0], OLD.state, NEW.state) THEN
        RAISE EXCEPTION 'a % does not become % from %', TG_ARGV[0], NEW.state, OLD.state;
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER flow_run_moves BEFORE UPDATE OF state ON tidegate.flow_run
    FOR EACH ROW WHEN (OLD.state <> NEW.state)
    EXECUTE FUNCTION tidegate.flow_check_move('flow');

CREATE TRIGGER flow_step_moves BEFORE UPDATE OF state ON tidegate.flow_step
    FOR EACH ROW WHEN (OLD.state <> NEW.state)
    EXECUTE FUNCTION tidegate.flow_check_move('step');

CREATE FUNCTION tidegate.flow_refuse(p_code text, p_message text, p_detail jsonb) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = p_code, MESSAGE = p_message, DETAIL = p_detail::text;
END
$$;

CREATE FUNCTION tidegate.flow_lock(p_run bigint, p_wanted text DEFAULT NULL)
RETURNS tidegate.flow_run
LANGUAGE plpgsql AS $$
DECLARE
    v_run tidegate.flow_run;
BEGIN
    SELECT * INTO v_run FROM tidegate.flow_run WHERE id = p_run FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        PERFORM tidegate.flow_refuse(
            'TG002', format('there is no run %s', p_run), jsonb_build_object('run', p_run));
    END IF;
    IF p_wanted IS NOT NULL AND v_run.state NOT IN ('running', 'paused') THEN
        PERFORM tidegate.flow_refuse(
            'TG003', format('run %s is %s: %s is not possible', p_run, v_run.state, p_wanted),
            jsonb_build_object('run', p_run, 'state', v_run.state, 'wanted', p_wanted));
    END IF;
    RETURN v_run;
END
$$;

CREATE FUNCTION tidegate.flow_notify(p_run tidegate.flow_run) RETURNS void
LANGUAGE sql AS $$
    SELECT pg_notify('tidegate', 'flow/' || (p_run).flow)
$$;

-- A task that may be worked on; held back while its run is paused.
CREATE FUNCTION tidegate.flow_free(p_run tidegate.flow_run) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN (p_run).state = 'paused' THEN 'held' ELSE 'ready' END
$$;

-- The task that a worker says it holds: with state claimed, or moved on by the same claim.
CREATE FUNCTION tidegate.flow_held(
    p_owner text, p_step bigint, p_position bigint, p_epoch bigint
) RETURNS tidegate.flow_task
LANGUAGE plpgsql AS $$
DECLARE
    v_task tidegate.flow_task;
BEGIN
    SELECT * INTO v_task FROM tidegate.flow_task
    WHERE step_id = p_step AND position = p_position FOR UPDATE;
    IF v_task.owner = p_owner AND v_task.epoch = p_epoch AND v_task.state <> 'canceled' THEN
        RETURN v_task;
    END IF;
    PERFORM tidegate.flow_refuse(
        'TG001', format('%s does not hold task %s of step %s any more', p_owner, p_position, p_step),
        jsonb_build_object(
            'run', coalesce(v_task.run_id, 0),
            'step', coalesce((SELECT name FROM tidegate.flow_step WHERE id = p_step), ''),
            'position', p_position, 'owner', p_owner, 'epoch', p_epoch,
            'holder', CASE
                WHEN v_task.state = 'claimed' THEN 'held by ' || v_task.owner
                ELSE coalesce(v_task.state, 'gone')
            END,
            'current', coalesce(v_task.epoch, 0)));
END
$$;

CREATE FUNCTION tidegate.flow_refuse_claim(
    p_task tidegate.flow_task, p_owner text, p_epoch bigint
) RETURNS void
LANGUAGE sql AS $$
    SELECT tidegate.flow_refuse(
        'TG001',
        format('%s does not hold task %s of step %s any more',
            p_owner, (p_task).position, (p_task).step_id),
        jsonb_build_object(
            'run', (p_task).run_id,
            'step', coalesce(
                (SELECT name FROM tidegate.flow_step WHERE id = (p_task).step_id), ''),
            'position', (p_task).position, 'owner', p_owner, 'epoch', p_epoch,
            'holder', CASE
                WHEN (p_task).state = 'claimed' THEN 'held by ' || (p_task).owner
                ELSE (p_task).state
            END,
            'current', (p_task).epoch))
$$;

-- The task that a worker is at work on: what it once held, it writes nothing for any more.
CREATE FUNCTION tidegate.flow_at_work(
    p_owner text, p_step bigint, p_position bigint, p_epoch bigint
) RETURNS tidegate.flow_task
LANGUAGE plpgsql AS $$
DECLARE
    v_task tidegate.flow_task := tidegate.flow_held(p_owner, p_step, p_position, p_epoch);
BEGIN
    IF v_task.state <> 'claimed' THEN
        PERFORM tidegate.flow_refuse_claim(v_task, p_owner, p_epoch);
    END IF;
    RETURN v_task;
END
$$;

-- End what is left of a run: nothing of it is begun any more, and who holds something has lost it.
CREATE FUNCTION tidegate.flow_close_rest(p_run bigint, p_states text[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    WITH closed AS (
        UPDATE tidegate.flow_task
        SET state = 'canceled', closed_at = clock_timestamp()
        WHERE step_id IN (SELECT id FROM tidegate.flow_step WHERE run_id = p_run)
        AND state = ANY (p_states)
        RETURNING step_id, position
    )
    UPDATE tidegate.flow_step AS step
    SET canceled = step.canceled + of_step.number
    FROM (
        SELECT step_id, count(*) AS number FROM closed WHERE position >= 0 GROUP BY step_id
    ) AS of_step
    WHERE step.id = of_step.step_id;
END
$$;

CREATE FUNCTION tidegate.flow_fail_step(p_step bigint, p_cause text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_step tidegate.flow_step;
    v_run tidegate.flow_run;
BEGIN
    UPDATE tidegate.flow_step
    SET state = 'failed', cause = coalesce(cause, p_cause), closed_at = clock_timestamp()
    WHERE id = p_step RETURNING * INTO v_step;
    PERFORM tidegate.flow_close_rest(
        v_step.run_id, ARRAY['ready', 'held', 'parked', 'claimed']);
    UPDATE tidegate.flow_step SET state = 'canceled', closed_at = clock_timestamp()
    WHERE run_id = v_step.run_id AND state IN ('waiting', 'running');
    UPDATE tidegate.flow_run
    SET state = 'failed', closed_at = clock_timestamp(),
        cause = coalesce(cause, format('step %s: %s', v_step.name, v_step.cause))
    WHERE id = v_step.run_id RETURNING * INTO v_run;
    PERFORM tidegate.flow_notify(v_run);
END
$$;

-- Complete or fail a step with items, if it is time; whether it was.
CREATE FUNCTION tidegate.flow_settle_step(p_step bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    v_step tidegate.flow_step;
    v_verdict text;
BEGIN
    SELECT * INTO v_step FROM tidegate.flow_step WHERE id = p_step;
    IF v_step.state <> 'running' THEN
        RETURN false;
    END IF;
    v_verdict := tidegate.flow_verdict(
        coalesce(v_step.generating = 'complete', false), v_step.spawned, v_step.succeeded, v_step.failed,
        v_step.canceled, v_step.tolerated_count, v_step.tolerated_share);
    IF v_verdict = 'fail' THEN
        PERFORM tidegate.flow_fail_step(p_step, coalesce(v_step.cause, v_step.last_error));
    ELSIF v_verdict = 'complete' THEN
        UPDATE tidegate.flow_step
        SET state = 'completed', closed_at = clock_timestamp(), result = jsonb_build_object(
            'expected', spawned, 'succeeded', succeeded, 'failed', failed, 'canceled', canceled,
            'running', 0)
        WHERE id = p_step;
    END IF;
    RETURN v_verdict <> 'go on';
END
$$;

-- Begin the steps that wait for nothing any more, and end a run that has no others.
CREATE FUNCTION tidegate.flow_advance(p_run bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_run tidegate.flow_run;
    v_step tidegate.flow_step;
    v_readiness text;
    v_again boolean := true;
BEGIN
    SELECT * INTO v_run FROM tidegate.flow_run WHERE id = p_run;
    IF v_run.state NOT IN ('running', 'paused') THEN
        RETURN;
    END IF;
    WHILE v_again LOOP
        v_again := false;
        FOR v_step IN
            SELECT * FROM tidegate.flow_step
            WHERE run_id = p_run AND state = 'waiting' ORDER BY number
        LOOP
            SELECT tidegate.flow_readiness(
                array_agg(other.state), array_agg(other.name = ANY (v_step.optional)),
                v_step.needs_signal, EXISTS (
                    SELECT FROM tidegate.flow_signal
                    WHERE run_id = p_run AND step = v_step.name))
            INTO v_readiness
            FROM tidegate.flow_step AS other
            WHERE other.run_id = p_run AND other.name = ANY (v_step.depends_on);
            IF v_readiness = 'skip' THEN
                UPDATE tidegate.flow_step SET state = 'skipped', closed_at = clock_timestamp()
                WHERE id = v_step.id;
                v_again := true;
            ELSIF v_readiness = 'start' THEN
                UPDATE tidegate.flow_step
                SET state = 'running', started_at = clock_timestamp(),
                    generating = CASE WHEN kind IN ('map', 'generator') THEN 'started' END
                WHERE id = v_step.id;
                INSERT INTO tidegate.flow_task (step_id, position, run_id, queue, state)
                VALUES (v_step.id, -1, p_run, v_run.flow || '/' || v_step.name,
                    tidegate.flow_free(v_run));
            END IF;
        END LOOP;
    END LOOP;
    IF NOT EXISTS (
        SELECT FROM tidegate.flow_step WHERE run_id = p_run AND state IN ('waiting', 'running')
    ) THEN
        UPDATE tidegate.flow_run SET state = 'completed', closed_at = clock_timestamp()
        WHERE id = p_run;
    END IF;
    PERFORM tidegate.flow_notify(v_run);
END
$$;

-- A run that is being given up ends when no worker holds anything of it.
CREATE FUNCTION tidegate.flow_settle_canceling(p_run bigint) RETURNS boolean
LANGUAGE plpgsql SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    v_run tidegate.flow_run;
BEGIN
    IF EXISTS (SELECT FROM tidegate.flow_task WHERE state = 'claimed' AND run_id = p_run) THEN
        RETURN false;
    END IF;
    UPDATE tidegate.flow_step SET state = 'canceled', closed_at = clock_timestamp()
    WHERE run_id = p_run AND state IN ('waiting', 'running');
    UPDATE tidegate.flow_run SET state = 'canceled', closed_at = clock_timestamp()
    WHERE id = p_run AND state = 'canceling' RETURNING * INTO v_run;
    IF FOUND THEN
        PERFORM tidegate.flow_notify(v_run);
    END IF;
    RETURN true;
END
$$;

-- What follows when tasks of a step have moved.
CREATE FUNCTION tidegate.flow_follow(p_run tidegate.flow_run, p_step bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF (p_run).state = 'canceling' THEN
        PERFORM tidegate.flow_settle_canceling((p_run).id);
    ELSIF tidegate.flow_settle_step(p_step) THEN
        PERFORM tidegate.flow_advance((p_run).id);
    END IF;
END
$$;

-- The items of a map step: what its first dependency gave, or the results of its items.
CREATE FUNCTION tidegate.flow_expand(p_run tidegate.flow_run, p_step bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_step tidegate.flow_step;
    v_source tidegate.flow_step;
    v_number bigint;
BEGIN
    SELECT * INTO v_step FROM tidegate.flow_step WHERE id = p_step;
    SELECT * INTO v_source FROM tidegate.flow_step
    WHERE run_id = v_step.run_id AND name = v_step.depends_on[1];
    INSERT INTO tidegate.flow_task (step_id, position, run_id, queue, state, payload)
    SELECT p_step, row_number() OVER (ORDER BY item.position) - 1, v_step.run_id,
        (p_run).flow || '/' || v_step.name || '[]', tidegate.flow_free(p_run), item.payload
    FROM (
        SELECT ordinality AS position, element AS payload
        FROM jsonb_array_elements(
            CASE
                WHEN v_source.id IS NULL THEN (p_run).input
                WHEN v_source.kind IN ('map', 'generator') THEN '[]'::jsonb
                WHEN v_source.result = 'null'::jsonb THEN '[]'::jsonb
                ELSE coalesce(v_source.result, '[]'::jsonb)
            END
        ) WITH ORDINALITY AS of_list (element, ordinality)
        UNION ALL
        SELECT position, result FROM tidegate.flow_task
        WHERE v_source.kind IN ('map', 'generator') AND step_id = v_source.id
        AND position >= 0 AND state = 'succeeded'
    ) AS item;
    GET DIAGNOSTICS v_number = ROW_COUNT;
    UPDATE tidegate.flow_step SET generating = 'complete', spawned = v_number WHERE id = p_step;
END
$$;

-- A task of a run goes back to be done by another, or is given up with its run.
CREATE FUNCTION tidegate.flow_let_go(p_run tidegate.flow_run, p_task tidegate.flow_task)
RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF (p_run).state = 'canceling' THEN
        UPDATE tidegate.flow_task
        SET state = 'canceled', owner = NULL, closed_at = clock_timestamp()
        WHERE step_id = (p_task).step_id AND position = (p_task).position;
        UPDATE tidegate.flow_step SET canceled = canceled + 1
        WHERE id = (p_task).step_id AND (p_task).position >= 0;
    ELSE
        UPDATE tidegate.flow_task
        SET state = tidegate.flow_free(p_run), owner = NULL, attempts = attempts - 1,
            available_at = now()
        WHERE step_id = (p_task).step_id AND position = (p_task).position;
    END IF;
END
$$;

-- A task has failed for good.
CREATE FUNCTION tidegate.flow_fail_task(
    p_run tidegate.flow_run, p_task tidegate.flow_task, p_error text
) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_cause text := coalesce((p_task).cause, p_error);
BEGIN
    UPDATE tidegate.flow_task
    SET state = 'failed', cause = v_cause, last_error = p_error, closed_at = clock_timestamp()
    WHERE step_id = (p_task).step_id AND position = (p_task).position;
    UPDATE tidegate.flow_step
    SET last_error = p_error,
        cause = coalesce(cause, CASE WHEN (p_task).position < 0 THEN v_cause
            ELSE format('item %s: %s', (p_task).position, v_cause) END),
        failed = failed + CASE WHEN (p_task).position < 0 THEN 0 ELSE 1 END,
        generating = CASE WHEN (p_task).position < 0 AND generating IS NOT NULL THEN 'failed'
            ELSE generating END
    WHERE id = (p_task).step_id;
    IF (p_run).state = 'canceling' THEN
        PERFORM tidegate.flow_settle_canceling((p_run).id);
    ELSIF (p_task).position < 0 THEN
        PERFORM tidegate.flow_fail_step((p_task).step_id, v_cause);
    ELSE
        PERFORM tidegate.flow_follow(p_run, (p_task).step_id);
    END IF;
END
$$;

-- ── Beginning and steering runs: for anybody ──

CREATE FUNCTION tidegate.flow_begin(
    p_flow text, p_key text, p_input jsonb, p_steps jsonb, p_keys jsonb
) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    v_id bigint;
BEGIN
    LOOP
        INSERT INTO tidegate.flow_run (flow, key, input) VALUES (p_flow, p_key, p_input)
        ON CONFLICT (flow, key) DO NOTHING RETURNING id INTO v_id;
        EXIT WHEN v_id IS NOT NULL;
        SELECT id INTO v_id FROM tidegate.flow_run WHERE flow = p_flow AND key = p_key;
        IF FOUND THEN
            RETURN v_id;
        END IF;  -- forgotten at this moment
    END LOOP;
    INSERT INTO tidegate.flow_step (
        run_id, number, name, kind, depends_on, optional, needs_signal, retries, item_retries,
        tolerated_count, tolerated_share)
    SELECT v_id, number, name, kind, depends_on, optional, needs_signal, retries, item_retries,
        tolerated_count, tolerated_share
    FROM jsonb_to_recordset(p_steps) AS step (
        number integer, name text, kind text, depends_on text[], optional text[],
        needs_signal boolean, retries integer, item_retries integer, tolerated_count bigint,
        tolerated_share double precision);
    INSERT INTO tidegate.flow_state (run_id, key, is_monotonic, is_external, writers)
    SELECT v_id, name, monotonic, external, writers
    FROM jsonb_to_recordset(p_keys) AS key (
        name text, monotonic boolean, external boolean, writers text[]);
    PERFORM tidegate.flow_advance(v_id);
    RETURN v_id;
END
$$;

CREATE FUNCTION tidegate.flow_signal(
    p_run bigint, p_step text, p_payload jsonb, p_by text DEFAULT current_user
) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_run tidegate.flow_run := tidegate.flow_lock(p_run);
    v_before jsonb;
    v_reason text;
BEGIN
    IF v_run.state = 'failed' THEN  -- what it failed with may be taken back, before it is retried
        DELETE FROM tidegate.flow_signal AS given
        USING tidegate.flow_step AS taker
        WHERE given.run_id = p_run AND given.step = p_step AND taker.run_id = p_run
        AND taker.name = p_step AND taker.state NOT IN ('completed', 'skipped');
    ELSE
        PERFORM tidegate.flow_lock(p_run, 'a signal');
    END IF;
    SELECT payload INTO v_before FROM tidegate.flow_signal WHERE run_id = p_run AND step = p_step;
    v_reason := CASE
        WHEN v_before = p_payload THEN NULL
        WHEN v_before IS NOT NULL THEN 'another was given before'
        WHEN NOT EXISTS (
            SELECT FROM tidegate.flow_step
            WHERE run_id = p_run AND name = p_step AND needs_signal
        ) THEN 'it takes none'
    END;
    IF v_reason IS NOT NULL THEN
        PERFORM tidegate.flow_refuse(
            'TG007', format('step %s takes no such signal: %s', p_step, v_reason),
            jsonb_build_object('run', p_run, 'step', p_step, 'reason', v_reason));
    END IF;
    INSERT INTO tidegate.flow_signal (run_id, step, payload, given_by)
    VALUES (p_run, p_step, p_payload, p_by) ON CONFLICT DO NOTHING;
    PERFORM tidegate.flow_advance(p_run);
END
$$;

COMMENT ON FUNCTION tidegate.flow_signal IS
    'Give a step the one-shot input that it waits for; the same again is harmless.';

CREATE FUNCTION tidegate.flow_cancel(p_run bigint, p_reason text DEFAULT 'somebody asked for it')
RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    v_run tidegate.flow_run := tidegate.flow_lock(p_run);
BEGIN
    IF v_run.state IN ('running', 'paused') THEN
        UPDATE tidegate.flow_run SET state = 'canceling', cause = coalesce(cause, p_reason)
        WHERE id = p_run;
        PERFORM tidegate.flow_close_rest(p_run, ARRAY['ready', 'held', 'parked']);
        PERFORM tidegate.flow_settle_canceling(p_run);
        PERFORM tidegate.flow_notify(v_run);
    END IF;
    RETURN (SELECT state FROM tidegate.flow_run WHERE id = p_run);
END
$$;

COMMENT ON FUNCTION tidegate.flow_cancel IS
    'Give a run up; answers its state. It is canceling while workers hold something of it.';

CREATE FUNCTION tidegate.flow_pause(p_run bigint) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    v_run tidegate.flow_run := tidegate.flow_lock(p_run, 'a pause');
BEGIN
    UPDATE tidegate.flow_run SET state = 'paused' WHERE id = p_run;
    UPDATE tidegate.flow_task SET state = 'held'
    WHERE step_id IN (SELECT id FROM tidegate.flow_step WHERE run_id = p_run) AND state = 'ready';
    RETURN 'paused';
END
$$;

COMMENT ON FUNCTION tidegate.flow_pause IS
    'Begin nothing more of a run until it is resumed; what is at work is finished.';

CREATE FUNCTION tidegate.flow_resume(p_run bigint) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    v_run tidegate.flow_run := tidegate.flow_lock(p_run, 'resuming');
BEGIN
    UPDATE tidegate.flow_run SET state = 'running' WHERE id = p_run;
    UPDATE tidegate.flow_task SET state = 'ready'
    WHERE step_id IN (SELECT id FROM tidegate.flow_step WHERE run_id = p_run) AND state = 'held';
    PERFORM tidegate.flow_notify(v_run);
    RETURN 'running';
END
$$;

COMMENT ON FUNCTION tidegate.flow_resume IS 'Go on with a run that was paused.';

CREATE FUNCTION tidegate.flow_retry(p_run bigint) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    v_run tidegate.flow_run := tidegate.flow_lock(p_run);
BEGIN
    IF v_run.state IN ('running', 'paused') THEN
        RETURN v_run.state;  -- there is nothing that failed; so it is harmless when repeated
    END IF;
    IF v_run.state <> 'failed' OR v_run.closed_at = 'epoch' THEN
        PERFORM tidegate.flow_refuse(
            'TG003', format('run %s is %s', p_run, v_run.state), jsonb_build_object(
                'run', p_run, 'state', v_run.state, 'wanted', 'trying it again'));
    END IF;
    UPDATE tidegate.flow_run SET state = 'running', cause = NULL, closed_at = NULL
    WHERE id = p_run;
    WITH again AS (
        UPDATE tidegate.flow_task AS task
        SET state = 'ready', attempts = 0, losses = 0, owner = NULL, available_at = now(),
            cause = NULL, closed_at = NULL, wait_number = NULL
        FROM tidegate.flow_step AS step
        WHERE step.run_id = p_run AND task.step_id = step.id
        AND step.state IN ('failed', 'canceled') AND task.state IN ('failed', 'canceled')
        RETURNING task.step_id
    )
    UPDATE tidegate.flow_step
    SET state = CASE WHEN started_at IS NULL THEN 'waiting' ELSE 'running' END,
        failed = 0, canceled = 0, cause = NULL, closed_at = NULL,
        generating = CASE WHEN generating = 'failed' THEN 'started' ELSE generating END
    WHERE run_id = p_run AND state IN ('failed', 'canceled');
    PERFORM tidegate.flow_advance(p_run);
    RETURN 'running';
END
$$;

COMMENT ON FUNCTION tidegate.flow_retry IS
    'Try everything of a failed run again that did not succeed; harmless when it runs already.';

CREATE FUNCTION tidegate.flow_tolerate(
    p_run bigint, p_step text, p_count bigint, p_share double precision DEFAULT NULL
) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_run tidegate.flow_run := tidegate.flow_lock(p_run);
    v_step bigint;
BEGIN
    IF v_run.state <> 'failed' THEN
        PERFORM tidegate.flow_lock(p_run, 'another failure policy');
    END IF;
    UPDATE tidegate.flow_step SET tolerated_count = p_count, tolerated_share = p_share
    WHERE run_id = p_run AND name = p_step AND kind IN ('map', 'generator')
    RETURNING id INTO v_step;
    IF v_step IS NULL THEN
        PERFORM tidegate.flow_refuse(
            'TG008', format('run %s has no step %s with items', p_run, p_step),
            jsonb_build_object('run', p_run, 'step', p_step));
    END IF;
    IF v_run.state <> 'failed' THEN  -- a failed one goes on when it is retried
        PERFORM tidegate.flow_follow(v_run, v_step);
    END IF;
END
$$;

COMMENT ON FUNCTION tidegate.flow_tolerate IS
    'Change how many items of a running step may fail: a count, a share, or (both null) none.';

CREATE FUNCTION tidegate.flow_set_state(
    p_run bigint, p_key text, p_value jsonb, p_writer text DEFAULT current_user,
    p_once boolean DEFAULT false, p_owner text DEFAULT NULL, p_step bigint DEFAULT NULL,
    p_position bigint DEFAULT NULL, p_epoch bigint DEFAULT NULL
) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    v_run tidegate.flow_run := tidegate.flow_lock(p_run);
    v_state tidegate.flow_state;
    v_task tidegate.flow_task;
    v_may_write boolean;
BEGIN
    IF v_run.state <> 'failed' OR p_owner IS NOT NULL THEN
        PERFORM tidegate.flow_lock(p_run, 'writing its state');
    END IF;
    SELECT * INTO v_state FROM tidegate.flow_state WHERE run_id = p_run AND key = p_key;
    IF p_owner IS NULL THEN
        v_may_write := v_state.is_external;
    ELSE
        v_task := tidegate.flow_at_work(p_owner, p_step, p_position, p_epoch);
        v_may_write := (SELECT name FROM tidegate.flow_step WHERE id = p_step)
            = ANY (v_state.writers);
    END IF;
    IF v_may_write IS NOT TRUE THEN
        PERFORM tidegate.flow_refuse(
            'TG006', format('%s may not write the state %s', p_writer, p_key),
            jsonb_build_object('who', p_writer, 'action', 'write', 'key', p_key));
    END IF;
    IF v_state.value = p_value OR (p_once AND v_state.value IS NOT NULL) THEN
        RETURN v_state.value;
    END IF;
    IF v_state.is_monotonic
    -- A value of the wrong kind, which the run failed with, is no place to go back from.
    AND NOT (v_run.state = 'failed' AND jsonb_typeof(p_value) <> jsonb_typeof(v_state.value))
    AND (CASE
        WHEN jsonb_typeof(p_value) = 'string' AND jsonb_typeof(v_state.value) = 'string'
        THEN (p_value #>> '{}') COLLATE "C" < (v_state.value #>> '{}') COLLATE "C"
        ELSE p_value < v_state.value
    END) THEN
        PERFORM tidegate.flow_refuse(
            'TG005', format('the state %s would go back', p_key), jsonb_build_object(
                'run', p_run, 'key', p_key, 'value', p_value::text,
                'current', v_state.value::text, 'writer', v_state.writer));
    END IF;
    UPDATE tidegate.flow_run SET changes = changes + 1 WHERE id = p_run;
    UPDATE tidegate.flow_state
    SET value = p_value, version = v_run.changes + 1, writer = p_writer,
        written_at = clock_timestamp()
    WHERE run_id = p_run AND key = p_key;
    IF v_task.losses > 0 AND v_state.is_monotonic THEN  -- it got on, so it does not only die
        UPDATE tidegate.flow_task SET losses = 0
        WHERE step_id = p_step AND position = p_position;
    END IF;
    UPDATE tidegate.flow_task
    SET state = tidegate.flow_free(v_run)
    WHERE run_id = p_run AND state = 'parked' AND p_key = ANY (waits_for);
    IF FOUND THEN
        PERFORM tidegate.flow_notify(v_run);
    END IF;
    RETURN p_value;
END
$$;

COMMENT ON FUNCTION tidegate.flow_set_state IS
    'Write a key of a run''s state, and wake who waits for it; answers the value that it has. '
    'Without an owner only keys that are declared external.';

-- ── Working: for whoever holds the lease ''flow worker'' under its name ──

CREATE FUNCTION tidegate.flow_claim(
    p_owner text, p_queues text[], p_rooms integer[], p_most integer DEFAULT NULL
) RETURNS TABLE (
    step_id bigint, "position" bigint, run_id bigint, queue text, epoch bigint, attempt integer,
    payload text, wait_number integer, waited double precision
)
LANGUAGE sql SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
    UPDATE tidegate.flow_task AS task
    SET state = 'claimed', owner = p_owner, epoch = task.epoch + 1, attempts = task.attempts + 1
    FROM (
        SELECT free.step_id, free.position
        FROM unnest(p_queues, p_rooms) AS wanted (queue, room)
        CROSS JOIN LATERAL (
            SELECT ready.step_id, ready.position
            FROM tidegate.flow_task AS ready
            WHERE ready.queue = wanted.queue AND ready.state = 'ready'
            AND ready.available_at <= now()
            ORDER BY ready.available_at, ready.step_id, ready.position
            LIMIT wanted.room
            FOR UPDATE SKIP LOCKED
        ) AS free
        LIMIT p_most
    ) AS free
    WHERE task.step_id = free.step_id AND task.position = free.position
    RETURNING task.step_id, task.position, task.run_id, task.queue, task.epoch, task.attempts,
        task.payload::text, task.wait_number,
        extract(epoch FROM clock_timestamp() - task.waiting_since)::double precision
$$;

COMMENT ON FUNCTION tidegate.flow_claim IS
    'Claim what is ready in these queues (flow/step, flow/step[] for items), so many of each, and '
    'so many of all.';

CREATE FUNCTION tidegate.flow_complete(p_owner text, p_results jsonb)
RETURNS TABLE (run_id bigint, step text, "position" bigint, epoch bigint, holder text, current bigint)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    v_done record;
    v_run tidegate.flow_run;
    v_step bigint;
    v_steps bigint[] := '{}';
    v_number bigint := 0;
BEGIN
    PERFORM FROM tidegate.flow_run
    WHERE id IN (
        SELECT DISTINCT given.run FROM jsonb_to_recordset(p_results) AS given (run bigint))
    ORDER BY id FOR NO KEY UPDATE;
    FOR v_done IN
        WITH done AS (
            UPDATE tidegate.flow_task AS task
            SET state = 'succeeded', result = given.result, closed_at = clock_timestamp()
            FROM jsonb_to_recordset(p_results) AS given (
                step bigint, position bigint, epoch bigint, result jsonb)
            WHERE task.step_id = given.step AND task.position = given.position
            AND (task.owner = p_owner AND task.epoch = given.epoch AND task.state = 'claimed')
                IS TRUE  -- so that it goes by the key, and not by all that is claimed
            RETURNING task.run_id, task.step_id, task.position, given.result
        )
        SELECT done.run_id, done.step_id, count(*) FILTER (WHERE done.position >= 0) AS items,
            (array_agg(done.result) FILTER (WHERE done.position < 0))[1] AS own,
            bool_or(done.position < 0) AS is_own, count(*) AS number
        FROM done GROUP BY done.run_id, done.step_id ORDER BY done.run_id, done.step_id
    LOOP
        SELECT * INTO v_run FROM tidegate.flow_run WHERE id = v_done.run_id;
        UPDATE tidegate.flow_step SET succeeded = succeeded + v_done.items
        WHERE id = v_done.step_id;
        IF v_done.is_own AND v_run.state <> 'canceling' THEN
            PERFORM tidegate.flow_complete_own(v_run, v_done.step_id, v_done.own);
        END IF;
        v_steps := v_steps || v_done.step_id;
        v_number := v_number + v_done.number;
    END LOOP;
    -- Only then: a step that fails its run ends the others, which may be done by this call too.
    FOREACH v_step IN ARRAY v_steps LOOP
        SELECT run.* INTO v_run
        FROM tidegate.flow_run AS run JOIN tidegate.flow_step AS step ON step.run_id = run.id
        WHERE step.id = v_step;
        PERFORM tidegate.flow_follow(v_run, v_step);
    END LOOP;
    -- Nearly always all were ours, and there are no others to look for.
    IF v_number = jsonb_array_length(p_results) THEN
        RETURN;
    END IF;
    RETURN QUERY
    SELECT given.run, coalesce(step.name, ''), given.position, given.epoch,
        CASE WHEN task.state = 'claimed' THEN 'held by ' || task.owner
            ELSE coalesce(task.state, 'gone') END,
        coalesce(task.epoch, 0)
    FROM jsonb_to_recordset(p_results) AS given (
        run bigint, step bigint, position bigint, epoch bigint)
    LEFT JOIN tidegate.flow_task AS task
        ON task.step_id = given.step AND task.position = given.position
    LEFT JOIN tidegate.flow_step AS step ON step.id = given.step
    WHERE (task.owner = p_owner AND task.epoch = given.epoch AND task.state = 'succeeded')
        IS NOT TRUE;
END
$$;

COMMENT ON FUNCTION tidegate.flow_complete IS
    'Complete claimed tasks: [{"run", "step", "position", "epoch", "result"}, …]. Answers those '
    'that are refused because somebody else has them; of these nothing is written.';

-- The own task of a step is done: its result is there, or its items are known.
CREATE FUNCTION tidegate.flow_complete_own(
    p_run tidegate.flow_run, p_step bigint, p_result jsonb
) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_kind text := (SELECT kind FROM tidegate.flow_step WHERE id = p_step);
BEGIN
    IF v_kind = 'map' THEN
        PERFORM tidegate.flow_expand(p_run, p_step);
        PERFORM tidegate.flow_notify(p_run);
    ELSIF v_kind = 'generator' THEN
        UPDATE tidegate.flow_step SET generating = 'complete' WHERE id = p_step;
    ELSE
        UPDATE tidegate.flow_step
        SET state = 'completed', result = p_result, closed_at = clock_timestamp()
        WHERE id = p_step;
        PERFORM tidegate.flow_advance((p_run).id);
    END IF;
END
$$;

CREATE FUNCTION tidegate.flow_fail(
    p_owner text, p_run bigint, p_step bigint, p_position bigint, p_epoch bigint, p_error text,
    p_pause double precision DEFAULT 0, p_is_final boolean DEFAULT false
) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    v_run tidegate.flow_run := tidegate.flow_lock(p_run);
    v_task tidegate.flow_task := tidegate.flow_held(p_owner, p_step, p_position, p_epoch);
    v_step tidegate.flow_step;
BEGIN
    IF v_task.state <> 'claimed' THEN
        RETURN v_task.state;
    END IF;
    SELECT * INTO v_step FROM tidegate.flow_step WHERE id = p_step;
    IF p_is_final OR v_run.state = 'canceling' OR v_task.attempts > (
        CASE WHEN p_position < 0 THEN v_step.retries ELSE v_step.item_retries END
    ) THEN
        PERFORM tidegate.flow_fail_task(v_run, v_task, p_error);
        RETURN 'failed';
    END IF;
    UPDATE tidegate.flow_task
    SET state = tidegate.flow_free(v_run), available_at = now() + make_interval(secs => p_pause),
        cause = coalesce(cause, p_error), last_error = p_error, wait_number = NULL
    WHERE step_id = p_step AND position = p_position;
    UPDATE tidegate.flow_step SET last_error = p_error WHERE id = p_step;
    RETURN 'ready';
END
$$;

COMMENT ON FUNCTION tidegate.flow_fail IS
    'An attempt at a claimed task has failed: it is ready again after a pause, in seconds, or, '
    'when it has no retries left or the failure is final, failed. Answers which.';

CREATE FUNCTION tidegate.flow_spawn(
    p_owner text, p_run bigint, p_step bigint, p_epoch bigint, p_items jsonb,
    p_cursor jsonb DEFAULT NULL, p_cursor_position bigint DEFAULT NULL
) RETURNS TABLE (spawned bigint, in_flight bigint)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    v_run tidegate.flow_run := tidegate.flow_lock(p_run, 'spawning items');
    v_step tidegate.flow_step;
    v_task tidegate.flow_task;
    v_number bigint;
    v_queue text;
BEGIN
    SELECT * INTO v_step FROM tidegate.flow_step WHERE id = p_step;
    v_queue := v_run.flow || '/' || v_step.name || '[]';
    IF v_step.generating IS DISTINCT FROM 'started' THEN
        PERFORM tidegate.flow_refuse_spawn(v_step, format('its generator is %s',
            coalesce(v_step.generating, 'no generator')));
    END IF;
    v_task := tidegate.flow_at_work(p_owner, p_step, -1, p_epoch);
    IF (p_items -> 0 ? 'key') = (
        SELECT key IS NULL FROM tidegate.flow_task WHERE step_id = p_step AND position = 0
    ) THEN
        PERFORM tidegate.flow_refuse_spawn(v_step, CASE WHEN p_items -> 0 ? 'key'
            THEN 'those before are known by their positions and not by keys'
            ELSE 'those before are known by keys and not by their positions' END);
    END IF;
    IF p_items -> 0 ? 'key' THEN
        INSERT INTO tidegate.flow_task (step_id, position, run_id, queue, key, state, payload)
        SELECT p_step, v_step.spawned - 1 + row_number() OVER (ORDER BY fresh.place), p_run,
            v_queue, fresh.key, tidegate.flow_free(v_run), fresh.item
        FROM (
            SELECT DISTINCT ON (given.key) given.key, given.item, given.place
            FROM ROWS FROM (
                jsonb_to_recordset(p_items) AS (key text, item jsonb)
            ) WITH ORDINALITY AS given (key, item, place)
            ORDER BY given.key, given.place
        ) AS fresh
        WHERE NOT EXISTS (
            SELECT FROM tidegate.flow_task WHERE step_id = p_step AND key = fresh.key);
    ELSE
        INSERT INTO tidegate.flow_task (step_id, position, run_id, queue, state, payload)
        SELECT p_step, given.position, p_run, v_queue, tidegate.flow_free(v_run), given.item
        FROM jsonb_to_recordset(p_items) AS given (position bigint, item jsonb)
        WHERE given.position >= v_step.spawned
        ORDER BY given.position;
    END IF;
    GET DIAGNOSTICS v_number = ROW_COUNT;
    IF (p_items -> -1 ->> 'position')::bigint >= v_step.spawned + v_number THEN
        PERFORM tidegate.flow_refuse_spawn(v_step, format(
            'positions %s and after are missing', v_step.spawned));
    END IF;
    UPDATE tidegate.flow_step
    SET spawned = spawned + v_number, cursor = coalesce(p_cursor, cursor),
        cursor_position = coalesce(p_cursor_position, cursor_position)
    WHERE id = p_step RETURNING * INTO v_step;
    IF v_number > 0 THEN
        PERFORM tidegate.flow_notify(v_run);
    END IF;
    IF v_number > 0 AND v_task.losses > 0 THEN  -- it got on, so it does not only die
        UPDATE tidegate.flow_task SET losses = 0 WHERE step_id = p_step AND position = -1;
    END IF;
    RETURN QUERY SELECT v_step.spawned,
        v_step.spawned - v_step.succeeded - v_step.failed - v_step.canceled;
END
$$;

COMMENT ON FUNCTION tidegate.flow_spawn IS
    'Make items of a claimed generator tasks: [{"position", "item"}, …] in the order of their '
    'positions, from 0 and without gaps, or [{"key", "item"}, …]. '
    'Those that are there already are recognised. Saves a cursor with them, and says how many '
    'items there are and how many of them are not terminal.';

CREATE FUNCTION tidegate.flow_refuse_spawn(p_step tidegate.flow_step, p_reason text) RETURNS void
LANGUAGE sql AS $$
    SELECT tidegate.flow_refuse(
        'TG004', format('items of step %s are refused: %s', (p_step).name, p_reason),
        jsonb_build_object(
            'run', (p_step).run_id, 'step', (p_step).name, 'reason', p_reason))
$$;

CREATE FUNCTION tidegate.flow_finish_generator(
    p_owner text, p_run bigint, p_step bigint, p_epoch bigint
) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    v_run tidegate.flow_run := tidegate.flow_lock(p_run);
    v_task tidegate.flow_task := tidegate.flow_held(p_owner, p_step, -1, p_epoch);
BEGIN
    IF v_task.state = 'claimed' THEN
        UPDATE tidegate.flow_task SET state = 'succeeded', closed_at = clock_timestamp()
        WHERE step_id = p_step AND position = -1;
        UPDATE tidegate.flow_step SET generating = 'complete' WHERE id = p_step;
        PERFORM tidegate.flow_follow(v_run, p_step);
    END IF;
    RETURN (SELECT spawned FROM tidegate.flow_step WHERE id = p_step);
END
$$;

COMMENT ON FUNCTION tidegate.flow_finish_generator IS
    'A claimed generator has yielded its last item; answers how many there are.';

CREATE FUNCTION tidegate.flow_skip(p_owner text, p_run bigint, p_step bigint, p_epoch bigint)
RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_run tidegate.flow_run := tidegate.flow_lock(p_run);
    v_task tidegate.flow_task := tidegate.flow_held(p_owner, p_step, -1, p_epoch);
BEGIN
    IF v_task.state <> 'claimed' THEN
        RETURN;
    END IF;
    UPDATE tidegate.flow_task SET state = 'succeeded', closed_at = clock_timestamp()
    WHERE step_id = p_step AND position = -1;
    IF v_run.state = 'canceling' THEN
        PERFORM tidegate.flow_settle_canceling(p_run);
    ELSE
        UPDATE tidegate.flow_step SET state = 'skipped', closed_at = clock_timestamp()
        WHERE id = p_step;
        PERFORM tidegate.flow_advance(p_run);
    END IF;
END
$$;

COMMENT ON FUNCTION tidegate.flow_skip IS 'The condition of a claimed step does not hold.';

CREATE FUNCTION tidegate.flow_park(
    p_owner text, p_run bigint, p_step bigint, p_position bigint, p_epoch bigint,
    p_keys text[], p_seen bigint, p_number integer, p_poll double precision,
    p_timeout double precision
) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    v_run tidegate.flow_run := tidegate.flow_lock(p_run);
    v_task tidegate.flow_task := tidegate.flow_held(p_owner, p_step, p_position, p_epoch);
    v_since timestamptz;
    v_state text;
BEGIN
    IF v_task.state <> 'claimed' THEN
        RETURN v_task.state;
    END IF;
    IF v_run.state = 'canceling' THEN
        PERFORM tidegate.flow_let_go(v_run, v_task);
        PERFORM tidegate.flow_settle_canceling(p_run);
        RETURN 'canceled';
    END IF;
    v_since := CASE WHEN v_task.wait_number = p_number THEN v_task.waiting_since ELSE now() END;
    v_state := CASE WHEN EXISTS (
        SELECT FROM tidegate.flow_state
        WHERE run_id = p_run AND key = ANY (p_keys) AND version > p_seen
    ) THEN tidegate.flow_free(v_run) ELSE 'parked' END;
    UPDATE tidegate.flow_task
    SET state = v_state, attempts = attempts - 1, losses = 0, waits_for = p_keys, wait_number = p_number,
        waiting_since = v_since, wait_until = v_since + make_interval(secs => p_timeout),
        available_at = now() + make_interval(secs => p_poll)
    WHERE step_id = p_step AND position = p_position;
    RETURN v_state;
END
$$;

COMMENT ON FUNCTION tidegate.flow_park IS
    'Put a claimed task aside until one of these keys of the state is written; at once ready when '
    'one was, after the version that was seen.';

CREATE FUNCTION tidegate.flow_put_back(p_owner text, p_tasks jsonb) RETURNS void
LANGUAGE plpgsql SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    v_run tidegate.flow_run;
    v_task tidegate.flow_task;
BEGIN
    FOR v_run IN
        SELECT * FROM tidegate.flow_run
        WHERE id IN (
            SELECT given.run FROM jsonb_to_recordset(p_tasks) AS given (run bigint))
        ORDER BY id FOR NO KEY UPDATE
    LOOP
        FOR v_task IN
            SELECT task.*
            FROM jsonb_to_recordset(p_tasks) AS given (
                run bigint, step bigint, position bigint, epoch bigint)
            JOIN tidegate.flow_task AS task
                ON task.step_id = given.step AND task.position = given.position
            WHERE given.run = v_run.id
            AND (task.owner = p_owner AND task.epoch = given.epoch AND task.state = 'claimed')
                IS TRUE
        LOOP
            PERFORM tidegate.flow_let_go(v_run, v_task);
        END LOOP;
        IF v_run.state = 'canceling' THEN
            PERFORM tidegate.flow_settle_canceling(v_run.id);
        END IF;
        PERFORM tidegate.flow_notify(v_run);
    END LOOP;
END
$$;

COMMENT ON FUNCTION tidegate.flow_put_back IS
    'Let claimed tasks go that were not worked on: [{"run", "step", "position", "epoch"}, …].';

-- ── Sweeping: for anybody, as often as they like ──

CREATE FUNCTION tidegate.flow_sweep(p_most_losses integer DEFAULT 10)
RETURNS TABLE (freed bigint, woken bigint, ended bigint)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    v_dead text[];
    v_run tidegate.flow_run;
    v_task tidegate.flow_task;
BEGIN
    freed := 0;
    woken := 0;
    ended := 0;
    -- One at a time: what another sweeps at this moment need not be waited for.
    IF NOT pg_try_advisory_xact_lock(hashtext('tidegate.flow_sweep')) THEN
        RETURN NEXT;
        RETURN;
    END IF;
    SELECT array_agg(owner) INTO v_dead FROM (
        SELECT DISTINCT owner FROM tidegate.flow_task WHERE state = 'claimed') AS at_work
    WHERE NOT EXISTS (
        SELECT FROM tidegate.lease
        WHERE kind = 'flow worker' AND key = at_work.owner
        AND lease.owner IS NOT NULL AND expires_at > clock_timestamp());
    -- Without its lease a worker that was only asleep notices, and lets everything go.
    DELETE FROM tidegate.lease
    WHERE kind = 'flow worker' AND (owner IS NULL OR expires_at <= clock_timestamp());
    v_dead := ARRAY(SELECT unnest(v_dead) EXCEPT
        SELECT key FROM tidegate.lease WHERE kind = 'flow worker');
    FOR v_run IN
        SELECT * FROM tidegate.flow_run
        WHERE id IN (
            SELECT run_id FROM tidegate.flow_task WHERE state = 'claimed' AND owner = ANY (v_dead)
            UNION SELECT run_id FROM tidegate.flow_task
            WHERE state = 'parked' AND wait_until <= now()
            UNION SELECT id FROM tidegate.flow_run WHERE state = 'canceling')
        ORDER BY id FOR NO KEY UPDATE
    LOOP
        FOR v_task IN
            SELECT * FROM tidegate.flow_task
            WHERE state = 'claimed' AND owner = ANY (v_dead) AND run_id = v_run.id
            FOR UPDATE
        LOOP
            freed := freed + 1;
            IF v_task.losses >= p_most_losses THEN
                PERFORM tidegate.flow_fail_task(v_run, v_task, format(
                    'workers have died with it %s times, the last one was %s',
                    v_task.losses + 1, v_task.owner));
                EXIT WHEN (SELECT state FROM tidegate.flow_run WHERE id = v_run.id) = 'failed';
            ELSE
                PERFORM tidegate.flow_let_go(v_run, v_task);
                -- What kills its workers comes alone in the end, and not with the same innocents.
                UPDATE tidegate.flow_task
                SET losses = losses + 1, available_at = now() + CASE WHEN losses > 0
                    THEN random() * least(60.0, 0.25 * 2 ^ losses) ELSE 0 END * interval '1 second'
                WHERE step_id = v_task.step_id AND position = v_task.position;
            END IF;
        END LOOP;
        UPDATE tidegate.flow_task SET state = tidegate.flow_free(v_run)
        WHERE run_id = v_run.id AND state = 'parked' AND wait_until <= now();
        IF FOUND THEN
            woken := woken + 1;
        END IF;
        IF v_run.state = 'canceling' AND tidegate.flow_settle_canceling(v_run.id) THEN
            ended := ended + 1;
        END IF;
        PERFORM tidegate.flow_notify(v_run);
    END LOOP;
    RETURN NEXT;
END
$$;

COMMENT ON FUNCTION tidegate.flow_sweep IS
    'Free what dead workers have claimed, wake waits whose bound has passed, and end runs that '
    'are being cancelled and that nobody works for any more.';

CREATE FUNCTION tidegate.flow_remove_closed(
    p_seconds double precision, p_most integer DEFAULT 10, p_tasks bigint DEFAULT 10000
) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    v_run bigint;
    v_removed bigint := 0;
    v_number bigint;
    v_left bigint := p_tasks;
BEGIN
    FOR v_run IN
        SELECT id FROM tidegate.flow_run
        WHERE closed_at < now() - make_interval(secs => p_seconds)
        ORDER BY closed_at LIMIT p_most
        FOR UPDATE SKIP LOCKED
    LOOP
        v_removed := v_removed + 1;
        DELETE FROM tidegate.flow_task WHERE ctid = ANY (ARRAY(
            SELECT task.ctid
            FROM tidegate.flow_task AS task JOIN tidegate.flow_step AS step
                ON step.id = task.step_id
            WHERE step.run_id = v_run LIMIT v_left));
        GET DIAGNOSTICS v_number = ROW_COUNT;
        v_left := v_left - v_number;
        IF v_left <= 0 THEN  -- a run that is not whole any more is known by its date
            UPDATE tidegate.flow_run SET closed_at = 'epoch' WHERE id = v_run;
            EXIT;
        END IF;
        DELETE FROM tidegate.flow_run WHERE id = v_run;
    END LOOP;
    RETURN v_removed;
END
$$;

COMMENT ON FUNCTION tidegate.flow_remove_closed IS
    'Forget runs that were closed so many seconds ago: some of them, with at most so many tasks. '
    'Answers how many it was at; 0 when nothing is left to forget.';

-- ── End of durable flows ──

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

-- ── End of aliases ──

-- ── Seeing flows: waits, events ──

-- A task comes to a wait whose gate it can tell; without one, only the keys are known.
CREATE FUNCTION tidegate.flow_tell_gate(
    p_owner text, p_run bigint, p_step bigint, p_position bigint, p_epoch bigint, p_gate jsonb
) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_run tidegate.flow_run := tidegate.flow_lock(p_run);
BEGIN
    PERFORM tidegate.flow_held(p_owner, p_step, p_position, p_epoch);
    UPDATE tidegate.flow_task SET wait_gate = p_gate
    WHERE step_id = p_step AND position = p_position AND wait_gate IS DISTINCT FROM p_gate;
END
$$;

COMMENT ON FUNCTION tidegate.flow_tell_gate IS
    'Say what a claimed task is about to wait for, for whoever looks: '
    '[{"key", "target_key", "target"}, …].';

CREATE FUNCTION tidegate.flow_pass_wait(
    p_owner text, p_run bigint, p_step bigint, p_position bigint, p_epoch bigint
) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_run tidegate.flow_run := tidegate.flow_lock(p_run);
    v_task tidegate.flow_task := tidegate.flow_held(p_owner, p_step, p_position, p_epoch);
BEGIN
    UPDATE tidegate.flow_task
    SET waits_for = NULL, wait_number = NULL, wait_gate = NULL, waiting_since = NULL,
        wait_until = NULL
    WHERE step_id = p_step AND position = p_position AND state = 'claimed';
END
$$;

COMMENT ON FUNCTION tidegate.flow_pass_wait IS
    'A claimed task goes on behind the wait that it was parked at.';

-- A task waits from when it was first parked until it has gone on, also while it looks again.
CREATE INDEX flow_task_waiting ON tidegate.flow_task (run_id, position)
    WHERE wait_number IS NOT NULL AND state IN ('ready', 'held', 'claimed', 'parked');

CREATE INDEX flow_run_open ON tidegate.flow_run (id) WHERE closed_at IS NULL;

CREATE VIEW tidegate.flow_waits AS
SELECT
    run.id AS run_id, run.flow, step.name AS step, task.position, wanted.key, state.value,
    gate.target_key, coalesce(goal.value, gate.target) AS target,
    CASE
        WHEN jsonb_typeof(state.value) = 'number'
            AND jsonb_typeof(coalesce(goal.value, gate.target)) = 'number'
        THEN greatest(coalesce(goal.value, gate.target)::numeric - state.value::numeric, 0)
    END AS behind,
    gate.target_key IS NULL AND gate.target IS NULL AND jsonb_path_exists(
        task.wait_gate, '$[*] ? (@.target_key == $key)', jsonb_build_object('key', wanted.key))
        IS TRUE AS is_target,
    state.writer, state.written_at,
    extract(epoch FROM clock_timestamp() - state.written_at)::double precision
        AS seconds_since_written,
    task.waiting_since,
    extract(epoch FROM clock_timestamp() - task.waiting_since)::double precision
        AS seconds_waited,
    task.wait_until
FROM tidegate.flow_task AS task
JOIN tidegate.flow_step AS step ON step.id = task.step_id
JOIN tidegate.flow_run AS run ON run.id = task.run_id
LEFT JOIN LATERAL unnest(task.waits_for) AS wanted (key) ON true
LEFT JOIN tidegate.flow_state AS state ON state.run_id = run.id AND state.key = wanted.key
LEFT JOIN LATERAL (
    SELECT condition ->> 'target_key' AS target_key, condition -> 'target' AS target
    FROM jsonb_array_elements(task.wait_gate) AS of_gate (condition)
    WHERE condition ->> 'key' = wanted.key
    LIMIT 1
) AS gate ON true
LEFT JOIN tidegate.flow_state AS goal ON goal.run_id = run.id AND goal.key = gate.target_key
WHERE task.wait_number IS NOT NULL AND task.state IN ('ready', 'held', 'claimed', 'parked');

COMMENT ON VIEW tidegate.flow_waits IS
    'What waits for the state of a run: a row for each task and key. The value is what the key has '
    'now, the target what it has to reach where a declared gate says so, behind how much of it is '
    'missing, where both are numbers; is_target says that it is only what another key has to reach. '
    'Then who wrote it last and when, since when the task has waited, and until when it may. '
    'Position -1 is a step itself, others are items of it.';

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

CREATE FUNCTION tidegate.flow_note(p_run bigint, p_kind text, p_name text, p_detail jsonb)
RETURNS void
LANGUAGE sql AS $$
    INSERT INTO tidegate.flow_event (run_id, kind, name, detail)
    VALUES (p_run, p_kind, p_name, jsonb_strip_nulls(p_detail))
$$;

CREATE FUNCTION tidegate.flow_note_run() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM tidegate.flow_note(NEW.id, 'run', NEW.flow, jsonb_build_object(
        'from', CASE WHEN TG_OP = 'UPDATE' THEN OLD.state END, 'to', NEW.state,
        'cause', NEW.cause));
    RETURN NULL;
END
$$;

CREATE TRIGGER flow_run_begun AFTER INSERT ON tidegate.flow_run
    FOR EACH ROW EXECUTE FUNCTION tidegate.flow_note_run();

CREATE TRIGGER flow_run_noted AFTER UPDATE OF state ON tidegate.flow_run
    FOR EACH ROW WHEN (OLD.state <> NEW.state) EXECUTE FUNCTION tidegate.flow_note_run();

CREATE FUNCTION tidegate.flow_note_step() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM tidegate.flow_note(NEW.run_id, 'step', NEW.name, jsonb_build_object(
        'from', OLD.state, 'to', NEW.state, 'cause', NEW.cause,
        'items', CASE WHEN NEW.generating IS NOT NULL AND NEW.closed_at IS NOT NULL
            THEN jsonb_build_object('spawned', NEW.spawned, 'succeeded', NEW.succeeded,
                'failed', NEW.failed, 'canceled', NEW.canceled) END));
    RETURN NULL;
END
$$;

CREATE TRIGGER flow_step_noted AFTER UPDATE OF state ON tidegate.flow_step
    FOR EACH ROW WHEN (OLD.state <> NEW.state) EXECUTE FUNCTION tidegate.flow_note_step();

CREATE FUNCTION tidegate.flow_note_policy() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM tidegate.flow_note(NEW.run_id, 'policy', NEW.name, jsonb_build_object(
        'count', NEW.tolerated_count, 'share', NEW.tolerated_share));
    RETURN NULL;
END
$$;

CREATE TRIGGER flow_policy_noted AFTER UPDATE OF tolerated_count, tolerated_share
    ON tidegate.flow_step
    FOR EACH ROW EXECUTE FUNCTION tidegate.flow_note_policy();

CREATE FUNCTION tidegate.flow_note_signal() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM tidegate.flow_note(
        NEW.run_id, 'signal', NEW.step, jsonb_build_object('by', NEW.given_by));
    RETURN NULL;
END
$$;

CREATE TRIGGER flow_signal_noted AFTER INSERT ON tidegate.flow_signal
    FOR EACH ROW EXECUTE FUNCTION tidegate.flow_note_signal();

CREATE FUNCTION tidegate.flow_note_state() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM tidegate.flow_note(NEW.run_id, 'state', NEW.key, jsonb_build_object(
        'value', CASE WHEN pg_column_size(NEW.value) <= 1000 THEN NEW.value END,
        'by', NEW.writer));
    RETURN NULL;
END
$$;

-- Of an offset that is written all the time, the first value in each second is enough.
CREATE TRIGGER flow_state_noted AFTER UPDATE OF value ON tidegate.flow_state
    FOR EACH ROW WHEN (OLD.version <> NEW.version AND (
        NOT NEW.is_monotonic OR OLD.value IS NULL
        OR date_trunc('second', OLD.written_at) <> date_trunc('second', NEW.written_at)))
    EXECUTE FUNCTION tidegate.flow_note_state();

CREATE FUNCTION tidegate.flow_note_wait() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    v_step text := (SELECT name FROM tidegate.flow_step WHERE id = NEW.step_id);
BEGIN
    IF OLD.wait_number IS NOT NULL AND OLD.state NOT IN ('succeeded', 'failed', 'canceled') THEN
        PERFORM tidegate.flow_note(NEW.run_id, 'wait', v_step, jsonb_build_object(
            'to', CASE
                WHEN NEW.state IN ('claimed', 'succeeded') THEN 'passed'
                WHEN NEW.state IN ('failed', 'canceled') THEN NEW.state
                ELSE 'left'
            END,
            'seconds', extract(epoch FROM clock_timestamp() - OLD.waiting_since),
            'state', (
                SELECT jsonb_object_agg(key, value) FROM tidegate.flow_state
                WHERE run_id = NEW.run_id AND key = ANY (OLD.waits_for)
                AND value IS NOT NULL AND pg_column_size(value) <= 1000)));
    END IF;
    IF NEW.wait_number IS NOT NULL AND NEW.wait_number IS DISTINCT FROM OLD.wait_number THEN
        PERFORM tidegate.flow_note(NEW.run_id, 'wait', v_step, jsonb_build_object(
            'to', 'begun', 'keys', NEW.waits_for, 'until', NEW.wait_until));
    END IF;
    RETURN NULL;
END
$$;

-- Only of a step's own task: items never pay for it.
CREATE TRIGGER flow_wait_noted AFTER UPDATE OF state, wait_number ON tidegate.flow_task
    FOR EACH ROW WHEN (NEW.position < 0 AND (
        OLD.wait_number IS DISTINCT FROM NEW.wait_number
        OR (OLD.wait_number IS NOT NULL AND OLD.state <> NEW.state
            AND NEW.state IN ('succeeded', 'failed', 'canceled'))))
    EXECUTE FUNCTION tidegate.flow_note_wait();

-- ── End of seeing flows ──

-- ── Runs of pipelines that tasks of flows have begun ──
--
-- Whoever holds a run of a flow may lock the run of a pipeline, never the other way round: to
-- release a run of a pipeline nobody waits for a flow. It is told by NOTIFY, and looked for.

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

CREATE FUNCTION tidegate.flow_park_for_pipeline(
    p_owner text, p_run bigint, p_step bigint, p_position bigint, p_epoch bigint,
    p_pipeline text, p_name text, p_pipeline_run bigint, p_number integer,
    p_timeout double precision
) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    v_run tidegate.flow_run := tidegate.flow_lock(p_run);
    v_is_open boolean;
    v_state text;
BEGIN
    -- Whoever closes it waits until the task is parked, and is seen by whoever looks then.
    PERFORM FROM tidegate.run WHERE id = p_pipeline_run AND state = 'open' FOR SHARE;
    v_is_open := FOUND;
    v_state := tidegate.flow_park(
        p_owner, p_run, p_step, p_position, p_epoch, ARRAY[]::text[], 0, p_number, 0, p_timeout);
    IF v_state = 'parked' THEN
        UPDATE tidegate.flow_pipeline
        SET pipeline_run_id = p_pipeline_run, is_settled = NOT v_is_open
        WHERE step_id = p_step AND position = p_position
        AND pipeline = p_pipeline AND name = p_name;
    END IF;
    IF v_state = 'parked' AND NOT v_is_open THEN
        v_state := tidegate.flow_free(v_run);
        UPDATE tidegate.flow_task SET state = v_state
        WHERE step_id = p_step AND position = p_position;
        PERFORM tidegate.flow_notify(v_run);
    END IF;
    RETURN v_state;
END
$$;

COMMENT ON FUNCTION tidegate.flow_park_for_pipeline IS
    'Put a claimed task aside until this run of a pipeline is closed; at once ready when it is.';

CREATE FUNCTION tidegate.flow_sweep_pipelines()
RETURNS TABLE (pipeline_run_id bigint, reason text)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    v_run tidegate.flow_run;
    v_link record;
BEGIN
    FOR v_run IN
        SELECT * FROM tidegate.flow_run
        WHERE id IN (SELECT flow_run_id FROM tidegate.flow_pipeline_news)
        ORDER BY id FOR NO KEY UPDATE
    LOOP
        -- Asked again under the lock: what has moved meanwhile is somebody else's.
        FOR v_link IN
            SELECT * FROM tidegate.flow_pipeline_news WHERE flow_run_id = v_run.id
        LOOP
            IF v_link.task_state = 'parked' THEN
                UPDATE tidegate.flow_task
                SET state = tidegate.flow_free(v_run), available_at = now()
                WHERE step_id = v_link.step_id AND position = v_link.position;
            ELSIF v_link.is_open THEN
                pipeline_run_id := v_link.pipeline_run_id;
                reason := format('step %s of run %s of flow %s, which is %s, waits for it no more%s',
                    v_link.step, v_run.id, v_run.flow, v_run.state, ': ' || v_run.cause);
                RETURN NEXT;
            END IF;
            UPDATE tidegate.flow_pipeline SET is_settled = true
            WHERE step_id = v_link.step_id AND position = v_link.position
            AND pipeline = v_link.pipeline AND name = v_link.name;
        END LOOP;
        PERFORM tidegate.flow_notify(v_run);
    END LOOP;
END
$$;

COMMENT ON FUNCTION tidegate.flow_sweep_pipelines IS
    'Wake tasks whose runs of pipelines are closed. Answers the open ones that no task waits for '
    'any more, which the caller has to cancel in the same transaction, and why.';

-- What was begun by tasks that wait for a run that is closed, or that are themselves over.
CREATE VIEW tidegate.flow_pipeline_news AS
SELECT
    link.step_id, link.position, link.pipeline, link.name, link.flow_run_id, link.pipeline_run_id,
    task.state AS task_state, run.id IS NOT NULL AS is_open, step.name AS step
FROM tidegate.flow_pipeline AS link
JOIN tidegate.flow_task AS task ON task.step_id = link.step_id AND task.position = link.position
JOIN tidegate.flow_step AS step ON step.id = link.step_id
LEFT JOIN tidegate.run ON run.id = link.pipeline_run_id AND run.state = 'open'
WHERE NOT link.is_settled AND (
    task.state IN ('succeeded', 'failed', 'canceled')
    OR (task.state = 'parked' AND run.id IS NULL)
);

-- Who tries a run of a flow again wants runs of pipelines that came to nothing begun again as well,
-- unless somebody has restored them.
CREATE FUNCTION tidegate.flow_forget_failed_pipelines() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM tidegate.flow_pipeline AS link
    WHERE flow_run_id = NEW.id AND EXISTS (
        SELECT FROM tidegate.run
        WHERE id = link.pipeline_run_id AND state IN ('failed', 'cancelled')
    ) AND NOT EXISTS (
        SELECT FROM tidegate.run
        WHERE lineage @> ARRAY[link.pipeline_run_id] AND state IN ('open', 'ended'));
    RETURN NULL;
END
$$;

CREATE TRIGGER flow_run_retried AFTER UPDATE OF state ON tidegate.flow_run
    FOR EACH ROW WHEN (OLD.state = 'failed' AND NEW.state = 'running')
    EXECUTE FUNCTION tidegate.flow_forget_failed_pipelines();

-- ── End of runs of pipelines ──

-- ── What flows look like from psql ──

COMMENT ON FUNCTION tidegate.flow_begin IS
    'Begin a run of a flow; under a key that was used before, answer the run that has it. '
    'Steps: [{"number", "name", "kind": plain|map|generator|reduce, "depends_on": [names], '
    '"optional": [those that may be skipped], "needs_signal", "retries", "item_retries", '
    '"tolerated_count", "tolerated_share"}, …], each behind those that it depends on. '
    'Keys of the state: [{"name", "monotonic", "external", "writers": [steps]}, …].';

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

COMMENT ON VIEW tidegate.flow_progress IS
    'How far the steps of all runs are: items spawned, succeeded, failed, canceled, in flight.';

COMMENT ON TABLE tidegate.alias_switch IS
    'Every switch of an alias to an index, who made it, and how stale the index was then.';

-- ── End of comments ──
