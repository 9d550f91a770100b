-- Starting and controlling runs of flows, also from psql.

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
        tolerated_count, tolerated_share, signal_type)
    SELECT v_id, number, name, kind, depends_on, optional, needs_signal, retries, item_retries,
        tolerated_count, tolerated_share, signal_type
    FROM jsonb_to_recordset(p_steps) AS step (
        number integer, name text, kind text, depends_on text[], optional text[],
        needs_signal boolean, retries integer, item_retries integer, tolerated_count bigint,
        tolerated_share double precision, signal_type jsonb);
    INSERT INTO tidegate.flow_state (run_id, key, is_monotonic, is_external, writers, type)
    SELECT v_id, name, monotonic, external, writers, type
    FROM jsonb_to_recordset(p_keys) AS key (
        name text, monotonic boolean, external boolean, writers text[], type jsonb);
    PERFORM tidegate.flow_advance(v_id);
    RETURN v_id;
END
$$;

CREATE OR REPLACE FUNCTION tidegate.flow_signal(
    p_run bigint, p_step text, p_payload jsonb, p_by text DEFAULT current_user
) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_run tidegate.flow_run := tidegate.flow_lock(p_run, 'a signal', true);
    v_step tidegate.flow_step;
    v_before jsonb;
    v_reason text;
BEGIN
    SELECT * INTO v_step FROM tidegate.flow_step WHERE run_id = p_run AND name = p_step;
    -- A failed run accepts changes that are made before it is retried.
    IF v_run.state = 'failed' AND v_step.state NOT IN ('completed', 'skipped') THEN
        DELETE FROM tidegate.flow_signal WHERE run_id = p_run AND step = p_step;
    END IF;
    SELECT payload INTO v_before FROM tidegate.flow_signal WHERE run_id = p_run AND step = p_step;
    v_reason := CASE
        WHEN v_before = p_payload THEN NULL
        WHEN v_before IS NOT NULL THEN 'another was given before'
        WHEN v_step.needs_signal IS NOT TRUE THEN 'it takes none'
        WHEN v_step.state = 'skipped' THEN 'it was skipped'
    END;
    IF v_reason IS NOT NULL THEN
        PERFORM tidegate.flow_refuse(
            'TG007', format('step %s does not accept this signal: %s', p_step, v_reason),
            jsonb_build_object('run', p_run, 'step', p_step, 'reason', v_reason));
    END IF;
    PERFORM tidegate.flow_check_type(
        format('the signal of step %s', p_step), v_step.signal_type, p_payload);
    INSERT INTO tidegate.flow_signal (run_id, step, payload, given_by)
    VALUES (p_run, p_step, p_payload, p_by) ON CONFLICT DO NOTHING;
    PERFORM tidegate.flow_advance(p_run);
END
$$;

COMMENT ON FUNCTION tidegate.flow_signal IS
    'Send a step the one-shot input that it waits for. Repeating it is harmless.';

CREATE OR REPLACE FUNCTION tidegate.flow_cancel(p_run bigint, p_reason text DEFAULT 'canceled by a client')
RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    v_run tidegate.flow_run := tidegate.flow_lock(p_run);
BEGIN
    IF v_run.state IN ('running', 'paused') THEN
        UPDATE tidegate.flow_run SET state = 'canceling', cause = coalesce(cause, p_reason)
        WHERE id = p_run;
        PERFORM tidegate.flow_close_rest(p_run, ARRAY['ready', 'held', 'suspended']);
        PERFORM tidegate.flow_settle_canceling(p_run);
        PERFORM tidegate.flow_notify(v_run);
    END IF;
    RETURN (SELECT state FROM tidegate.flow_run WHERE id = p_run);
END
$$;

COMMENT ON FUNCTION tidegate.flow_cancel IS
    'Cancel a run; returns its state, which is canceling while workers have claims on it.';

CREATE OR REPLACE FUNCTION tidegate.flow_pause(p_run bigint) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    v_run tidegate.flow_run := tidegate.flow_lock(p_run, 'a pause');
BEGIN
    IF v_run.state = 'paused' THEN
        RETURN 'paused';
    END IF;
    UPDATE tidegate.flow_run SET state = 'paused', paused_at = clock_timestamp() WHERE id = p_run;
    UPDATE tidegate.flow_task SET state = 'held'
    WHERE step_id IN (SELECT id FROM tidegate.flow_step WHERE run_id = p_run) AND state = 'ready';
    RETURN 'paused';
END
$$;

COMMENT ON FUNCTION tidegate.flow_pause IS
    'Start nothing more of a run until it is resumed; claimed tasks are finished. Timeouts of waits '
    'do not advance meanwhile.';

