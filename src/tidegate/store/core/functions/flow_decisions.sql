-- Decisions about flows. A test compares them with a reference in Python.

CREATE OR REPLACE FUNCTION tidegate.flow_may_move(p_kind text, p_old text, p_new text) RETURNS boolean
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
        ('task', 'claimed', 'ready'), ('task', 'claimed', 'held'), ('task', 'claimed', 'suspended'),
        ('task', 'claimed', 'succeeded'), ('task', 'claimed', 'failed'),
        ('task', 'claimed', 'canceled'),
        ('task', 'suspended', 'ready'), ('task', 'suspended', 'held'), ('task', 'suspended', 'canceled'),
        ('task', 'failed', 'ready'),
        ('task', 'canceled', 'ready')
    )
$$;

CREATE OR REPLACE FUNCTION tidegate.flow_readiness(
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

CREATE OR REPLACE FUNCTION tidegate.flow_verdict(
    p_is_ended boolean, p_spawned bigint, p_succeeded bigint, p_failed bigint, p_canceled bigint,
    p_count bigint, p_share double precision
) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN p_count IS NULL AND p_share IS NULL AND p_failed > 0 THEN 'fail'
        WHEN p_failed > p_count THEN 'fail'
        WHEN NOT p_is_ended OR p_spawned <> p_succeeded + p_failed + p_canceled THEN 'go on'
        -- Compared as decimals: as binary fractions 29 is more than 0.29 of 100.
        WHEN p_failed > p_share::text::numeric * p_spawned THEN 'fail'
        ELSE 'complete'
    END
$$;

CREATE OR REPLACE FUNCTION tidegate.flow_check_move() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF NOT tidegate.flow_may_move(TG_ARGV[0], OLD.state, NEW.state) THEN
        RAISE EXCEPTION 'a % cannot change to % from %', TG_ARGV[0], NEW.state, OLD.state;
    END IF;
    RETURN NEW;
END
$$;

CREATE OR REPLACE TRIGGER flow_run_moves BEFORE UPDATE OF state ON tidegate.flow_run
    FOR EACH ROW WHEN (OLD.state <> NEW.state)
    EXECUTE FUNCTION tidegate.flow_check_move('flow');

CREATE OR REPLACE TRIGGER flow_step_moves BEFORE UPDATE OF state ON tidegate.flow_step
    FOR EACH ROW WHEN (OLD.state <> NEW.state)
    EXECUTE FUNCTION tidegate.flow_check_move('step');
