-- Channels and their messages.

-- name: channels_of — The channels into and out of a task, of one run, with their cursors.
SELECT channel.id, from_task, to_task, input, cursor.seq
FROM tidegate.channel
JOIN tidegate.cursor ON cursor.channel_id = channel.id
WHERE run_id = %(run)s AND (to_task = %(task)s OR from_task = %(task)s)
ORDER BY channel.id;

-- name: find_channels — Channels by name; locks out other senders until the commit.
SELECT channel.id, channel.from_task, channel.to_task, channel.input
FROM tidegate.channel
JOIN unnest(%(from_tasks)s::text[], %(to_tasks)s::text[], %(inputs)s::integer[])
    AS given (from_task, to_task, input) USING (from_task, to_task, input)
WHERE channel.run_id = %(run)s
ORDER BY channel.id
FOR NO KEY UPDATE OF channel;

-- name: unread — The next messages on the channels into a task, after those fetched already.
-- Channels share the total equally: the first message of each comes before any second one.
WITH ready AS MATERIALIZED (
    SELECT
        run.id AS run_id, channel.id AS channel_id, coalesce(known.seq, cursor.seq) AS start,
        count(*) OVER () AS number
    FROM tidegate.run
    JOIN tidegate.channel ON channel.run_id = run.id
    JOIN tidegate.cursor ON cursor.channel_id = channel.id
    LEFT JOIN unnest(%(channels)s::bigint[], %(fetched)s::bigint[]) AS known (channel_id, seq)
        ON known.channel_id = channel.id
    WHERE run.pipeline = %(pipeline)s AND run.state = 'open' AND channel.to_task = %(task)s
        AND channel.sent > channel.read_at_least AND channel.sent > coalesce(known.seq, cursor.seq)
),
chosen AS (
    SELECT ready.run_id, ready.channel_id, next.seq, next.kind, next.payload
    FROM ready
    CROSS JOIN LATERAL (
        SELECT message.seq, message.kind, message.payload
        FROM tidegate.message
        WHERE message.channel_id = ready.channel_id AND message.seq > ready.start
        ORDER BY message.seq
        LIMIT least(%(limit)s, ceil(%(total)s / ready.number::float8)::bigint)
    ) AS next
    ORDER BY next.seq - ready.start, ready.channel_id
    LIMIT %(total)s
)
SELECT
    run.id, run.pipeline, run.name, run.incarnation, run.state, run.cause,
    chosen.channel_id, chosen.seq, chosen.kind, chosen.payload::text
FROM chosen
JOIN tidegate.run ON run.id = chosen.run_id
ORDER BY run.id, chosen.channel_id, chosen.seq;

-- name: last_watermarks — The last watermark on each channel up to a position.
SELECT channel.id, coalesce(last.time, channel.watermark)
FROM unnest(%(channels)s::bigint[], %(positions)s::bigint[]) AS given (channel_id, seq)
JOIN tidegate.channel ON channel.id = given.channel_id
LEFT JOIN LATERAL (
    SELECT (payload ->> 'time')::bigint AS time
    FROM tidegate.message
    WHERE channel_id = given.channel_id AND seq <= given.seq AND kind = 'watermark'
    ORDER BY seq DESC
    LIMIT 1
) AS last ON true
WHERE coalesce(last.time, channel.watermark) IS NOT NULL;

-- name: append — Append messages to open runs; returns how many were for those and how many were new.
-- Known ids are skipped. END gets the number of messages before it on its channel.
WITH offered AS (
    SELECT
        given.*,
        EXISTS (
            SELECT FROM tidegate.message
            WHERE message.channel_id = given.channel_id AND message.id = given.id
        ) AS is_known
    FROM jsonb_to_recordset(%(messages)s::jsonb) AS given (
        channel_id bigint, id uuid, kind text, payload jsonb, is_end boolean, position bigint
    )
    JOIN tidegate.channel ON channel.id = given.channel_id
    JOIN tidegate.run ON run.id = channel.run_id
    WHERE run.state = 'open'
),
fresh AS (
    SELECT channel_id, count(*) AS number, bool_or(is_end) AS is_ended
    FROM offered
    WHERE NOT is_known
    GROUP BY channel_id
),
reserved AS (
    UPDATE tidegate.channel
    SET sent = channel.sent + fresh.number,
        declared = CASE WHEN is_ended THEN channel.sent + fresh.number - 1 ELSE declared END
    FROM fresh
    WHERE channel.id = fresh.channel_id
    RETURNING channel.id AS channel_id, channel.sent - fresh.number AS before
),
numbered AS (
    SELECT offered.*, before + row_number() OVER (PARTITION BY channel_id ORDER BY position) AS seq
    FROM offered
    JOIN reserved USING (channel_id)
    WHERE NOT is_known
),
added AS (
    INSERT INTO tidegate.message (channel_id, seq, id, kind, payload)
    SELECT
        channel_id, seq, id, kind,
        CASE WHEN is_end
            THEN payload || jsonb_build_object('count', seq - 1)
            ELSE payload
        END
    FROM numbered
    RETURNING channel_id
)
SELECT (SELECT count(*) FROM offered), (SELECT count(*) FROM added);
