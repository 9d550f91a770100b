-- The history of runs of flows, written by triggers in the same transaction.

CREATE OR REPLACE FUNCTION tidegate.flow_note(p_run bigint, p_kind text, p_name text, p_detail jsonb)
RETURNS void
LANGUAGE sql AS $$
    INSERT INTO tidegate.flow_event (run_id, kind, name, detail)
    VALUES (p_run, p_kind, p_name, jsonb_strip_nulls(p_detail))
$$;

CREATE OR REPLACE FUNCTION tidegate.flow_note_run() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM tidegate.flow_note(NEW.id, 'run', NEW.flow, jsonb_build_object(
        'from', CASE WHEN TG_OP = 'UPDATE' THEN OLD.state END, 'to', NEW.state,
        'cause', NEW.cause));
    RETURN NULL;
END
$$;

CREATE OR REPLACE TRIGGER flow_run_begun AFTER INSERT ON tidegate.flow_run
    FOR EACH ROW EXECUTE FUNCTION tidegate.flow_note_run();

CREATE OR REPLACE TRIGGER flow_run_noted AFTER UPDATE OF state ON tidegate.flow_run
    FOR EACH ROW WHEN (OLD.state <> NEW.state) EXECUTE FUNCTION tidegate.flow_note_run();

CREATE OR REPLACE FUNCTION tidegate.flow_note_step() RETURNS trigger
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

CREATE OR REPLACE TRIGGER flow_step_noted AFTER UPDATE OF state ON tidegate.flow_step
    FOR EACH ROW WHEN (OLD.state <> NEW.state) EXECUTE FUNCTION tidegate.flow_note_step();

CREATE OR REPLACE FUNCTION tidegate.flow_note_policy() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM tidegate.flow_note(NEW.run_id, 'policy', NEW.name, jsonb_build_object(
        'count', NEW.tolerated_count, 'share', NEW.tolerated_share));
    RETURN NULL;
END
$$;

CREATE OR REPLACE TRIGGER flow_policy_noted AFTER UPDATE OF tolerated_count, tolerated_share
    ON tidegate.flow_step
    FOR EACH ROW EXECUTE FUNCTION tidegate.flow_note_policy();

CREATE OR REPLACE FUNCTION tidegate.flow_note_signal() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM tidegate.flow_note(
        NEW.run_id, 'signal', NEW.step, jsonb_build_object('by', NEW.given_by));
    RETURN NULL;
END
$$;

CREATE OR REPLACE TRIGGER flow_signal_noted AFTER INSERT ON tidegate.flow_signal
    FOR EACH ROW EXECUTE FUNCTION tidegate.flow_note_signal();

CREATE OR REPLACE FUNCTION tidegate.flow_note_state() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM tidegate.flow_note(NEW.run_id, 'state', NEW.key, jsonb_build_object(
        'value', CASE WHEN pg_column_size(NEW.value) <= 1000 THEN NEW.value END,
        'by', NEW.writer));
    RETURN NULL;
END
$$;

-- Of a key that is written continuously, the first value in each second is recorded.
CREATE OR REPLACE TRIGGER flow_state_noted AFTER UPDATE OF value ON tidegate.flow_state
    FOR EACH ROW WHEN (OLD.version <> NEW.version AND (
        NOT NEW.is_monotonic OR OLD.value IS NULL
        OR date_trunc('second', OLD.written_at) <> date_trunc('second', NEW.written_at)))
    EXECUTE FUNCTION tidegate.flow_note_state();

CREATE OR REPLACE FUNCTION tidegate.flow_note_wait() RETURNS trigger
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

-- Only for a step's own task: items do not pay for it.
CREATE OR REPLACE TRIGGER flow_wait_noted AFTER UPDATE OF state, wait_number ON tidegate.flow_task
    FOR EACH ROW WHEN (NEW.position < 0 AND (
        OLD.wait_number IS DISTINCT FROM NEW.wait_number
        OR (OLD.wait_number IS NOT NULL AND OLD.state <> NEW.state
            AND NEW.state IN ('succeeded', 'failed', 'canceled'))))
    EXECUTE FUNCTION tidegate.flow_note_wait();
