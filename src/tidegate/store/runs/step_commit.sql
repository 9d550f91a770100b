-- One step of a task. Leases come first, then runs, then lanes and cursors: nobody waits in a ring.

-- name: hold_runs — The runs that a step touches; none of them is closed until the commit.
SELECT id, pipeline, state
FROM tidegate.run
WHERE id IN (
    SELECT run_id
    FROM jsonb_array_elements(%(lanes)s::jsonb) AS touched (lane_id)
    JOIN tidegate.lane ON lane.id = touched.lane_id::bigint
    UNION
    SELECT run_id::bigint FROM jsonb_array_elements(%(runs)s::jsonb) AS named (run_id)
)
ORDER BY id
FOR SHARE;

-- name: hold_runs_to_close — The runs of a step that closes some: nobody else holds any of them.
SELECT id, pipeline, state
FROM tidegate.run
WHERE id IN (
    SELECT run_id
    FROM jsonb_array_elements(%(lanes)s::jsonb) AS touched (lane_id)
    JOIN tidegate.lane ON lane.id = touched.lane_id::bigint
    UNION
    SELECT run_id::bigint FROM jsonb_array_elements(%(runs)s::jsonb) AS named (run_id)
)
ORDER BY id
FOR NO KEY UPDATE;

-- name: advance — Move cursors of open runs; says which stood where they were thought to stand.
-- A lane whose sender is at work is not waited for: that it was read is noted by a later step.
WITH move AS (
    SELECT given.lane AS lane_id, given.origin, given.target
    FROM jsonb_to_recordset(%(moves)s::jsonb) AS given (lane bigint, origin bigint, target bigint)
    JOIN tidegate.lane ON lane.id = given.lane
    JOIN tidegate.run ON run.id = lane.run_id
    WHERE run.state = 'open'
),
moved AS (
    UPDATE tidegate.cursor
    SET seq = move.target
    FROM move
    WHERE cursor.lane_id = move.lane_id AND cursor.seq = move.origin
    RETURNING cursor.lane_id, cursor.seq
),
free AS (
    SELECT lane.id, moved.seq
    FROM moved
    JOIN tidegate.lane ON lane.id = moved.lane_id
    FOR NO KEY UPDATE OF lane SKIP LOCKED
),
noted AS (
    UPDATE tidegate.lane SET taken = free.seq FROM free WHERE lane.id = free.id
)
SELECT move.lane_id, moved.lane_id IS NOT NULL
FROM move
LEFT JOIN moved USING (lane_id);

-- name: cursors — Where cursors stand.
SELECT lane_id, seq FROM tidegate.cursor WHERE lane_id = ANY(%(lanes)s::bigint[]);

-- name: publish — The results of open runs.
INSERT INTO tidegate.result (run_id, sink, rows, batches)
SELECT given.run_id, given.sink, given.rows, given.batches::jsonb
FROM unnest(%(runs)s::bigint[], %(sinks)s::text[], %(rows)s::bigint[], %(batches)s::text[])
    AS given (run_id, sink, rows, batches)
JOIN tidegate.run ON run.id = given.run_id
WHERE run.state = 'open'
ON CONFLICT DO NOTHING;

-- name: close_runs — Close those that are open; the first cause of a failure is the one kept.
UPDATE tidegate.run
SET state = given.state, cause = given.cause, closed_at = clock_timestamp()
FROM unnest(%(runs)s::bigint[], %(states)s::text[], %(causes)s::text[])
    AS given (run_id, state, cause)
WHERE run.id = given.run_id AND run.state = 'open'
RETURNING run.id;

-- name: closed_among — Which of these runs are closed, or gone altogether.
SELECT given.id
FROM unnest(%(runs)s::bigint[]) AS given (id)
LEFT JOIN tidegate.run USING (id)
WHERE run.state IS DISTINCT FROM 'open';
