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

-- name: find_lane — One lane and its run's state; both stay as they are until the commit.
SELECT lane.id, run.state
FROM tidegate.lane
JOIN tidegate.run ON run.id = lane.run_id
WHERE run_id = %(run)s AND from_task = %(from_task)s AND to_task = %(to_task)s
    AND input = %(input)s
FOR NO KEY UPDATE OF lane
FOR SHARE OF run;

-- name: unread — The next messages on every lane into a task, behind what was fetched already.
SELECT
    run.id, run.pipeline, run.name, run.incarnation, run.state,
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

-- name: known_ids — Which of these messages a lane has already.
SELECT id FROM tidegate.message WHERE lane_id = %(lane)s AND id = ANY(%(ids)s::uuid[]);

-- name: reserve — Take the next sequence numbers of lanes; says the last one taken of each.
UPDATE tidegate.lane
SET sent = sent + wanted.number
FROM (
    SELECT lane_id, count(*) AS number
    FROM unnest(%(lanes)s::bigint[]) AS wanted (lane_id)
    GROUP BY lane_id
) AS wanted
WHERE lane.id = wanted.lane_id
RETURNING lane.id, lane.sent;

-- name: append — Put messages on lanes, under the numbers that were reserved for them.
INSERT INTO tidegate.message (lane_id, seq, id, kind, payload)
SELECT lane_id, seq, id, kind, payload::jsonb
FROM unnest(
    %(lanes)s::bigint[], %(seqs)s::bigint[], %(ids)s::uuid[], %(kinds)s::text[],
    %(payloads)s::text[]
) AS message (lane_id, seq, id, kind, payload);
