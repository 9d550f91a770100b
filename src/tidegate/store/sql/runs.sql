-- Runs: begun once, closed once, removed with everything of theirs.

-- name: begin_run — Open a run under a name that no open run has; a name used before counts up.
INSERT INTO tidegate.run (pipeline, name, incarnation)
SELECT %(pipeline)s, %(name)s, coalesce(max(incarnation), 0) + 1
FROM tidegate.run
WHERE pipeline = %(pipeline)s AND name = %(name)s
ON CONFLICT DO NOTHING
RETURNING id, pipeline, name, incarnation, state;

-- name: open_lanes — Give a run its lanes, each with a cursor at its beginning.
WITH opened AS (
    INSERT INTO tidegate.lane (run_id, from_task, to_task, input)
    SELECT %(run)s, from_task, to_task, input
    FROM unnest(%(from_tasks)s::text[], %(to_tasks)s::text[], %(inputs)s::integer[])
        AS lane (from_task, to_task, input)
    RETURNING id
)
INSERT INTO tidegate.cursor (lane_id)
SELECT id FROM opened;

-- name: latest_run — The last run of a name, whatever became of it.
SELECT id, pipeline, name, incarnation, state
FROM tidegate.run
WHERE pipeline = %(pipeline)s AND name = %(name)s
ORDER BY incarnation DESC
LIMIT 1;

-- name: close — Close a run that is open.
UPDATE tidegate.run
SET state = %(state)s, closed_at = clock_timestamp()
WHERE id = %(run)s AND state = 'open';

-- name: remove_closed — Remove runs closed some time ago, the oldest first, with their lanes.
DELETE FROM tidegate.run
WHERE id IN (
    SELECT id
    FROM tidegate.run
    WHERE state <> 'open' AND closed_at <= clock_timestamp() - make_interval(secs => %(seconds)s)
    ORDER BY closed_at
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
);
