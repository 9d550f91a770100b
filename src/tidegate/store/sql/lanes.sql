-- The lanes on which messages travel from task to task.

-- name: end_runs — Close runs whose END was collected.
UPDATE tidegate.run
SET state = 'ended', closed_at = clock_timestamp()
WHERE id = ANY(%(runs)s::bigint[]) AND state = 'open';

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

-- name: unread — The next messages on every lane into a task, behind what was fetched already.
SELECT
    run.id, run.pipeline, run.name, run.incarnation, run.state, run.cause,
    lane.id, next.seq, next.kind, next.payload
FROM tidegate.run
JOIN tidegate.lane ON lane.run_id = run.id
JOIN tidegate.cursor ON cursor.lane_id = lane.id
LEFT JOIN unnest(%(lanes)s::bigint[], %(fetched)s::bigint[]) AS known (lane_id, seq)
    ON known.lane_id = lane.id
CROSS JOIN LATERAL (
    SELECT message.seq, message.kind, message.payload::text
    FROM tidegate.message
    WHERE message.lane_id = lane.id AND message.seq > coalesce(known.seq, cursor.seq)
    ORDER BY message.seq
    LIMIT %(limit)s
) AS next
WHERE run.pipeline = %(pipeline)s AND run.state = 'open' AND lane.to_task = %(task)s
    AND lane.sent > coalesce(known.seq, cursor.seq)
ORDER BY run.id, lane.id, next.seq;

-- name: last_watermarks — The last watermark on each lane up to a position.
SELECT DISTINCT ON (message.lane_id) message.lane_id, (message.payload ->> 'time')::bigint
FROM unnest(%(lanes)s::bigint[], %(positions)s::bigint[]) AS asked (lane_id, seq)
JOIN tidegate.message ON message.lane_id = asked.lane_id AND message.seq <= asked.seq
WHERE message.kind = 'watermark'
ORDER BY message.lane_id, message.seq DESC;

-- name: advance — Move cursors that stand where they are thought to stand.
UPDATE tidegate.cursor
SET seq = move.target
FROM unnest(%(lanes)s::bigint[], %(origins)s::bigint[], %(targets)s::bigint[])
    AS move (lane_id, origin, target)
WHERE cursor.lane_id = move.lane_id AND cursor.seq = move.origin
RETURNING cursor.lane_id;

-- name: cursors — Where cursors stand.
SELECT lane_id, seq FROM tidegate.cursor WHERE lane_id = ANY(%(lanes)s::bigint[]);

-- name: append — Put messages on lanes of open runs, skipping those that are there already.
WITH fresh AS (
    SELECT given.*
    FROM unnest(
        %(lanes)s::bigint[], %(ids)s::uuid[], %(kinds)s::text[], %(payloads)s::text[],
        %(ends)s::boolean[]
    ) WITH ORDINALITY AS given (lane_id, id, kind, payload, is_end, place)
    JOIN tidegate.lane ON lane.id = given.lane_id
    JOIN tidegate.run ON run.id = lane.run_id
    WHERE run.state = 'open' AND NOT EXISTS (
        SELECT FROM tidegate.message
        WHERE message.lane_id = given.lane_id AND message.id = given.id
    )
),
wanted AS (
    SELECT lane_id, count(*) AS number, bool_or(is_end) AS is_ended FROM fresh GROUP BY lane_id
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
    SELECT fresh.*, before + row_number() OVER (PARTITION BY lane_id ORDER BY place) AS seq
    FROM fresh
    JOIN reserved USING (lane_id)
)
INSERT INTO tidegate.message (lane_id, seq, id, kind, payload)
SELECT
    lane_id, seq, id, kind,
    CASE WHEN is_end
        THEN payload::jsonb || jsonb_build_object('count', seq - 1)
        ELSE payload::jsonb
    END
FROM numbered;
