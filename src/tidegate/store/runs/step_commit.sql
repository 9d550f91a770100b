-- Commit of one step of a task. Lock order: leases, runs, channels, cursors.

-- name: lock_runs — The runs of a step, locked against closing until the commit.
SELECT id, pipeline, state
FROM tidegate.run
WHERE id IN (
    SELECT run_id
    FROM jsonb_array_elements(%(channels)s::jsonb) AS touched (channel_id)
    JOIN tidegate.channel ON channel.id = touched.channel_id::bigint
    UNION
    SELECT run_id::bigint FROM jsonb_array_elements(%(runs)s::jsonb) AS named (run_id)
)
ORDER BY id
FOR SHARE;

-- name: lock_runs_to_close — The runs of a step that closes some of them, locked exclusively.
SELECT id, pipeline, state
FROM tidegate.run
WHERE id IN (
    SELECT run_id
    FROM jsonb_array_elements(%(channels)s::jsonb) AS touched (channel_id)
    JOIN tidegate.channel ON channel.id = touched.channel_id::bigint
    UNION
    SELECT run_id::bigint FROM jsonb_array_elements(%(runs)s::jsonb) AS named (run_id)
)
ORDER BY id
FOR NO KEY UPDATE;

-- name: advance — Advance cursors of open runs; returns which were at the expected position.
-- A channel locked by its sender is skipped: a later step updates its read_at_least.
WITH move AS (
    SELECT given.channel AS channel_id, given.origin, given.target
    FROM jsonb_to_recordset(%(moves)s::jsonb) AS given (channel bigint, origin bigint, target bigint)
    JOIN tidegate.channel ON channel.id = given.channel
    JOIN tidegate.run ON run.id = channel.run_id
    WHERE run.state = 'open'
),
moved AS (
    UPDATE tidegate.cursor
    SET seq = move.target
    FROM move
    WHERE cursor.channel_id = move.channel_id AND cursor.seq = move.origin
    RETURNING cursor.channel_id, cursor.seq
),
free AS (
    SELECT channel.id, moved.seq
    FROM moved
    JOIN tidegate.channel ON channel.id = moved.channel_id
    FOR NO KEY UPDATE OF channel SKIP LOCKED
),
updated AS (
    UPDATE tidegate.channel SET read_at_least = free.seq FROM free WHERE channel.id = free.id
)
SELECT move.channel_id, moved.channel_id IS NOT NULL
FROM move
LEFT JOIN moved USING (channel_id);

-- name: cursors — The positions of cursors.
SELECT channel_id, seq FROM tidegate.cursor WHERE channel_id = ANY(%(channels)s::bigint[]);

-- name: publish — Store the results of open runs.
INSERT INTO tidegate.result (run_id, sink, rows, batches)
SELECT given.run_id, given.sink, given.rows, given.batches::jsonb
FROM unnest(%(runs)s::bigint[], %(sinks)s::text[], %(rows)s::bigint[], %(batches)s::text[])
    AS given (run_id, sink, rows, batches)
JOIN tidegate.run ON run.id = given.run_id
WHERE run.state = 'open'
ON CONFLICT DO NOTHING;

-- name: close_runs — Close the runs that are open; a run keeps its first cause.
UPDATE tidegate.run
SET state = given.state, cause = given.cause, closed_at = clock_timestamp()
FROM unnest(%(runs)s::bigint[], %(states)s::text[], %(causes)s::text[])
    AS given (run_id, state, cause)
WHERE run.id = given.run_id AND run.state = 'open'
RETURNING run.id;

-- name: closed_among — The runs that are closed or removed.
SELECT given.id
FROM unnest(%(runs)s::bigint[]) AS given (id)
LEFT JOIN tidegate.run USING (id)
WHERE run.state IS DISTINCT FROM 'open';
