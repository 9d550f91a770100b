-- What of an open run nobody needs any more: old checkpoints, messages that have had their effect, files.
-- A file that loses a name is noted; whether another names it is asked before it is removed.

-- name: bounds — The oldest checkpoint that is remembered, the oldest that stays, the oldest of the last few.
-- The last few stay, and the last one that sinks show.
SELECT
    min(number),
    least(min(number) FILTER (WHERE position <= %(retained)s), max(number) FILTER (WHERE NOT unpublished)),
    min(number) FILTER (WHERE position <= %(retained)s)
FROM (
    SELECT number, unpublished, row_number() OVER (ORDER BY number DESC) AS position
    FROM tidegate.checkpoint
    WHERE run_id = %(run)s AND state = 'committed'
) AS checkpoint;

-- name: note_retired — The files that only retired checkpoints need.
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

-- name: retire — Forget checkpoints before the oldest that stays, and those between it and the rest.
DELETE FROM tidegate.checkpoint
WHERE run_id = %(run)s
    AND (number < %(oldest)s OR (number > %(oldest)s AND number < %(recent)s));

-- name: drop_states — Remove states that no remembered checkpoint needs.
DELETE FROM tidegate.task_state WHERE run_id = %(run)s AND removed <= %(oldest)s;

-- name: prune — Remove messages that have had their effect some time ago, from the front of channels.
-- What the last watermark said is noted: whoever begins again looks it up. What was made for the last
-- checkpoint that sinks show stays: as long as nothing changes, the next one consists of the same files.
WITH shown AS (
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
        (SELECT min(seq) - 1 FROM tidegate.message, shown
         WHERE channel_id = channel.id AND kind = 'event' AND shown.number > 0
            AND (payload ->> 'version')::bigint >= shown.number)
    ) AS target
    FROM tidegate.channel
    JOIN tidegate.cursor ON cursor.channel_id = channel.id
    WHERE channel.run_id = %(run)s
),
noted AS (
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
gone AS (
    DELETE FROM tidegate.message
    USING noted
    WHERE message.channel_id = noted.id AND message.seq <= noted.pruned
    RETURNING message.payload
),
kept AS (
    INSERT INTO tidegate.unused_file (run_id, file)
    SELECT DISTINCT %(run)s::bigint, jsonb_path_query(payload, '$.**.files[*]') #>> '{}'
    FROM gone
    ON CONFLICT DO NOTHING
)
SELECT count(*) FROM gone;

-- name: note — Files that will never have a name.
INSERT INTO tidegate.unused_file (run_id, file)
SELECT given.run_id, given.file
FROM unnest(%(runs)s::bigint[], %(files)s::text[]) AS given (run_id, file)
JOIN tidegate.run ON run.id = given.run_id
ON CONFLICT DO NOTHING;

-- name: noted — Files of open runs that have lost a name some time ago.
SELECT unused_file.run_id, unused_file.file
FROM tidegate.unused_file
JOIN tidegate.run ON run.id = unused_file.run_id
WHERE run.state = 'open'
    AND unused_since < clock_timestamp() - make_interval(secs => %(seconds)s)
ORDER BY unused_file.run_id, unused_file.file
LIMIT %(limit)s;

-- name: forget — These were looked at.
DELETE FROM tidegate.unused_file
USING unnest(%(runs)s::bigint[], %(files)s::text[]) AS seen (run_id, file)
WHERE unused_file.run_id = seen.run_id AND unused_file.file = seen.file;
