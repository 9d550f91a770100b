-- Lost workers: which runs may be the cause, and how many workers each has cost.

-- name: last_owner — Who held a lease last and did not release it; null if it was released.
SELECT owner FROM tidegate.lease WHERE kind = %(kind)s AND key = %(key)s;

-- name: count_losses — A worker is lost: that counts against the run that it processed alone.
-- Marks of several runs prove nothing against any of them; of several tasks one has the count.
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

-- name: lost_with — The runs that a lost worker processed alone, with all workers that each cost.
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

-- name: suspect_all — The open runs with unread messages may be what a task's worker was lost by.
INSERT INTO tidegate.isolated_run (run_id, task)
SELECT DISTINCT run.id, channel.to_task
FROM tidegate.run
JOIN tidegate.channel ON channel.run_id = run.id
JOIN tidegate.cursor ON cursor.channel_id = channel.id
WHERE run.pipeline = %(pipeline)s AND run.state = 'open' AND channel.to_task = %(task)s
    AND channel.sent > channel.read_at_least AND channel.sent > cursor.seq
ON CONFLICT DO NOTHING;

-- name: suspects_of — The suspect open runs of a task, each with the workers that it has cost.
-- What has cost a worker in one task is a suspect in all others as well.
SELECT run.id, sum(isolated_run.losses)::integer
FROM tidegate.isolated_run
JOIN tidegate.run ON run.id = isolated_run.run_id
WHERE run.pipeline = %(pipeline)s AND run.state = 'open'
GROUP BY run.id
HAVING bool_or(isolated_run.task = %(task)s) OR sum(isolated_run.losses) > 0;

-- name: begin_trial — A worker processes a run alone: should it be lost now, that run is the cause.
INSERT INTO tidegate.isolated_run AS known (run_id, task, running_on)
SELECT run.id, given.task, %(worker)s
FROM tidegate.run, unnest(%(tasks)s::text[]) AS given (task)
WHERE run.id = %(run)s
ON CONFLICT (run_id, task) DO UPDATE SET running_on = excluded.running_on, error = NULL;

-- name: end_trial — The worker has survived it.
DELETE FROM tidegate.isolated_run
WHERE run_id = %(run)s AND task = ANY(%(tasks)s) AND running_on = %(worker)s;

-- name: drop_trials — A worker goes on under another name: nothing of its earlier one was lost.
UPDATE tidegate.isolated_run SET running_on = NULL WHERE running_on = %(worker)s;

-- name: report — What a worker that is about to be lost says of it.
UPDATE tidegate.isolated_run SET error = %(error)s WHERE running_on = %(worker)s;
