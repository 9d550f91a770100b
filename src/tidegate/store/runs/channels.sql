-- The lanes on which messages travel from task to task.

-- name: lanes_of — The lanes into and out of a task, of one run, with their cursors.
SELECT lane.id, from_task, to_task, input, cursor.seq
FROM tidegate.lane
JOIN tidegate.cursor ON cursor.lane_id = lane.id
WHERE run_id = %(run)s AND (to_task = %(task)s OR from_task = %(task)s)
ORDER BY lane.id;

-- name: find_lanes — The lanes of these names; until the commit nobody else appends to them.
SELECT lane.id, lane.from_task, lane.to_task, lane.input
FROM tidegate.lane
JOIN unnest(%(from_tasks)s::text[], %(to_tasks)s::text[], %(inputs)s::integer[])
    AS wanted (from_task, to_task, input) USING (from_task, to_task, input)
WHERE lane.run_id = %(run)s
ORDER BY lane.id
FOR NO KEY UPDATE OF lane;

-- name: unread — The next messages on the lanes into a task, behind what was fetched already.
-- Lanes with news share the total fairly: the first message of each comes before any second.
WITH ready AS MATERIALIZED (
    SELECT
        run.id AS run_id, lane.id AS lane_id, coalesce(known.seq, cursor.seq) AS start,
        count(*) OVER () AS number
    FROM tidegate.run
    JOIN tidegate.lane ON lane.run_id = run.id
    JOIN tidegate.cursor ON cursor.lane_id = lane.id
    LEFT JOIN unnest(%(lanes)s::bigint[], %(fetched)s::bigint[]) AS known (lane_id, seq)
        ON known.lane_id = lane.id
    WHERE run.pipeline = %(pipeline)s AND run.state = 'open' AND lane.to_task = %(task)s
        AND lane.sent > lane.taken AND lane.sent > coalesce(known.seq, cursor.seq)
),
chosen AS (
    SELECT ready.run_id, ready.lane_id, next.seq, next.kind, next.payload
    FROM ready
    CROSS JOIN LATERAL (
        SELECT message.seq, message.kind, message.payload
        FROM tidegate.message
        WHERE message.lane_id = ready.lane_id AND message.seq > ready.start
        ORDER BY message.seq
        LIMIT least(%(limit)s, ceil(%(total)s / ready.number::float8)::bigint)
    ) AS next
    ORDER BY next.seq - ready.start, ready.lane_id
    LIMIT %(total)s
)
SELECT
    run.id, run.pipeline, run.name, run.incarnation, run.state, run.cause,
    chosen.lane_id, chosen.seq, chosen.kind, chosen.payload::text
FROM chosen
JOIN tidegate.run ON run.id = chosen.run_id
ORDER BY run.id, chosen.lane_id, chosen.seq;

-- name: last_watermarks — The last watermark on each lane up to a position.
SELECT lane.id, coalesce(last.time, lane.watermark)
FROM unnest(%(lanes)s::bigint[], %(positions)s::bigint[]) AS asked (lane_id, seq)
JOIN tidegate.lane ON lane.id = asked.lane_id
LEFT JOIN LATERAL (
    SELECT (payload ->> 'time')::bigint AS time
    FROM tidegate.message
    WHERE lane_id = asked.lane_id AND seq <= asked.seq AND kind = 'watermark'
    ORDER BY seq DESC
    LIMIT 1
) AS last ON true
WHERE coalesce(last.time, lane.watermark) IS NOT NULL;

-- name: append — Put messages on lanes of open runs: how many were for those, how many were put.
-- An id that a lane knows is not put again. An END says how many came before it on its lane.
WITH offered AS (
    SELECT
        given.*,
        EXISTS (
            SELECT FROM tidegate.message
            WHERE message.lane_id = given.lane_id AND message.id = given.id
        ) AS is_known
    FROM jsonb_to_recordset(%(messages)s::jsonb) AS given (
        lane_id bigint, id uuid, kind text, payload jsonb, is_end boolean, place bigint
    )
    JOIN tidegate.lane ON lane.id = given.lane_id
    JOIN tidegate.run ON run.id = lane.run_id
    WHERE run.state = 'open'
),
wanted AS (
    SELECT lane_id, count(*) AS number, bool_or(is_end) AS is_ended
    FROM offered
    WHERE NOT is_known
    GROUP BY lane_id
),
reserved AS (
    UPDATE tidegate.lane
    SET sent = lane.sent + wanted.number,
        declared = CASE WHEN is_ended THEN lane.sent + wanted.number - 1 ELSE declared END
    FROM wanted
    WHERE lane.id = wanted.lane_id
    RETURNING lane.id AS lane_id, lane.sent - wanted.number AS before
),
numbered AS (
    SELECT offered.*, before + row_number() OVER (PARTITION BY lane_id ORDER BY place) AS seq
    FROM offered
    JOIN reserved USING (lane_id)
    WHERE NOT is_known
),
added AS (
    INSERT INTO tidegate.message (lane_id, seq, id, kind, payload)
    SELECT
        lane_id, seq, id, kind,
        CASE WHEN is_end
            THEN payload || jsonb_build_object('count', seq - 1)
            ELSE payload
        END
    FROM numbered
    RETURNING lane_id
)
SELECT (SELECT count(*) FROM offered), (SELECT count(*) FROM added);
