-- Gauges of open flow runs, each read by an index and for a limited number of runs.

-- name: runs — Number of open runs, by flow and state.
SELECT flow, state, count(*)
FROM tidegate.flow_run
WHERE closed_at IS NULL
GROUP BY flow, state;

-- name: failed — Number of runs failed in the last hour and not retried, by flow.
SELECT flow, count(*)
FROM tidegate.flow_run
WHERE closed_at > now() - interval '1 hour' AND state = 'failed'
GROUP BY flow;

-- name: open — Age of each open run.
SELECT flow, id::text, state, extract(epoch FROM clock_timestamp() - begun_at)::double precision
FROM tidegate.flow_run
WHERE closed_at IS NULL
ORDER BY id
LIMIT %(most)s;

-- name: items — Number of items by outcome, of each step.
SELECT run.flow, run.id::text, step.name, step.spawned, step.succeeded, step.failed, step.canceled,
    step.spawned - step.succeeded - step.failed - step.canceled
FROM (
    SELECT id, flow FROM tidegate.flow_run WHERE closed_at IS NULL ORDER BY id LIMIT %(most)s
) AS run
JOIN tidegate.flow_step AS step ON step.run_id = run.id
WHERE step.generating IS NOT NULL;

-- name: state — State keys with a number or boolean, and their age.
SELECT run.flow, run.id::text, state.key,
    CASE jsonb_typeof(state.value)
        WHEN 'number' THEN tidegate.flow_as_double(state.value::numeric)
        WHEN 'boolean' THEN state.value::boolean::integer
    END,
    extract(epoch FROM clock_timestamp() - state.written_at)::double precision
FROM (
    SELECT id, flow FROM tidegate.flow_run WHERE closed_at IS NULL ORDER BY id LIMIT %(most)s
) AS run
JOIN tidegate.flow_state AS state ON state.run_id = run.id
WHERE state.value IS NOT NULL;

-- name: waits — How long each step waits, and the difference of each key to its target.
SELECT wait.flow, wait.run_id::text, wait.step, wait.key, wait.seconds_waited,
    tidegate.flow_as_double(wait.behind)
FROM (
    SELECT id FROM tidegate.flow_run WHERE closed_at IS NULL ORDER BY id LIMIT %(most)s
) AS run
JOIN tidegate.flow_waits AS wait ON wait.run_id = run.id
WHERE wait.position < 0;

-- name: ready — Age of the oldest ready task of each step.
SELECT step.flow, step.name, max(extract(epoch FROM now() - oldest.available_at))::double precision
FROM (
    SELECT DISTINCT run.flow, step.name
    FROM (
        SELECT id, flow FROM tidegate.flow_run WHERE closed_at IS NULL ORDER BY id LIMIT %(most)s
    ) AS run
    JOIN tidegate.flow_step AS step ON step.run_id = run.id
    WHERE step.state = 'running'
) AS step
CROSS JOIN LATERAL (
    VALUES (step.flow || '/' || step.name), (step.flow || '/' || step.name || '[]')
) AS of_step (queue)
CROSS JOIN LATERAL (
    SELECT available_at FROM tidegate.flow_task
    WHERE queue = of_step.queue AND state = 'ready' AND available_at <= now()
    ORDER BY available_at LIMIT 1
) AS oldest
GROUP BY step.flow, step.name;

-- name: workers — Number of running flow workers.
SELECT count(*)
FROM tidegate.lease
WHERE kind = 'flow worker' AND tidegate.lease_is_held(owner, expires_at, seconds);

-- name: unfed — Whether no open run keeps the index behind an alias up to date.
-- The feed does, and before it exists the run that switched the alias. Dropped views have no readers.
SELECT last.alias, (making.id IS NULL AND feeding.index IS NULL)::integer
FROM (
    SELECT DISTINCT ON (alias) alias, index, run_id
    FROM tidegate.alias_switch
    ORDER BY alias, id DESC
) AS last
JOIN pg_class AS view ON view.relname = substring(last.alias FROM '[^.]+$') AND view.relkind = 'v'
JOIN pg_namespace AS own
    ON own.oid = view.relnamespace AND own.nspname || '.' || view.relname = last.alias
LEFT JOIN tidegate.flow_run AS making ON making.id = last.run_id AND making.closed_at IS NULL
LEFT JOIN (
    SELECT DISTINCT input ->> 'index' AS index
    FROM tidegate.flow_run
    WHERE closed_at IS NULL AND right(flow, 5) = '-feed'
) AS feeding ON feeding.index = last.index;
