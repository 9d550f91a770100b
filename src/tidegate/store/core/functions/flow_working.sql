-- Working on flows: for owners of a 'flow worker' lease.

CREATE OR REPLACE FUNCTION tidegate.flow_claim(
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
    'Claim ready tasks of these queues (flow/step, flow/step[] for items), up to a number of each '
    'and of all.';

CREATE OR REPLACE FUNCTION tidegate.flow_complete(p_owner text, p_results jsonb)
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
    -- Only then, because a step that fails its run cancels others, which this call may complete too.
    FOREACH v_step IN ARRAY v_steps LOOP
        SELECT run.* INTO v_run
        FROM tidegate.flow_run AS run JOIN tidegate.flow_step AS step ON step.run_id = run.id
        WHERE step.id = v_step;
        PERFORM tidegate.flow_follow(v_run, v_step);
    END LOOP;
    -- Usually all claims were valid, and there are no others to look for.
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
    'Complete claimed tasks: [{"run", "step", "position", "epoch", "result"}, …]. Returns those '
    'that are refused because the claim was lost; nothing is written for them.';

CREATE OR REPLACE FUNCTION tidegate.flow_fail(
    p_owner text, p_run bigint, p_step bigint, p_position bigint, p_epoch bigint, p_error text,
    p_pause double precision DEFAULT 0, p_is_final boolean DEFAULT false
) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    v_run tidegate.flow_run := tidegate.flow_lock_if_there(p_run);
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
    SET state = tidegate.flow_free(v_run),
        available_at = now() + make_interval(secs => least(p_pause, 100 * 31557600.0)),
        cause = coalesce(cause, p_error), last_error = p_error, wait_number = NULL
    WHERE step_id = p_step AND position = p_position;
    UPDATE tidegate.flow_step SET last_error = p_error WHERE id = p_step;
    RETURN 'ready';
END
$$;

COMMENT ON FUNCTION tidegate.flow_fail IS
    'Fail an attempt at a claimed task: it is ready again after a pause, in seconds and at most a '
    'hundred years, or failed when it has no retries left or the failure is final. '
    'Returns the new state.';

CREATE OR REPLACE FUNCTION tidegate.flow_spawn(
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
    'Create tasks for items of a claimed generator: [{"position", "item"}, …] in the order of their '
    'positions, from 0 and without gaps, or [{"key", "item"}, …]. '
    'Existing items are recognised. Saves a cursor with them, and returns how many items there are '
    'and how many of them are not terminal.';

CREATE OR REPLACE FUNCTION tidegate.flow_finish_generator(
    p_owner text, p_run bigint, p_step bigint, p_epoch bigint
) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    v_run tidegate.flow_run := tidegate.flow_lock_if_there(p_run);
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
    'A claimed generator has yielded its last item; returns their number.';

CREATE OR REPLACE FUNCTION tidegate.flow_skip(p_owner text, p_run bigint, p_step bigint, p_epoch bigint)
RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_run tidegate.flow_run := tidegate.flow_lock_if_there(p_run);
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
        PERFORM tidegate.flow_close_rest(
            p_run, ARRAY['ready', 'held', 'suspended', 'claimed'], p_step);
        UPDATE tidegate.flow_step SET state = 'skipped', closed_at = clock_timestamp()
        WHERE id = p_step;
        PERFORM tidegate.flow_advance(p_run);
    END IF;
END
$$;

COMMENT ON FUNCTION tidegate.flow_skip IS
    'Skip a claimed step whose condition does not hold; its items are canceled.';

CREATE OR REPLACE FUNCTION tidegate.flow_suspend(
    p_owner text, p_run bigint, p_step bigint, p_position bigint, p_epoch bigint,
    p_keys text[], p_seen bigint, p_number integer, p_poll double precision,
    p_timeout double precision
) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    v_run tidegate.flow_run := tidegate.flow_lock_if_there(p_run);
    v_task tidegate.flow_task := tidegate.flow_held(p_owner, p_step, p_position, p_epoch);
    v_since timestamptz;
    v_until timestamptz;
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
    v_until := v_since + make_interval(secs => p_timeout);
    v_state := CASE WHEN EXISTS (
        SELECT FROM tidegate.flow_state
        WHERE run_id = p_run AND key = ANY (p_keys) AND version > p_seen
    ) THEN tidegate.flow_free(v_run) ELSE 'suspended' END;
    UPDATE tidegate.flow_task
    SET state = v_state, attempts = attempts - 1, losses = 0, waits_for = p_keys, wait_number = p_number,
        waiting_since = v_since, wait_until = v_until,
        available_at = least(now() + make_interval(secs => p_poll), v_until)
    WHERE step_id = p_step AND position = p_position;
    RETURN v_state;
END
$$;

COMMENT ON FUNCTION tidegate.flow_suspend IS
    'Suspend a claimed task until one of these keys of the state is written; ready at once when one '
    'was written after the version that was seen.';

CREATE OR REPLACE FUNCTION tidegate.flow_put_back(p_owner text, p_tasks jsonb) RETURNS void
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
    'Return claimed tasks that were not started: [{"run", "step", "position", "epoch"}, …].';
