-- Durations of alignments.

-- name: alignments_of — By checkpoint and task: the duration, and the upstream task that came last.
SELECT acknowledgement.number, task, alignment_seconds, coalesce(last_upstream, '')
FROM tidegate.acknowledgement
JOIN tidegate.checkpoint USING (run_id, number)
WHERE run_id = %(run)s AND state = 'committed' AND last_upstream IS NOT NULL
ORDER BY acknowledgement.number, task;
