-- Internal functions of flows, not to be called directly.
--
-- Every change of a run locks its row first (`flow_lock`), so that changes of one run are serialised
-- and cannot deadlock. Only `flow_claim` locks tasks without their run, and skips locked ones. Batches
-- make the lock cheap; see docs/adr/0014.
--
-- Functions that change tasks disable sequential scans: a plan cached when there were few tasks, or
-- made from outdated statistics, would read all tasks for each batch.

CREATE OR REPLACE FUNCTION tidegate.flow_refuse(p_code text, p_message text, p_detail jsonb) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = p_code, MESSAGE = p_message, DETAIL = p_detail::text;
END
$$;

-- Lock a run; null when it was deleted, together with its tasks.
CREATE OR REPLACE FUNCTION tidegate.flow_lock_if_there(p_run bigint) RETURNS tidegate.flow_run
LANGUAGE plpgsql AS $$
DECLARE
    v_run tidegate.flow_run;
BEGIN
    SELECT * INTO v_run FROM tidegate.flow_run WHERE id = p_run FOR NO KEY UPDATE;
    RETURN v_run;
END
$$;

-- Lock a run; refused when `p_wanted` names an operation and the run is not open (or failed).
CREATE OR REPLACE FUNCTION tidegate.flow_lock(
    p_run bigint, p_wanted text DEFAULT NULL, p_also_failed boolean DEFAULT false
) RETURNS tidegate.flow_run
LANGUAGE plpgsql AS $$
DECLARE
    v_run tidegate.flow_run := tidegate.flow_lock_if_there(p_run);
BEGIN
    IF v_run.id IS NULL THEN
        PERFORM tidegate.flow_refuse(
            'TG002', format('there is no run %s', p_run), jsonb_build_object('run', p_run));
    END IF;
    IF p_wanted IS NOT NULL AND v_run.state NOT IN ('running', 'paused')
    AND NOT (p_also_failed AND v_run.state = 'failed') THEN
        PERFORM tidegate.flow_refuse(
            'TG003', format('run %s is %s: %s is not possible', p_run, v_run.state, p_wanted),
            jsonb_build_object('run', p_run, 'state', v_run.state, 'wanted', p_wanted));
    END IF;
    RETURN v_run;
END
$$;

CREATE OR REPLACE FUNCTION tidegate.flow_notify(p_run tidegate.flow_run) RETURNS void
LANGUAGE sql AS $$
    SELECT pg_notify('tidegate', 'flow/' || (p_run).flow)
$$;

-- The state of a runnable task: held while its run is paused.
CREATE OR REPLACE FUNCTION tidegate.flow_free(p_run tidegate.flow_run) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN (p_run).state = 'paused' THEN 'held' ELSE 'ready' END
$$;

