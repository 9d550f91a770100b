-- Unaligned checkpoints: every task is where its last step left it, or where it forwarded the barrier.
-- While the run is locked, no step of it commits and no chunk is recorded.

-- name: lock_run — Whether a run is open; locked exclusively until the commit.
SELECT state = 'open' FROM tidegate.run WHERE id = %(run)s FOR NO KEY UPDATE;

-- name: mark — Make a pending checkpoint unaligned, unless the collector has acknowledged it.
UPDATE tidegate.checkpoint
SET unaligned = true, unpublished = true
WHERE run_id = %(run)s AND number = %(number)s AND NOT unaligned
    AND state NOT IN ('committed', 'aborted')
    AND NOT EXISTS (
        SELECT FROM tidegate.acknowledgement
        WHERE run_id = %(run)s AND number = %(number)s AND NOT EXISTS (
            SELECT FROM tidegate.channel
            WHERE channel.run_id = %(run)s AND from_task = acknowledgement.task
        )
    );

-- name: record — Record the last unaligned checkpoint: the run's tasks ignore barriers up to it.
UPDATE tidegate.run SET last_unaligned = %(number)s WHERE id = %(run)s;

-- name: mark_sources — Later chunks of sources without the barrier come after the checkpoint.
UPDATE tidegate.source
SET injected = %(number)s
WHERE run_id = %(run)s AND ended_at IS NULL AND injected < %(number)s;

-- name: store_in_flight — Store unread messages, up to the barrier where a channel has it.
-- Signals are left out, as a restore sends END again, and so is output of a single checkpoint.
WITH unread AS MATERIALIZED (
    SELECT channel.id, channel.from_task, channel.to_task, channel.input, cursor.seq AS start, coalesce((
        SELECT min(seq) FROM tidegate.message
        WHERE channel_id = channel.id AND seq > cursor.seq AND kind = 'barrier'
            AND payload ->> 'kind' = 'checkpoint' AND (payload ->> 'id')::bigint = %(number)s
    ), channel.sent + 1) AS stop
    FROM tidegate.channel
    JOIN tidegate.cursor ON cursor.channel_id = channel.id
    WHERE channel.run_id = %(run)s AND NOT EXISTS (
        SELECT FROM tidegate.acknowledgement
        WHERE run_id = channel.run_id AND number = %(number)s AND task = channel.to_task
    )
)
INSERT INTO tidegate.in_flight_message (run_id, number, position, from_task, to_task, input, kind, payload)
SELECT
    %(run)s, %(number)s, row_number() OVER (ORDER BY unread.id, message.seq),
    from_task, to_task, input, message.kind, message.payload
FROM unread
JOIN tidegate.message
    ON message.channel_id = unread.id AND message.seq > unread.start AND message.seq < unread.stop
WHERE message.kind = 'watermark' OR (
    message.kind = 'event' AND coalesce((message.payload ->> 'version')::bigint, 0) = 0
);

-- name: acknowledge_all — Acknowledge the checkpoint for all tasks that have not ended.
INSERT INTO tidegate.acknowledgement (run_id, number, task)
SELECT DISTINCT channel.run_id, %(number)s::bigint, channel.to_task
FROM tidegate.channel
WHERE channel.run_id = %(run)s AND NOT EXISTS (
    SELECT
    FROM tidegate.channel AS onward
    WHERE onward.run_id = channel.run_id AND onward.from_task = channel.to_task
    HAVING count(*) > 0 AND bool_and(onward.declared IS NOT NULL)
)
ON CONFLICT DO NOTHING;

-- name: without_checksum — The files of in-flight messages that have no checksums yet.
SELECT position, jsonb_path_query_array(payload, '$.**.files[*]')
FROM tidegate.in_flight_message
WHERE run_id = %(run)s AND number = %(number)s AND files IS NULL
ORDER BY position;

-- name: checksum — Store checksums of files.
UPDATE tidegate.in_flight_message
SET files = given.files
FROM jsonb_to_recordset(%(given)s::jsonb) AS given (position bigint, files jsonb)
WHERE run_id = %(run)s AND number = %(number)s AND in_flight_message.position = given.position
    AND in_flight_message.files IS NULL;

-- name: overtaken — The runs whose acknowledged checkpoint became unaligned.
SELECT run.id
FROM unnest(%(runs)s::bigint[], %(numbers)s::bigint[]) AS given (run_id, number)
JOIN tidegate.run ON run.id = given.run_id
WHERE run.last_unaligned >= given.number;

-- name: in_flight — The messages in flight at a checkpoint.
SELECT from_task, to_task, input, position, kind, payload::text
FROM tidegate.in_flight_message
WHERE run_id = %(run)s AND number = %(number)s
ORDER BY position;
