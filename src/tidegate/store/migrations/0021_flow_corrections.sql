-- ── Putting right what a run has failed with, before it is retried ──

CREATE OR REPLACE FUNCTION tidegate.flow_signal(
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

CREATE OR REPLACE FUNCTION tidegate.flow_tolerate(
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

CREATE OR REPLACE FUNCTION tidegate.flow_set_state(
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

-- ── End of putting right ──
