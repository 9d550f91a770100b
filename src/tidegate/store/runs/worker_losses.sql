-- Lost workers: which runs may be the cause, and how many workers each has cost.

-- name: last_owner — Who held a lease last and did not release it; null if it was released.
SELECT owner FROM tidegate.lease WHERE kind = %(kind)s AND key = %(key)s;

-- name: count_losses — A worker is lost: that counts against the run that it processed alone.
-- Marks of several runs prove nothing against any of them; of several tasks one has the count.
UPDATE tidegate.suspect
SET
    losses = losses + (marked.runs = 1 AND task = marked.first_task)::integer, tried_by = NULL,
    lost_by = CASE WHEN marked.runs = 1 THEN %(worker)s END
FROM (
    SELECT count(DISTINCT run_id) AS runs, min(task) AS first_task
    FROM tidegate.suspect
    WHERE tried_by = %(worker)s
) AS marked
WHERE tried_by = %(worker)s;

-- name: lost_with — The runs that a lost worker processed alone, with all workers that each cost.
SELECT run.id, run.name, suspect.task, suspect.error, total.losses
FROM tidegate.suspect
JOIN tidegate.run ON run.id = suspect.run_id
CROSS JOIN LATERAL (
    SELECT sum(every.losses)::integer AS losses
    FROM tidegate.suspect AS every
    WHERE every.run_id = suspect.run_id
) AS total
WHERE suspect.lost_by = %(worker)s
ORDER BY run.id, suspect.task;

-- name: suspect_all — The open runs with unread messages may be what a task's worker was lost by.
INSERT INTO tidegate.suspect (run_id, task)
SELECT DISTINCT run.id, channel.to_task
FROM tidegate.run
JOIN tidegate.channel ON channel.run_id = run.id
JOIN tidegate.cursor ON cursor.channel_id = channel.id
WHERE run.pipeline = %(pipeline)s AND run.state = 'open' AND channel.to_task = %(task)s
    AND channel.sent > channel.taken AND channel.sent > cursor.seq
ON CONFLICT DO NOTHING;

-- name: suspects_of — The suspect open runs of a task, each with the workers that it has cost.
-- What has cost a worker in one task is a suspect in all others as well.
SELECT run.id, sum(suspect.losses)::integer
FROM tidegate.suspect
JOIN tidegate.run ON run.id = suspect.run_id
WHERE run.pipeline = %(pipeline)s AND run.state = 'open'
GROUP BY run.id
HAVING bool_or(suspect.task = %(task)s) OR sum(suspect.losses) > 0;

-- name: begin_trial — A worker processes a run alone: should it be lost now, that run is the cause.
INSERT INTO tidegate.suspect AS known (run_id, task, tried_by)
SELECT run.id, given.task, %(worker)s
FROM tidegate.run, unnest(%(tasks)s::text[]) AS given (task)
WHERE run.id = %(run)s
ON CONFLICT (run_id, task) DO UPDATE SET tried_by = excluded.tried_by, error = NULL;

-- name: end_trial — The worker has survived it.
DELETE FROM tidegate.suspect
WHERE run_id = %(run)s AND task = ANY(%(tasks)s) AND tried_by = %(worker)s;

-- name: drop_trials — A worker goes on under another name: nothing of its earlier one was lost.
UPDATE tidegate.suspect SET tried_by = NULL WHERE tried_by = %(worker)s;

-- name: report — What a worker that is about to be lost says of it.
UPDATE tidegate.suspect SET error = %(error)s WHERE tried_by = %(worker)s;
