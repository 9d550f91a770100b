-- What runs of flows wait for and what has happened to them, for SQL, the command line and metrics.

ALTER TABLE tidegate.flow_task ADD COLUMN wait_gate jsonb;

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
