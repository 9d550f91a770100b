-- Waits of tasks for the state of their run: conditions and progress.

-- Records the condition of a wait; without it, only the keys are known.
CREATE OR REPLACE FUNCTION tidegate.flow_record_gate(
    p_owner text, p_run bigint, p_step bigint, p_position bigint, p_epoch bigint, p_gate jsonb
) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_run tidegate.flow_run := tidegate.flow_lock_if_there(p_run);
BEGIN
    PERFORM tidegate.flow_held(p_owner, p_step, p_position, p_epoch);
    UPDATE tidegate.flow_task SET wait_gate = p_gate
    WHERE step_id = p_step AND position = p_position AND wait_gate IS DISTINCT FROM p_gate;
END
$$;

COMMENT ON FUNCTION tidegate.flow_record_gate IS
    'Record what a claimed task is about to wait for: '
    '[{"key", "target_key", "target"}, …].';

CREATE OR REPLACE FUNCTION tidegate.flow_pass_wait(
    p_owner text, p_run bigint, p_step bigint, p_position bigint, p_epoch bigint
) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_run tidegate.flow_run := tidegate.flow_lock_if_there(p_run);
    v_task tidegate.flow_task := tidegate.flow_held(p_owner, p_step, p_position, p_epoch);
BEGIN
    UPDATE tidegate.flow_task
    SET waits_for = NULL, wait_number = NULL, wait_gate = NULL, waiting_since = NULL,
        wait_until = NULL
    WHERE step_id = p_step AND position = p_position AND state = 'claimed';
END
$$;

COMMENT ON FUNCTION tidegate.flow_pass_wait IS
    'A claimed task continues after the wait that it was suspended at.';

-- The time for which its run was paused does not count as waiting.
CREATE OR REPLACE FUNCTION tidegate.flow_make_up_for_pause(p_run tidegate.flow_run) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
BEGIN
    UPDATE tidegate.flow_task
    SET waiting_since = waiting_since + (v_now - greatest((p_run).paused_at, waiting_since)),
        wait_until = wait_until + (v_now - greatest((p_run).paused_at, waiting_since))
    WHERE run_id = (p_run).id AND wait_number IS NOT NULL
    AND state IN ('ready', 'held', 'claimed', 'suspended');
END
$$;

CREATE OR REPLACE VIEW tidegate.flow_waits AS
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
WHERE task.wait_number IS NOT NULL AND task.state IN ('ready', 'held', 'claimed', 'suspended');

COMMENT ON VIEW tidegate.flow_waits IS
    'Tasks that wait for the state of a run: a row for each task and key. value: the current value '
    'of the key; target: the value to reach, where a gate declares it; behind: the difference, where '
    'both are numbers; is_target: the key is only the target of another key. Then the last writer '
    'and its time, since when the task waits, and until when. '
    'Position -1 is a step itself, others are items of it.';