CREATE OR REPLACE FUNCTION tidegate.flow_resume(p_run bigint) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    v_run tidegate.flow_run := tidegate.flow_lock(p_run, 'resuming');
BEGIN
    IF v_run.state = 'running' THEN
        RETURN 'running';
    END IF;
    UPDATE tidegate.flow_run SET state = 'running', paused_at = NULL WHERE id = p_run;
    PERFORM tidegate.flow_make_up_for_pause(v_run);
    UPDATE tidegate.flow_task SET state = 'ready'
    WHERE step_id IN (SELECT id FROM tidegate.flow_step WHERE run_id = p_run) AND state = 'held';
    PERFORM tidegate.flow_notify(v_run);
    RETURN 'running';
END
$$;

COMMENT ON FUNCTION tidegate.flow_resume IS 'Resume a paused run.';

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
                'run', p_run, 'state', v_run.state, 'wanted', 'a retry'));
    END IF;
    UPDATE tidegate.flow_run
    SET state = 'running', cause = NULL, closed_at = NULL, paused_at = NULL
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
    -- Steps whose last items were completed by the call that failed the run have to be settled here.
    PERFORM tidegate.flow_settle_step(id) FROM tidegate.flow_step
    WHERE run_id = p_run AND state = 'running' AND generating = 'complete';
    PERFORM tidegate.flow_advance(p_run);
    RETURN 'running';
END
$$;

COMMENT ON FUNCTION tidegate.flow_retry IS
    'Retry everything of a failed run that did not succeed. Harmless when it is running.';

CREATE OR REPLACE FUNCTION tidegate.flow_tolerate(
    p_run bigint, p_step text, p_count bigint, p_share double precision DEFAULT NULL
) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_run tidegate.flow_run := tidegate.flow_lock(p_run, 'another failure policy', true);
    v_step bigint;
BEGIN
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
    'Change how many items of a step may fail, while it runs or after it has failed: a count, a share, or (both null) none.';

-- Refuse a value of a monotonic key that is less than the current one, or of another type.
CREATE OR REPLACE FUNCTION tidegate.flow_check_forward(
    p_run tidegate.flow_run, p_state tidegate.flow_state, p_value jsonb
) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_kind text := jsonb_typeof((p_state).value);
BEGIN
    IF v_kind <> 'null' AND v_kind <> jsonb_typeof(p_value) THEN
        IF (p_run).state = 'failed' THEN
            RETURN;  -- what it failed with is put right, and no place to go back from
        END IF;
        PERFORM tidegate.flow_refuse(
            'TG009', format('the state %s is a %s', (p_state).key, v_kind), jsonb_build_object(
                'of', format('the state %s of run %s', (p_state).key, (p_run).id),
                'value', left(p_value::text, 100), 'reason', format(
                    'it is monotonic and has the value %s, which is a %s',
                    left((p_state).value::text, 100), v_kind)));
    END IF;
    IF (CASE WHEN v_kind = 'string'
        THEN (p_value #>> '{}') COLLATE "C" < ((p_state).value #>> '{}') COLLATE "C"
        ELSE p_value < (p_state).value
    END) THEN
        PERFORM tidegate.flow_refuse(
            'TG005', format('the state %s would go back', (p_state).key), jsonb_build_object(
                'run', (p_run).id, 'key', (p_state).key, 'value', p_value::text,
                'current', (p_state).value::text, 'writer', (p_state).writer));
    END IF;
END
$$;

CREATE OR REPLACE FUNCTION tidegate.flow_set_state(
    p_run bigint, p_key text, p_value jsonb, p_writer text DEFAULT current_user,
    p_once boolean DEFAULT false, p_owner text DEFAULT NULL, p_step bigint DEFAULT NULL,
    p_position bigint DEFAULT NULL, p_epoch bigint DEFAULT NULL
) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    v_run tidegate.flow_run := tidegate.flow_lock(p_run, 'writing its state', p_owner IS NULL);
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
    IF p_owner IS NULL THEN
        PERFORM tidegate.flow_check_type(format('the state %s', p_key), v_state.type, p_value);
    END IF;
    IF v_state.value = p_value OR (p_once AND v_state.value IS NOT NULL) THEN
        RETURN v_state.value;
    END IF;
    IF v_state.is_monotonic THEN
        PERFORM tidegate.flow_check_forward(v_run, v_state, p_value);
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
    WHERE run_id = p_run AND state = 'suspended' AND p_key = ANY (waits_for);
    IF FOUND THEN
        PERFORM tidegate.flow_notify(v_run);
    END IF;
    RETURN p_value;
END
$$;

COMMENT ON FUNCTION tidegate.flow_set_state IS
    'Write a key of a run''s state and wake the tasks that wait for it; returns its value. '
    'Without an owner only keys that are declared external.';

COMMENT ON FUNCTION tidegate.flow_begin IS
    'Start a run of a flow; with a key that was used before, return the run that has it. '
    'Steps: [{"number", "name", "kind": plain|map|generator|reduce, "depends_on": [names], '
    '"optional": [those that may be skipped], "needs_signal", "retries", "item_retries", '
    '"tolerated_count", "tolerated_share", "signal_type"}, …], each after those that it depends '
    'on. Keys of the state: [{"name", "monotonic", "external", "writers": [steps], "type"}, …]. '
    'Types are JSON Schemas and optional.';
