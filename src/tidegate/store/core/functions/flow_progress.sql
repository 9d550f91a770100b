-- Progress of runs of flows.

-- A number of the state as double precision; infinite when it is out of range.
CREATE OR REPLACE FUNCTION tidegate.flow_as_double(p_number numeric) RETURNS double precision
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN abs(p_number) > 1.7e308 THEN sign(p_number)::double precision * 'Infinity'
        WHEN abs(p_number) < 1e-300 THEN 0
        ELSE p_number::double precision
    END
$$;

-- Progress of the steps of all runs.
CREATE OR REPLACE VIEW tidegate.flow_progress AS
SELECT
    run.id AS run_id, run.flow, run.key, run.state AS run_state,
    step.name AS step, step.kind, step.state, step.generating,
    step.spawned, step.succeeded, step.failed, step.canceled,
    step.spawned - step.succeeded - step.failed - step.canceled AS in_flight,
    step.cause, step.last_error, step.started_at, step.closed_at
FROM tidegate.flow_run AS run
JOIN tidegate.flow_step AS step ON step.run_id = run.id
ORDER BY run.id, step.number;

COMMENT ON VIEW tidegate.flow_progress IS
    'Progress of the steps of all runs: items spawned, succeeded, failed, canceled, in flight.';
