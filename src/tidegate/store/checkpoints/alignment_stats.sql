-- How long tasks held the barriers of checkpoints.

-- name: alignments_of — For every checkpoint of a run and every task: how long it held, who came last.
SELECT acknowledgement.number, task, alignment_seconds, coalesce(last_upstream, '')
FROM tidegate.acknowledgement
JOIN tidegate.checkpoint USING (run_id, number)
WHERE run_id = %(run)s AND state = 'committed' AND last_upstream IS NOT NULL
ORDER BY acknowledgement.number, task;
