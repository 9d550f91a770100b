-- Durable flows. Changes are made by the functions in `core/functions/`, also from psql.

-- name: begin — Start a run, or return the one with this key.
SELECT tidegate.flow_begin(%(flow)s, %(key)s, %(input)s::jsonb, %(steps)s::jsonb, %(keys)s::jsonb);

-- name: has_input — Whether a run has this input, compared as JSON values.
SELECT input = %(input)s::jsonb FROM tidegate.flow_run WHERE id = %(run)s;

-- name: find_run — A run by its id.
SELECT id, flow, key, state, cause, begun_at, closed_at
FROM tidegate.flow_run
WHERE id = %(run)s;

-- name: find_run_of_key — A run by its flow and its key.
SELECT id, flow, key, state, cause, begun_at, closed_at
FROM tidegate.flow_run
WHERE flow = %(flow)s AND key = %(key)s;

-- name: runs — The latest runs, of one flow or of all.
SELECT id, flow, key, state, cause, begun_at, closed_at
FROM tidegate.flow_run
WHERE %(flow)s::text IS NULL OR flow = %(flow)s
ORDER BY id DESC
LIMIT %(most)s;

-- name: open_by_input — The open runs of some flows, with one field of their input.
SELECT input ->> %(field)s, id, flow, key, state, cause, begun_at, closed_at
FROM tidegate.flow_run
WHERE flow = ANY(%(flows)s) AND closed_at IS NULL
ORDER BY id;

-- name: progress — Progress of the steps of a run.
SELECT step, kind, state, generating, spawned, succeeded, failed, canceled, in_flight, cause,
    last_error
FROM tidegate.flow_progress
WHERE run_id = %(run)s;

-- name: signal — Send a step its signal.
SELECT tidegate.flow_signal(%(run)s, %(step)s, %(payload)s::jsonb, %(by)s);

-- name: awaited_signals — The steps of a run that wait only for their signal.
SELECT step.name
FROM tidegate.flow_step AS step
JOIN tidegate.flow_run AS run ON run.id = step.run_id AND run.closed_at IS NULL
WHERE step.run_id = %(run)s AND step.needs_signal AND step.state = 'waiting'
AND NOT EXISTS (
    SELECT FROM tidegate.flow_signal AS given
    WHERE given.run_id = step.run_id AND given.step = step.name)
AND NOT EXISTS (
    SELECT FROM tidegate.flow_step AS before
    WHERE before.run_id = step.run_id AND before.name = ANY (step.depends_on)
    AND before.state NOT IN ('completed', 'skipped'))
ORDER BY step.number;

-- name: cancel — Cancel a run.
SELECT tidegate.flow_cancel(%(run)s, %(reason)s);

-- name: pause — Start nothing more of a run.
SELECT tidegate.flow_pause(%(run)s);

-- name: resume — Resume a paused run.
SELECT tidegate.flow_resume(%(run)s);

-- name: retry — Retry a failed run.
SELECT tidegate.flow_retry(%(run)s);

-- name: tolerate — Change how many items of a step may fail.
SELECT tidegate.flow_tolerate(%(run)s, %(step)s, %(count)s, %(share)s);

-- name: sweep — Free claims of lost workers, wake and end what is due.
SELECT freed, woken, ended FROM tidegate.flow_sweep();

-- name: remove_closed — Remove runs that were closed long ago.
SELECT tidegate.flow_remove_closed(%(seconds)s);

-- name: changes — The number of writes of a run's state.
SELECT changes FROM tidegate.flow_run WHERE id = %(run)s;

-- name: state — The state of a run.
SELECT key, value::text, coalesce(writer, ''), version,
    extract(epoch FROM clock_timestamp() - written_at)::double precision
FROM tidegate.flow_state
WHERE run_id = %(run)s
ORDER BY key;

-- name: set_state — Write a key, under a claim or from outside.
SELECT tidegate.flow_set_state(
    %(run)s, %(key)s, %(value)s::jsonb, %(writer)s, %(once)s, %(owner)s, %(step)s, %(position)s,
    %(epoch)s
)::text;

-- name: result — The result of a step.
SELECT state, kind, result::text
FROM tidegate.flow_step
WHERE run_id = %(run)s AND name = %(step)s;

-- name: item_results — The results of items of a step after a position.
SELECT task.position, coalesce(task.result::text, 'null')
FROM tidegate.flow_task AS task
WHERE task.step_id = (
    SELECT id FROM tidegate.flow_step WHERE run_id = %(run)s AND name = %(step)s)
AND task.position > %(after)s AND task.state = 'succeeded'
ORDER BY task.position
LIMIT %(most)s;
