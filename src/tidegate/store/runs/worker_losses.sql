-- Lost workers, and the runs that may have caused the losses.

-- name: last_owner — The last owner of a lease; null if it was released.
SELECT owner FROM tidegate.lease WHERE kind = %(kind)s AND key = %(key)s;

-- name: count_losses — Count the loss of a worker for the run that it processed alone.
-- Records of several runs prove nothing about any of them; of several tasks the first gets the count.
UPDATE tidegate.isolated_run
SET
    losses = losses + (marked.runs = 1 AND task = marked.first_task)::integer, running_on = NULL,
    lost_worker = CASE WHEN marked.runs = 1 THEN %(worker)s END
FROM (
    SELECT count(DISTINCT run_id) AS runs, min(task) AS first_task
    FROM tidegate.isolated_run
    WHERE running_on = %(worker)s
) AS marked
WHERE running_on = %(worker)s;

-- name: lost_with — The runs that a lost worker processed alone, with their total losses.
SELECT run.id, run.name, isolated_run.task, isolated_run.error, total.losses
FROM tidegate.isolated_run
JOIN tidegate.run ON run.id = isolated_run.run_id
CROSS JOIN LATERAL (
    SELECT sum(every.losses)::integer AS losses
    FROM tidegate.isolated_run AS every
    WHERE every.run_id = isolated_run.run_id
) AS total
WHERE isolated_run.lost_worker = %(worker)s
ORDER BY run.id, isolated_run.task;

-- name: isolate_all — Isolate all open runs with unread messages at a task.
INSERT INTO tidegate.isolated_run (run_id, task)
SELECT DISTINCT run.id, channel.to_task
FROM tidegate.run
JOIN tidegate.channel ON channel.run_id = run.id
JOIN tidegate.cursor ON cursor.channel_id = channel.id
WHERE run.pipeline = %(pipeline)s AND run.state = 'open' AND channel.to_task = %(task)s
    AND channel.sent > channel.read_at_least AND channel.sent > cursor.seq
ON CONFLICT DO NOTHING;

-- name: isolated_runs_of — The isolated open runs of a task, with their total losses.
-- A run that has lost a worker in one task is isolated in all tasks.
SELECT run.id, sum(isolated_run.losses)::integer
FROM tidegate.isolated_run
JOIN tidegate.run ON run.id = isolated_run.run_id
WHERE run.pipeline = %(pipeline)s AND run.state = 'open'
GROUP BY run.id
HAVING bool_or(isolated_run.task = %(task)s) OR sum(isolated_run.losses) > 0;

-- name: begin_isolation — Record that a worker processes a run alone.
INSERT INTO tidegate.isolated_run AS known (run_id, task, running_on)
SELECT run.id, given.task, %(worker)s
FROM tidegate.run, unnest(%(tasks)s::text[]) AS given (task)
WHERE run.id = %(run)s
ON CONFLICT (run_id, task) DO UPDATE SET running_on = excluded.running_on, error = NULL;

-- name: end_isolation — Remove the record after the worker has processed the run.
DELETE FROM tidegate.isolated_run
WHERE run_id = %(run)s AND task = ANY(%(tasks)s) AND running_on = %(worker)s;

-- name: drop_isolations — Remove the records of a worker that continues under another name.
UPDATE tidegate.isolated_run SET running_on = NULL WHERE running_on = %(worker)s;

-- name: report — Store the error of a worker that is about to end.
UPDATE tidegate.isolated_run SET error = %(error)s WHERE running_on = %(worker)s;