-- The task of a claim, in state claimed or as changed by the same claim before.
CREATE OR REPLACE FUNCTION tidegate.flow_held(
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
    v_task.step_id := p_step;  -- the task may be deleted
    v_task.position := p_position;
    PERFORM tidegate.flow_refuse_claim(v_task, p_owner, p_epoch);
END
$$;

CREATE OR REPLACE FUNCTION tidegate.flow_refuse_claim(
    p_task tidegate.flow_task, p_owner text, p_epoch bigint
) RETURNS void
LANGUAGE sql AS $$
    SELECT tidegate.flow_refuse(
        'TG001',
        format('%s does not hold task %s of step %s any more',
            p_owner, (p_task).position, (p_task).step_id),
        jsonb_build_object(
            'run', coalesce((p_task).run_id, 0),
            'step', coalesce(
                (SELECT name FROM tidegate.flow_step WHERE id = (p_task).step_id), ''),
            'position', (p_task).position, 'owner', p_owner, 'epoch', p_epoch,
            'holder', CASE
                WHEN (p_task).state = 'claimed' THEN 'held by ' || (p_task).owner
                ELSE coalesce((p_task).state, 'gone')
            END,
            'current', coalesce((p_task).epoch, 0)))
$$;

-- The task of a claim that is still in state claimed.
CREATE OR REPLACE FUNCTION tidegate.flow_at_work(
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

-- Cancel the remaining tasks of a run or of one step; claims on them are lost.
CREATE OR REPLACE FUNCTION tidegate.flow_close_rest(
    p_run bigint, p_states text[], p_step bigint DEFAULT NULL
) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    WITH closed AS (
        UPDATE tidegate.flow_task
        SET state = 'canceled', closed_at = clock_timestamp()
        WHERE step_id IN (
            SELECT id FROM tidegate.flow_step
            WHERE run_id = p_run AND (p_step IS NULL OR id = p_step))
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

CREATE OR REPLACE FUNCTION tidegate.flow_fail_step(p_step bigint, p_cause text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_step tidegate.flow_step;
    v_run tidegate.flow_run;
BEGIN
    UPDATE tidegate.flow_step
    SET state = 'failed', cause = p_cause, closed_at = clock_timestamp()
    WHERE id = p_step RETURNING * INTO v_step;
    PERFORM tidegate.flow_close_rest(
        v_step.run_id, ARRAY['ready', 'held', 'suspended', 'claimed']);
    UPDATE tidegate.flow_step SET state = 'canceled', closed_at = clock_timestamp()
    WHERE run_id = v_step.run_id AND state IN ('waiting', 'running');
    UPDATE tidegate.flow_run
    SET state = 'failed', closed_at = clock_timestamp(),
        cause = coalesce(cause, format('step %s: %s', v_step.name, v_step.cause))
    WHERE id = v_step.run_id RETURNING * INTO v_run;
    PERFORM tidegate.flow_notify(v_run);
END
$$;

-- Complete or fail a step with items when its items allow it; returns whether that happened.
CREATE OR REPLACE FUNCTION tidegate.flow_settle_step(p_step bigint) RETURNS boolean
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
        PERFORM tidegate.flow_fail_step(p_step, coalesce(v_step.cause, v_step.last_error)
            || CASE WHEN v_step.tolerated_count IS NULL AND v_step.tolerated_share IS NULL THEN ''
                ELSE format(' (the first of %s failures in %s items, which is more than tolerated)',
                    v_step.failed, v_step.spawned) END);
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

-- Start the steps whose dependencies are met, and complete a run without open steps.
CREATE OR REPLACE FUNCTION tidegate.flow_advance(p_run bigint) RETURNS void
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

-- Cancel a run in state canceling when no worker has a claim on it.
CREATE OR REPLACE FUNCTION tidegate.flow_settle_canceling(p_run bigint) RETURNS boolean
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

-- Settle a step and its run after tasks of the step have changed.
CREATE OR REPLACE FUNCTION tidegate.flow_follow(p_run tidegate.flow_run, p_step bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF (p_run).state = 'canceling' THEN
        PERFORM tidegate.flow_settle_canceling((p_run).id);
    ELSIF tidegate.flow_settle_step(p_step) THEN
        PERFORM tidegate.flow_advance((p_run).id);
    END IF;
END
$$;

-- Create the items of a map step from the result of its first dependency, or from its items' results.
CREATE OR REPLACE FUNCTION tidegate.flow_expand(p_run tidegate.flow_run, p_step bigint) RETURNS void
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

-- Release a task for another worker, or cancel it with its run.
CREATE OR REPLACE FUNCTION tidegate.flow_let_go(p_run tidegate.flow_run, p_task tidegate.flow_task)
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

-- Fail a task permanently.
CREATE OR REPLACE FUNCTION tidegate.flow_fail_task(
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
        -- A failure of its own task is the cause, not an item that was tolerated before.
        cause = CASE WHEN (p_task).position < 0 THEN v_cause
            ELSE coalesce(cause, format('item %s: %s', (p_task).position, v_cause)) END,
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

-- Complete the own task of a step: store its result, or create its items.
CREATE OR REPLACE FUNCTION tidegate.flow_complete_own(
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

CREATE OR REPLACE FUNCTION tidegate.flow_refuse_spawn(p_step tidegate.flow_step, p_reason text) RETURNS void
LANGUAGE sql AS $$
    SELECT tidegate.flow_refuse(
        'TG004', format('items of step %s are refused: %s', (p_step).name, p_reason),
        jsonb_build_object(
            'run', (p_step).run_id, 'step', (p_step).name, 'reason', p_reason))
$$;
