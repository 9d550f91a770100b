-- Restore of a run from a checkpoint, as another incarnation.

-- name: checksums — The files of a checkpoint: of state, in-flight messages and sink output.
SELECT DISTINCT file ->> 'path', (file ->> 'bytes')::bigint, file ->> 'sha256'
FROM (
    SELECT files FROM tidegate.task_state
    WHERE run_id = %(run)s AND number <= %(number)s AND (removed IS NULL OR removed > %(number)s)
    UNION ALL
    SELECT files FROM tidegate.in_flight_message WHERE run_id = %(run)s AND number = %(number)s
    UNION ALL
    SELECT files FROM tidegate.sink_output WHERE run_id = %(run)s AND number = %(number)s
) AS named, jsonb_array_elements(files) AS file;

-- name: files_after — The files of the chunks after a checkpoint, with checksums where known.
SELECT file, checksum ->> 'sha256', (checksum ->> 'bytes')::bigint
FROM tidegate.chunk
CROSS JOIN LATERAL jsonb_array_elements_text(files) AS file
LEFT JOIN LATERAL jsonb_array_elements(file_checksums) AS checksum ON checksum ->> 'path' = file
WHERE run_id = %(run)s AND after_checkpoint >= %(number)s;

-- name: acknowledged_by — The tasks that have forwarded the barrier of a checkpoint.
SELECT task FROM tidegate.acknowledgement WHERE run_id = %(run)s AND number = %(number)s;

-- name: inherit — Settings that a run inherits from the one it is restored from.
UPDATE tidegate.run
SET checkpoints = earlier.checkpoints, lineage = earlier.lineage || earlier.id,
    warn_at = earlier.warn_at, deadline_at = earlier.deadline_at
FROM tidegate.run AS earlier
WHERE run.id = %(run)s AND earlier.id = %(earlier)s;

-- name: successor — The latest run that was restored from this one, directly or not.
SELECT id, pipeline, name, incarnation, state, cause
FROM tidegate.run
WHERE lineage @> ARRAY[%(run)s::bigint]
ORDER BY id DESC
LIMIT 1;

-- name: copy_sources — Copy the progress of sources; barrier numbers continue.
UPDATE tidegate.source
SET delivered = earlier.delivered, declared = earlier.declared, declared_at = earlier.declared_at,
    ended_at = earlier.ended_at, injected = greatest(%(number)s, earlier.injected),
    watermark = earlier.watermark, last_batch = earlier.last_batch
FROM tidegate.source AS earlier
WHERE source.run_id = %(run)s AND earlier.run_id = %(earlier)s AND earlier.name = source.name;

-- name: copy_chunks — Copy all chunks; those after the checkpoint follow its barrier again.
INSERT INTO tidegate.chunk (
    run_id, source, number, sha256, rows, bytes, files, shard, delivered_at, watermark, file_checksums,
    after_checkpoint
)
SELECT
    %(run)s, source, number, sha256, rows, bytes, files, shard, delivered_at, watermark, file_checksums,
    CASE WHEN after_checkpoint < %(number)s THEN after_checkpoint ELSE greatest(%(number)s, (
        SELECT max(injected) FROM tidegate.source WHERE run_id = %(earlier)s
    )) END
FROM tidegate.chunk
WHERE run_id = %(earlier)s;

-- name: copy_checkpoints — Copy the checkpoints up to this one; later ones become aborted, as numbers are never reused.
INSERT INTO tidegate.checkpoint (
    run_id, number, id, epoch, unpublished, alignment_timeout, unaligned, state, triggered_at, injected_at,
    aligning_at, acknowledged_at, settled_at, reason, offender, manifest
)
SELECT
    %(run)s, number, id, epoch, unpublished, alignment_timeout, unaligned,
    CASE WHEN number <= %(number)s THEN state ELSE 'aborted' END,
    triggered_at, injected_at, aligning_at, acknowledged_at,
    coalesce(settled_at, triggered_at),
    CASE WHEN number <= %(number)s THEN reason ELSE 'the run was restored to an earlier checkpoint' END,
    CASE WHEN number <= %(number)s THEN offender ELSE 'restore' END,
    CASE WHEN number <= %(number)s THEN manifest END
FROM tidegate.checkpoint
WHERE run_id = %(earlier)s;

-- name: copy_acknowledgements — Copy their acknowledgements.
INSERT INTO tidegate.acknowledgement (run_id, number, task, acknowledged_at, alignment_seconds, last_upstream, bytes)
SELECT %(run)s, number, task, acknowledged_at, alignment_seconds, last_upstream, bytes
FROM tidegate.acknowledgement
WHERE run_id = %(earlier)s AND number <= %(number)s;

-- name: copy_outputs — Copy their sink output.
INSERT INTO tidegate.sink_output (run_id, number, position, payload, files)
SELECT %(run)s, number, position, payload, files
FROM tidegate.sink_output
WHERE run_id = %(earlier)s AND number <= %(number)s;

-- name: copy_states — Copy state, also of earlier checkpoints, which can be restored too.
INSERT INTO tidegate.task_state (run_id, task, number, position, input, payload, files, removed)
SELECT
    %(run)s, task, number, position, input, payload, files,
    CASE WHEN removed <= %(number)s THEN removed END
FROM tidegate.task_state
WHERE run_id = %(earlier)s AND number <= %(number)s;

-- name: copy_in_flight — Copy their in-flight messages.
INSERT INTO tidegate.in_flight_message (
    run_id, number, position, from_task, to_task, input, kind, payload, files
)
SELECT %(run)s, number, position, from_task, to_task, input, kind, payload, files
FROM tidegate.in_flight_message
WHERE run_id = %(earlier)s AND number <= %(number)s;

-- name: copy_releases — Copy the releases of tasks that have ended.
INSERT INTO tidegate.release (run_id, task, released_at)
SELECT %(run)s, task, released_at
FROM tidegate.release
WHERE run_id = %(earlier)s AND NOT task = ANY(%(tasks)s::text[]);

-- name: chunks_after — The chunks after a checkpoint, in the order of delivery.
SELECT source, number, sha256, rows, bytes, files, shard, watermark
FROM tidegate.chunk
WHERE run_id = %(run)s AND after_checkpoint >= %(number)s
ORDER BY source, delivered_at, number;

-- name: watermarks_at — The last watermark before a checkpoint, by source.
SELECT source, max(watermark)
FROM tidegate.chunk
WHERE run_id = %(run)s AND after_checkpoint < %(number)s AND watermark IS NOT NULL
GROUP BY source;

-- name: ended_sources — The sources that have ended.
SELECT name FROM tidegate.source WHERE run_id = %(run)s AND ended_at IS NOT NULL ORDER BY name;

-- name: pass_over — Advance the cursors of tasks that have ended to the end of their channels.
UPDATE tidegate.cursor
SET seq = channel.sent
FROM tidegate.channel
WHERE cursor.channel_id = channel.id AND channel.run_id = %(run)s
    AND NOT channel.to_task = ANY(%(tasks)s::text[]);
