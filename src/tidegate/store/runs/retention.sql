-- Retention in open runs: old checkpoints, processed messages, unused files.
-- A file that loses a reference is recorded; other references are checked before it is removed.

-- name: bounds — The oldest checkpoint, the oldest one to keep, and the oldest of the last few.
-- The last few are kept, and the last published one.
SELECT
    min(number),
    least(min(number) FILTER (WHERE position <= %(retained)s), max(number) FILTER (WHERE NOT unpublished)),
    min(number) FILTER (WHERE position <= %(retained)s)
FROM (
    SELECT number, unpublished, row_number() OVER (ORDER BY number DESC) AS position
    FROM tidegate.checkpoint
    WHERE run_id = %(run)s AND state = 'committed'
) AS checkpoint;

-- name: record_unused — Record the files that only retired checkpoints need.
INSERT INTO tidegate.unused_file (run_id, file)
SELECT %(run)s, file
FROM (
    SELECT jsonb_path_query(files, '$[*].path') #>> '{}'
    FROM tidegate.sink_output
    WHERE run_id = %(run)s
        AND (number < %(oldest)s OR (number > %(oldest)s AND number < %(recent)s))
    UNION
    SELECT jsonb_path_query(files, '$[*].path') #>> '{}'
    FROM tidegate.task_state WHERE run_id = %(run)s AND removed <= %(oldest)s
    UNION
    SELECT jsonb_path_query(payload, '$.**.files[*]') #>> '{}'
    FROM tidegate.in_flight_message
    WHERE run_id = %(run)s
        AND (number < %(oldest)s OR (number > %(oldest)s AND number < %(recent)s))
    UNION
    SELECT jsonb_array_elements_text(files)
    FROM tidegate.chunk
    WHERE run_id = %(run)s AND after_checkpoint >= %(before)s AND after_checkpoint < %(oldest)s
) AS retired (file)
ON CONFLICT DO NOTHING;

-- name: retire — Remove checkpoints before the oldest one to keep, and between it and the last few.
DELETE FROM tidegate.checkpoint
WHERE run_id = %(run)s
    AND (number < %(oldest)s OR (number > %(oldest)s AND number < %(recent)s));

-- name: drop_states — Remove state that no remaining checkpoint needs.
DELETE FROM tidegate.task_state WHERE run_id = %(run)s AND removed <= %(oldest)s;

-- name: prune — Remove messages that were processed some time ago, from the start of channels.
-- The last removed watermark is stored for restarted tasks. Messages of the last published checkpoint are
-- kept: while nothing changes, the next one consists of the same files.
WITH published AS (
    SELECT coalesce(max(number), 0) AS number
    FROM tidegate.checkpoint
    WHERE run_id = %(run)s AND state = 'committed' AND NOT unpublished
),
old AS (
    SELECT channel.id, least(
        cursor.seq,
        (SELECT coalesce(max(seq), 0) FROM tidegate.message
         WHERE channel_id = channel.id
            AND sent_at < clock_timestamp() - make_interval(secs => %(seconds)s)),
        (SELECT min(seq) - 1 FROM tidegate.message, published
         WHERE channel_id = channel.id AND kind = 'event' AND published.number > 0
            AND (payload ->> 'version')::bigint >= published.number)
    ) AS target
    FROM tidegate.channel
    JOIN tidegate.cursor ON cursor.channel_id = channel.id
    WHERE channel.run_id = %(run)s
),
advanced AS (
    UPDATE tidegate.channel
    SET pruned = old.target, watermark = coalesce((
        SELECT (payload ->> 'time')::bigint
        FROM tidegate.message
        WHERE channel_id = channel.id AND seq <= old.target AND kind = 'watermark'
        ORDER BY seq DESC
        LIMIT 1
    ), channel.watermark)
    FROM old
    WHERE channel.id = old.id AND old.target > channel.pruned
    RETURNING channel.id, channel.pruned
),
deleted AS (
    DELETE FROM tidegate.message
    USING advanced
    WHERE message.channel_id = advanced.id AND message.seq <= advanced.pruned
    RETURNING message.payload
),
recorded AS (
    INSERT INTO tidegate.unused_file (run_id, file)
    SELECT DISTINCT %(run)s::bigint, jsonb_path_query(payload, '$.**.files[*]') #>> '{}'
    FROM deleted
    ON CONFLICT DO NOTHING
)
SELECT count(*) FROM deleted;

-- name: record — Record files that will never be referenced.
INSERT INTO tidegate.unused_file (run_id, file)
SELECT given.run_id, given.file
FROM unnest(%(runs)s::bigint[], %(files)s::text[]) AS given (run_id, file)
JOIN tidegate.run ON run.id = given.run_id
ON CONFLICT DO NOTHING;

-- name: unused — Files of open runs that lost a reference some time ago.
SELECT unused_file.run_id, unused_file.file
FROM tidegate.unused_file
JOIN tidegate.run ON run.id = unused_file.run_id
WHERE run.state = 'open'
    AND unused_since < clock_timestamp() - make_interval(secs => %(seconds)s)
ORDER BY unused_file.run_id, unused_file.file
LIMIT %(limit)s;

-- name: forget — Forget files that were checked.
DELETE FROM tidegate.unused_file
USING unnest(%(runs)s::bigint[], %(files)s::text[]) AS checked (run_id, file)
WHERE unused_file.run_id = checked.run_id AND unused_file.file = checked.file;
