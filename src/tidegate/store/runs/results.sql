-- Results of runs, and removal of what closed runs no longer need.

-- name: reload — The current state of a run.
SELECT id, pipeline, name, incarnation, state, cause FROM tidegate.run WHERE id = %(run)s;

-- name: results_of — The results of a run by sink.
SELECT sink, rows, batches FROM tidegate.result WHERE run_id = %(run)s ORDER BY sink;

-- name: publications — The number of transactions that published each ended run.
SELECT run.name, run.id, count(DISTINCT result.published_at)
FROM tidegate.run
LEFT JOIN tidegate.result ON result.run_id = run.id
WHERE run.state = 'ended'
GROUP BY run.id;

-- name: rows_in — The number of rows delivered by each source of a run.
SELECT source.name, coalesce(sum(chunk.rows), 0)::bigint
FROM tidegate.source
LEFT JOIN tidegate.chunk ON chunk.run_id = source.run_id AND chunk.source = source.name
WHERE source.run_id = %(run)s
GROUP BY source.name;

-- name: unfinished_among — The runs that are open.
SELECT id FROM tidegate.run WHERE id = ANY(%(runs)s::bigint[]) AND state = 'open';

-- name: to_reclaim — Closed runs whose channels were not removed yet, the oldest first.
SELECT id, pipeline, name, incarnation, state, cause
FROM tidegate.run
WHERE state <> 'open' AND reclaimed_at IS NULL
ORDER BY id
LIMIT %(limit)s;

-- name: mark_reclaimed — Record that the channels of a closed run are removed.
UPDATE tidegate.run
SET reclaimed_at = clock_timestamp()
WHERE id = %(run)s AND state <> 'open' AND reclaimed_at IS NULL;

-- name: remove_channels — Remove the channels of a run, with cursors and messages.
DELETE FROM tidegate.channel WHERE run_id = %(run)s;

-- name: remove_releases — Remove the releases of a run.
DELETE FROM tidegate.release WHERE run_id = %(run)s;

-- name: files_named — The files referenced by results, state and checkpoints; in open runs also the rest.
-- Runs restored from these reference their files too. A run with checkpoints that has not ended can be
-- restored even when it is closed: it needs its state and the chunks after its checkpoints.
WITH family AS (
    SELECT
        id, state = 'open' AS is_open,
        state = 'open' OR (
            state <> 'ended' AND EXISTS (
                SELECT FROM tidegate.checkpoint
                WHERE run_id = run.id AND checkpoint.state <> 'aborted'
            )
        ) AS is_restorable,
        coalesce((
            SELECT min(number) FROM tidegate.checkpoint
            WHERE run_id = run.id AND checkpoint.state = 'committed'
        ), 0) AS oldest
    FROM tidegate.run
    WHERE id = ANY(%(runs)s::bigint[]) OR lineage && %(runs)s::bigint[]
)
SELECT DISTINCT file
FROM (
    SELECT jsonb_path_query(message.payload, '$.**.files[*]') #>> '{}'
    FROM family
    JOIN tidegate.channel ON channel.run_id = family.id
    JOIN tidegate.message ON message.channel_id = channel.id
    WHERE is_open AND message.kind = 'event'
    UNION ALL
    SELECT jsonb_array_elements_text(chunk.files)
    FROM family
    JOIN tidegate.chunk ON chunk.run_id = family.id AND chunk.after_checkpoint >= family.oldest
    WHERE is_restorable
    UNION ALL
    SELECT jsonb_path_query(entry.files, '$[*].path') #>> '{}'
    FROM family
    JOIN tidegate.task_state AS entry ON entry.run_id = family.id
    WHERE is_restorable OR entry.payload ? 'sink'
    UNION ALL
    SELECT jsonb_path_query(in_flight_message.payload, '$.**.files[*]') #>> '{}'
    FROM family
    JOIN tidegate.in_flight_message ON in_flight_message.run_id = family.id
    WHERE is_restorable
    UNION ALL
    SELECT jsonb_path_query(sink_output.files, '$[*].path') #>> '{}'
    FROM family
    JOIN tidegate.sink_output ON sink_output.run_id = family.id
    UNION ALL
    SELECT jsonb_path_query(batches, '$.**.files[*]') #>> '{}'
    FROM family
    JOIN tidegate.result ON result.run_id = family.id
) AS named (file);
