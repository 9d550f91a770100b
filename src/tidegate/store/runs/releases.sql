-- Releases of END by the monitor.

-- name: closed_producers — The unreleased open runs at tasks where all producers have declared.
WITH candidate AS (
    SELECT DISTINCT channel.run_id, channel.to_task
    FROM tidegate.channel
    JOIN tidegate.run ON run.id = channel.run_id
    WHERE channel.to_task = ANY(%(tasks)s::text[]) AND channel.declared IS NOT NULL
        AND run.pipeline = %(pipeline)s AND run.state = 'open'
)
SELECT run.id, pipeline, name, incarnation, state, cause, candidate.to_task
FROM candidate
JOIN tidegate.run ON run.id = candidate.run_id
WHERE NOT EXISTS (
    SELECT FROM tidegate.release
    WHERE release.run_id = candidate.run_id AND release.task = candidate.to_task
) AND NOT EXISTS (
    SELECT FROM tidegate.channel
    WHERE channel.run_id = candidate.run_id AND channel.to_task = candidate.to_task
        AND channel.declared IS NULL
)
ORDER BY run.id, candidate.to_task;

-- name: release_points — The release points of all open runs of a pipeline.
SELECT DISTINCT release_point.task
FROM tidegate.run
JOIN tidegate.release_point ON release_point.plan = run.plan
WHERE run.pipeline = %(pipeline)s AND run.state = 'open'
ORDER BY release_point.task;

-- name: facts — Declared and processed messages, by channel.
-- Numbers are listed only where some are missing; otherwise the largest is sufficient.
SELECT
    channel.run_id, channel.to_task, channel.from_task, channel.input, channel.declared,
    coalesce(processed.largest, channel.pruned),
    CASE WHEN channel.pruned + processed.number < processed.largest
        THEN ARRAY(SELECT generate_series(1, channel.pruned)) || processed.seqs
    END
FROM unnest(%(runs)s::bigint[], %(tasks)s::text[]) AS given (run_id, task)
JOIN tidegate.channel ON channel.run_id = given.run_id AND channel.to_task = given.task
JOIN tidegate.cursor ON cursor.channel_id = channel.id
CROSS JOIN LATERAL (
    SELECT count(*) AS number, max(message.seq) AS largest, array_agg(message.seq) AS seqs
    FROM tidegate.message
    WHERE message.channel_id = channel.id AND message.seq <= cursor.seq
        AND NOT (message.kind = 'barrier' AND message.payload ->> 'kind' = 'end_of_run')
) AS processed
ORDER BY channel.id;

-- name: release — Release the END of an open run at a task.
INSERT INTO tidegate.release (run_id, task)
SELECT id, %(task)s FROM tidegate.run WHERE id = %(run)s AND state = 'open'
ON CONFLICT DO NOTHING;

-- name: released — The runs that are released at a task.
SELECT run_id FROM tidegate.release WHERE task = %(task)s AND run_id = ANY(%(runs)s::bigint[]);
