-- Flows bear calls that are late or repeated, steps that live long, and what kills its workers.

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

CREATE OR REPLACE FUNCTION tidegate.flow_begin(
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

CREATE OR REPLACE FUNCTION tidegate.flow_retry(p_run bigint) RETURNS text
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

CREATE OR REPLACE FUNCTION tidegate.flow_set_state(
    p_run bigint, p_key text, p_value jsonb, p_writer text DEFAULT current_user,
    p_once boolean DEFAULT false, p_owner text DEFAULT NULL, p_step bigint DEFAULT NULL,
    p_position bigint DEFAULT NULL, p_epoch bigint DEFAULT NULL
) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    v_run tidegate.flow_run := tidegate.flow_lock(p_run, 'writing its state');
    v_state tidegate.flow_state;
    v_task tidegate.flow_task;
    v_may_write boolean;
BEGIN
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
    IF v_state.is_monotonic AND (CASE
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

CREATE OR REPLACE FUNCTION tidegate.flow_complete(p_owner text, p_results jsonb)
RETURNS TABLE (run_id bigint, step text, "position" bigint, epoch bigint, holder text, current bigint)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    v_done record;
    v_run tidegate.flow_run;
    v_step bigint;
    v_steps bigint[] := '{}';
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
            bool_or(done.position < 0) AS is_own
        FROM done GROUP BY done.run_id, done.step_id ORDER BY done.run_id, done.step_id
    LOOP
        SELECT * INTO v_run FROM tidegate.flow_run WHERE id = v_done.run_id;
        UPDATE tidegate.flow_step SET succeeded = succeeded + v_done.items
        WHERE id = v_done.step_id;
        IF v_done.is_own AND v_run.state <> 'canceling' THEN
            PERFORM tidegate.flow_complete_own(v_run, v_done.step_id, v_done.own);
        END IF;
        v_steps := v_steps || v_done.step_id;
    END LOOP;
    -- Only then: a step that fails its run ends the others, which may be done by this call too.
    FOREACH v_step IN ARRAY v_steps LOOP
        SELECT run.* INTO v_run
        FROM tidegate.flow_run AS run JOIN tidegate.flow_step AS step ON step.run_id = run.id
        WHERE step.id = v_step;
        PERFORM tidegate.flow_follow(v_run, v_step);
    END LOOP;
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

CREATE OR REPLACE FUNCTION tidegate.flow_park(
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

CREATE OR REPLACE FUNCTION tidegate.flow_sweep(p_most_losses integer DEFAULT 10)
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

DROP FUNCTION tidegate.flow_remove_closed(double precision, integer);

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

COMMENT ON FUNCTION tidegate.flow_retry IS
    'Try everything of a failed run again that did not succeed; harmless when it runs already.';
