-- A run begins again at a checkpoint, as another incarnation of it.

-- name: checksums — The files of a checkpoint: of its states, of what was on its way, of what sinks gave for it.
SELECT DISTINCT file ->> 'path', (file ->> 'bytes')::bigint, file ->> 'sha256'
FROM (
    SELECT files FROM tidegate.task_state
    WHERE run_id = %(run)s AND number <= %(number)s AND (removed IS NULL OR removed > %(number)s)
    UNION ALL
    SELECT files FROM tidegate.in_flight_message WHERE run_id = %(run)s AND number = %(number)s
    UNION ALL
    SELECT files FROM tidegate.sink_output WHERE run_id = %(run)s AND number = %(number)s
) AS named, jsonb_array_elements(files) AS file;

-- name: behind — The files of the chunks behind a checkpoint; some may not be checksummed.
SELECT file, checksum ->> 'sha256', (checksum ->> 'bytes')::bigint
FROM tidegate.chunk
CROSS JOIN LATERAL jsonb_array_elements_text(files) AS file
LEFT JOIN LATERAL jsonb_array_elements(file_checksums) AS checksum ON checksum ->> 'path' = file
WHERE run_id = %(run)s AND after_checkpoint >= %(number)s;

-- name: acknowledged_by — The tasks that the barrier of a checkpoint has left.
SELECT task FROM tidegate.acknowledgement WHERE run_id = %(run)s AND number = %(number)s;

-- name: inherit — What a run has from the one that it is restored from.
UPDATE tidegate.run
SET checkpoints = earlier.checkpoints, lineage = earlier.lineage || earlier.id,
    warn_at = earlier.warn_at, deadline_at = earlier.deadline_at
FROM tidegate.run AS earlier
WHERE run.id = %(run)s AND earlier.id = %(earlier)s;

-- name: successor — The run that was restored from this one last, directly or not.
SELECT id, pipeline, name, incarnation, state, cause
FROM tidegate.run
WHERE lineage @> ARRAY[%(run)s::bigint]
ORDER BY id DESC
LIMIT 1;

-- name: copy_sources — Its sources have what was delivered; their barriers are counted on.
UPDATE tidegate.source
SET delivered = earlier.delivered, declared = earlier.declared, declared_at = earlier.declared_at,
    ended_at = earlier.ended_at, injected = greatest(%(number)s, earlier.injected),
    watermark = earlier.watermark, last_batch = earlier.last_batch
FROM tidegate.source AS earlier
WHERE source.run_id = %(run)s AND earlier.run_id = %(earlier)s AND earlier.name = source.name;

-- name: copy_chunks — All its chunks; those behind the checkpoint come behind its barrier again.
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

-- name: copy_checkpoints — The checkpoints up to this one; later numbers are used up.
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
    CASE WHEN number <= %(number)s THEN offender ELSE 'whoever restored it' END,
    CASE WHEN number <= %(number)s THEN manifest END
FROM tidegate.checkpoint
WHERE run_id = %(earlier)s;

-- name: copy_acknowledgements — Who acknowledged them.
INSERT INTO tidegate.acknowledgement (run_id, number, task, acknowledged_at, alignment_seconds, last_upstream, bytes)
SELECT %(run)s, number, task, acknowledged_at, alignment_seconds, last_upstream, bytes
FROM tidegate.acknowledgement
WHERE run_id = %(earlier)s AND number <= %(number)s;

-- name: copy_outputs — What sinks gave for each of them.
INSERT INTO tidegate.sink_output (run_id, number, position, payload, files)
SELECT %(run)s, number, position, payload, files
FROM tidegate.sink_output
WHERE run_id = %(earlier)s AND number <= %(number)s;

-- name: copy_states — What tasks keep, also for the earlier checkpoints: to those it may be restored too.
INSERT INTO tidegate.task_state (run_id, task, number, position, input, payload, files, removed)
SELECT
    %(run)s, task, number, position, input, payload, files,
    CASE WHEN removed <= %(number)s THEN removed END
FROM tidegate.task_state
WHERE run_id = %(earlier)s AND number <= %(number)s;

-- name: copy_in_flight — What was on its way at each of them.
INSERT INTO tidegate.in_flight_message (
    run_id, number, position, from_task, to_task, input, kind, payload, files
)
SELECT %(run)s, number, position, from_task, to_task, input, kind, payload, files
FROM tidegate.in_flight_message
WHERE run_id = %(earlier)s AND number <= %(number)s;

-- name: copy_releases — Where END has passed already.
INSERT INTO tidegate.release (run_id, task, released_at)
SELECT %(run)s, task, released_at
FROM tidegate.release
WHERE run_id = %(earlier)s AND NOT task = ANY(%(tasks)s::text[]);

-- name: chunks_behind — The chunks behind a checkpoint, in the order of their delivery.
SELECT source, number, sha256, rows, bytes, files, shard, watermark
FROM tidegate.chunk
WHERE run_id = %(run)s AND after_checkpoint >= %(number)s
ORDER BY source, delivered_at, number;

-- name: watermarks_at — What the chunks before a checkpoint say about time, by source.
SELECT source, max(watermark)
FROM tidegate.chunk
WHERE run_id = %(run)s AND after_checkpoint < %(number)s AND watermark IS NOT NULL
GROUP BY source;

-- name: ended_sources — The sources that have ended.
SELECT name FROM tidegate.source WHERE run_id = %(run)s AND ended_at IS NOT NULL ORDER BY name;

-- name: pass_over — The channels into tasks that have ended are read up to their END.
UPDATE tidegate.cursor
SET seq = channel.sent
FROM tidegate.channel
WHERE cursor.channel_id = channel.id AND channel.run_id = %(run)s
    AND NOT channel.to_task = ANY(%(tasks)s::text[]);
