-- Events and waits of flow runs.

-- name: events — The events of a run after an event.
SELECT id, run_id, at, kind, name, detail
FROM tidegate.flow_event
WHERE run_id = %(run)s AND id > %(after)s
ORDER BY id
LIMIT %(most)s;

-- name: waits — The waits of the tasks of a run.
SELECT step, position, waiting_since, seconds_waited, wait_until, key, value::text, target_key,
    target::text, writer, seconds_since_written, CASE WHEN key IS NULL THEN started.name END
FROM tidegate.flow_waits
LEFT JOIN (
    SELECT link.flow_run_id AS run_id, of_link.name AS step, link.position, link.name
    FROM tidegate.flow_pipeline AS link
    JOIN tidegate.flow_step AS of_link ON of_link.id = link.step_id
    WHERE link.flow_run_id = %(run)s AND NOT link.is_settled
) AS started USING (run_id, step, position)
WHERE run_id = %(run)s AND NOT is_target
ORDER BY position, step, key
LIMIT %(most)s;

-- name: claimed_tasks — Which workers have claimed tasks of a run.
SELECT owner, substr(queue, strpos(queue, '/') + 1), count(*)
FROM tidegate.flow_task
WHERE state = 'claimed' AND run_id = %(run)s
GROUP BY 1, 2
ORDER BY 1, 2;

-- name: earlier — The number of events of a run older than some seconds, and the last of them.
SELECT count(*), coalesce(max(id), 0),
    (SELECT extract(epoch FROM clock_timestamp() - begun_at)::double precision
        FROM tidegate.flow_run WHERE id = %(run)s)
FROM tidegate.flow_event
WHERE run_id = %(run)s AND at < clock_timestamp() - make_interval(secs => %(seconds)s);

-- name: ready — Since when steps of a run have ready tasks that no worker claims.
-- For items, the oldest of their queue counts, and only while no worker has claimed an item of the step.
SELECT step.name, extract(epoch FROM
    clock_timestamp() - greatest(first.available_at, step.started_at))::double precision
FROM tidegate.flow_run AS run
JOIN tidegate.flow_step AS step ON step.run_id = run.id AND step.state = 'running'
CROSS JOIN LATERAL (
    SELECT available_at FROM tidegate.flow_task
    WHERE step_id = step.id AND position = -1 AND state = 'ready' AND available_at <= now()
    UNION ALL (
        SELECT available_at FROM tidegate.flow_task
        WHERE step.spawned > step.succeeded + step.failed + step.canceled
        AND queue = run.flow || '/' || step.name || '[]'
        AND state = 'ready' AND available_at <= now()
        AND NOT EXISTS (
            SELECT FROM tidegate.flow_task AS held
            WHERE held.state = 'claimed' AND held.run_id = run.id AND held.step_id = step.id
            AND held.position >= 0)
        ORDER BY available_at LIMIT 1)
) AS first
WHERE run.id = %(run)s AND run.state = 'running'
ORDER BY step.number;

-- name: workers — The number of running flow workers.
SELECT count(*)
FROM tidegate.lease
WHERE kind = 'flow worker' AND tidegate.lease_is_held(owner, expires_at, seconds);

-- name: outcomes — The steps of a run with their states, and whether no other step uses the result.
SELECT step.name, step.kind, step.state, NOT EXISTS (
    SELECT FROM tidegate.flow_step AS other
    WHERE other.run_id = step.run_id AND step.name = ANY (other.depends_on))
FROM tidegate.flow_step AS step
WHERE step.run_id = %(run)s
ORDER BY step.number;

-- name: failed — The permanently failed items and own tasks of steps.
SELECT step.name, nullif(task.position, -1), task.key, task.attempts, task.cause, task.last_error
FROM tidegate.flow_step AS step
JOIN tidegate.flow_task AS task ON task.step_id = step.id AND task.state = 'failed'
WHERE step.run_id = %(run)s AND (step.failed > 0 OR step.state = 'failed')
AND (%(step)s::text IS NULL OR step.name = %(step)s)
ORDER BY step.number, task.position
LIMIT %(most)s;

-- name: count_failed — Their number.
SELECT coalesce(sum(step.failed + (
    SELECT count(*) FROM tidegate.flow_task AS own
    WHERE own.step_id = step.id AND own.position = -1 AND own.state = 'failed')), 0)::bigint
FROM tidegate.flow_step AS step
WHERE step.run_id = %(run)s AND (%(step)s::text IS NULL OR step.name = %(step)s);
