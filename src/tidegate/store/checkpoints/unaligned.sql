-- A checkpoint that waits no longer: every task stands where its last step left it, or where it
-- passed the barrier on. While the run is held alone no step of it ends and no chunk of it comes.

-- name: hold_alone — Whether a run is open; until the commit nobody else does anything for it.
SELECT state = 'open' FROM tidegate.run WHERE id = %(run)s FOR NO KEY UPDATE;

-- name: mark — A checkpoint becomes unaligned, unless it is that, or over, or the collecting end has it.
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

-- name: note — From here on barriers up to this number mean nothing to the run's tasks.
UPDATE tidegate.run SET last_unaligned = %(number)s WHERE id = %(run)s;

-- name: checkpoint_sources — What comes to a source that has not had the barrier comes behind it.
UPDATE tidegate.source
SET injected = %(number)s
WHERE run_id = %(run)s AND ended_at IS NULL AND injected < %(number)s;

-- name: keep_in_flight — What tasks have not read, up to the barrier where a channel has it.
-- Signals are left out: ENDs are sent again by whoever restores. So are answers for one checkpoint.
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

-- name: pass_by — All tasks that have not ended are taken for those that the barrier has left.
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

-- name: without_checksum — What was on its way and names files that were not checksummed yet.
SELECT position, jsonb_path_query_array(payload, '$.**.files[*]')
FROM tidegate.in_flight_message
WHERE run_id = %(run)s AND number = %(number)s AND files IS NULL
ORDER BY position;

-- name: checksum — How those files have to be found again.
UPDATE tidegate.in_flight_message
SET files = given.files
FROM jsonb_to_recordset(%(given)s::jsonb) AS given (position bigint, files jsonb)
WHERE run_id = %(run)s AND number = %(number)s AND in_flight_message.position = given.position
    AND in_flight_message.files IS NULL;

-- name: late — The runs that no longer wait for checkpoints that somebody wants to keep something for.
SELECT run.id
FROM unnest(%(runs)s::bigint[], %(numbers)s::bigint[]) AS given (run_id, number)
JOIN tidegate.run ON run.id = given.run_id
WHERE run.last_unaligned >= given.number;

-- name: in_flight — What was on its way at a checkpoint.
SELECT from_task, to_task, input, position, kind, payload::text
FROM tidegate.in_flight_message
WHERE run_id = %(run)s AND number = %(number)s
ORDER BY position;
