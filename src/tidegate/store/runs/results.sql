-- What runs gave, and what of theirs may go.

-- name: look_again — What has become of a run.
SELECT id, pipeline, name, incarnation, state, cause FROM tidegate.run WHERE id = %(run)s;

-- name: results_of — What each sink of a run gave.
SELECT sink, rows, batches FROM tidegate.result WHERE run_id = %(run)s ORDER BY sink;

-- name: publications — How many transactions wrote the results of each run that ended.
SELECT run.name, run.id, count(DISTINCT result.published_at)
FROM tidegate.run
LEFT JOIN tidegate.result ON result.run_id = run.id
WHERE run.state = 'ended'
GROUP BY run.id;

-- name: rows_in — How many rows each source of a run has delivered.
SELECT source.name, coalesce(sum(chunk.rows), 0)::bigint
FROM tidegate.source
LEFT JOIN tidegate.chunk ON chunk.run_id = source.run_id AND chunk.source = source.name
WHERE source.run_id = %(run)s
GROUP BY source.name;

-- name: unfinished_among — Which of these runs are open.
SELECT id FROM tidegate.run WHERE id = ANY(%(runs)s::bigint[]) AND state = 'open';

-- name: to_reclaim — Closed runs that still have their channels, the oldest first.
SELECT id, pipeline, name, incarnation, state, cause
FROM tidegate.run
WHERE state <> 'open' AND reclaimed_at IS NULL
ORDER BY id
LIMIT %(limit)s;

-- name: note_reclaimed — Remember that a closed run has no channels any more.
UPDATE tidegate.run
SET reclaimed_at = clock_timestamp()
WHERE id = %(run)s AND state <> 'open' AND reclaimed_at IS NULL;

-- name: remove_channels — Remove the channels of a run, with cursors and messages.
DELETE FROM tidegate.channel WHERE run_id = %(run)s;

-- name: remove_releases — Remove the releases of a run.
DELETE FROM tidegate.release WHERE run_id = %(run)s;

-- name: files_named — The files that results, states and checkpoints name; in open runs also the rest.
-- Runs that were restored from these name files of theirs as well. One that was checkpoint and has not
-- ended may be restored, also when it is closed: it needs its state and the chunks behind its checkpoints.
WITH family AS (
    SELECT
        id, state = 'open' AS is_open,
        state = 'open' OR (
            state <> 'ended' AND EXISTS (
                SELECT FROM tidegate.checkpoint
                WHERE run_id = run.id AND checkpoint.state <> 'aborted'
            )
        ) AS may_go_on,
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
    WHERE may_go_on
    UNION ALL
    SELECT jsonb_path_query(kept.files, '$[*].path') #>> '{}'
    FROM family
    JOIN tidegate.task_state AS kept ON kept.run_id = family.id
    WHERE may_go_on OR kept.payload ? 'sink'
    UNION ALL
    SELECT jsonb_path_query(in_flight_message.payload, '$.**.files[*]') #>> '{}'
    FROM family
    JOIN tidegate.in_flight_message ON in_flight_message.run_id = family.id
    WHERE may_go_on
    UNION ALL
    SELECT jsonb_path_query(sink_output.files, '$[*].path') #>> '{}'
    FROM family
    JOIN tidegate.sink_output ON sink_output.run_id = family.id
    UNION ALL
    SELECT jsonb_path_query(batches, '$.**.files[*]') #>> '{}'
    FROM family
    JOIN tidegate.result ON result.run_id = family.id
) AS named (file);
