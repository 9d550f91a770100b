-- What has happened to runs of flows, and what they wait for; written by triggers and by parking.

-- name: events — What happened to a run behind an event.
SELECT id, run_id, at, kind, name, detail
FROM tidegate.flow_event
WHERE run_id = %(run)s AND id > %(after)s
ORDER BY id
LIMIT %(most)s;

-- name: waits — What the tasks of a run wait for.
SELECT step, position, waiting_since, seconds_waited, wait_until, key, value::text, target_key,
    target::text, writer, seconds_since_written, CASE WHEN key IS NULL THEN begun.name END
FROM tidegate.flow_waits
LEFT JOIN (
    SELECT link.flow_run_id AS run_id, of_link.name AS step, link.position, link.name
    FROM tidegate.flow_pipeline AS link
    JOIN tidegate.flow_step AS of_link ON of_link.id = link.step_id
    WHERE link.flow_run_id = %(run)s AND NOT link.is_settled
) AS begun USING (run_id, step, position)
WHERE run_id = %(run)s AND NOT is_target
ORDER BY position, step, key
LIMIT %(most)s;

-- name: holdings — Which workers have tasks of a run in hand.
SELECT owner, substr(queue, strpos(queue, '/') + 1), count(*)
FROM tidegate.flow_task
WHERE state = 'claimed' AND run_id = %(run)s
GROUP BY 1, 2
ORDER BY 1, 2;
