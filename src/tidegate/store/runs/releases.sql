-- Where and when the monitor lets the END of a run through.

-- name: closed_producers — Tasks at which an open run waits for its release and nobody sends more.
WITH hopeful AS (
    SELECT DISTINCT channel.run_id, channel.to_task
    FROM tidegate.channel
    JOIN tidegate.run ON run.id = channel.run_id
    WHERE channel.to_task = ANY(%(tasks)s::text[]) AND channel.declared IS NOT NULL
        AND run.pipeline = %(pipeline)s AND run.state = 'open'
)
SELECT run.id, pipeline, name, incarnation, state, cause, hopeful.to_task
FROM hopeful
JOIN tidegate.run ON run.id = hopeful.run_id
WHERE NOT EXISTS (
    SELECT FROM tidegate.release
    WHERE release.run_id = hopeful.run_id AND release.task = hopeful.to_task
) AND NOT EXISTS (
    SELECT FROM tidegate.channel
    WHERE channel.run_id = hopeful.run_id AND channel.to_task = hopeful.to_task
        AND channel.declared IS NULL
)
ORDER BY run.id, hopeful.to_task;

-- name: gates — The tasks at which open runs of a pipeline wait for their release.
SELECT DISTINCT release_point.task
FROM tidegate.run
JOIN tidegate.release_point ON release_point.plan = run.plan
WHERE run.pipeline = %(pipeline)s AND run.state = 'open'
ORDER BY release_point.task;

-- name: facts — What came to tasks: by channel, what was declared and which messages were processed.
-- Only where numbers are missing in between are they listed; otherwise the largest says it all.
SELECT
    channel.run_id, channel.to_task, channel.from_task, channel.input, channel.declared,
    coalesce(processed.largest, channel.pruned),
    CASE WHEN channel.pruned + processed.number < processed.largest
        THEN ARRAY(SELECT generate_series(1, channel.pruned)) || processed.seqs
    END
FROM unnest(%(runs)s::bigint[], %(tasks)s::text[]) AS asked (run_id, task)
JOIN tidegate.channel ON channel.run_id = asked.run_id AND channel.to_task = asked.task
JOIN tidegate.cursor ON cursor.channel_id = channel.id
CROSS JOIN LATERAL (
    SELECT count(*) AS number, max(message.seq) AS largest, array_agg(message.seq) AS seqs
    FROM tidegate.message
    WHERE message.channel_id = channel.id AND message.seq <= cursor.seq
        AND NOT (message.kind = 'barrier' AND message.payload ->> 'kind' = 'end_of_run')
) AS processed
ORDER BY channel.id;

-- name: release — Let the END of an open run through at a task.
INSERT INTO tidegate.release (run_id, task)
SELECT id, %(task)s FROM tidegate.run WHERE id = %(run)s AND state = 'open'
ON CONFLICT DO NOTHING;

-- name: released — Of which of these runs END is let through at a task.
SELECT run_id FROM tidegate.release WHERE task = %(task)s AND run_id = ANY(%(runs)s::bigint[]);
