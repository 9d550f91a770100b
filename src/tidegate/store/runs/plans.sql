-- What the plans of runs consist of: told to those who want to go on under another.

-- name: record — Note what a plan consists of; one that is known is in use again.
INSERT INTO tidegate.plan (hash, nodes)
VALUES (%(hash)s, %(nodes)s)
ON CONFLICT (hash) DO UPDATE SET recorded_at = excluded.recorded_at;

-- name: recorded — What a plan consists of.
SELECT nodes FROM tidegate.plan WHERE hash = %(hash)s;

-- name: note_served — Note the plan with which a pipeline is served.
INSERT INTO tidegate.current_plan (pipeline, plan, shards)
VALUES (%(pipeline)s, %(plan)s, %(shards)s)
ON CONFLICT (pipeline) DO UPDATE
SET plan = excluded.plan, shards = excluded.shards, recorded_at = excluded.recorded_at;

-- name: served_last — The plan with which a pipeline was served last.
SELECT plan, shards FROM tidegate.current_plan WHERE pipeline = %(pipeline)s;

-- name: remove_unused — Forget plans of which neither a run nor a checkpoint is left.
DELETE FROM tidegate.plan
WHERE recorded_at < clock_timestamp() - make_interval(secs => %(seconds)s)
    AND NOT EXISTS (SELECT FROM tidegate.run WHERE run.plan = plan.hash)
    AND NOT EXISTS (
        SELECT FROM tidegate.checkpoint WHERE checkpoint.manifest ->> 'plan' = plan.hash
    );

-- name: ended_before — Which of these tasks had ended before the barrier of a checkpoint came.
SELECT task
FROM unnest(%(tasks)s::text[]) AS given (task)
WHERE NOT EXISTS (
    SELECT FROM tidegate.acknowledgement
    WHERE run_id = %(run)s AND number = %(number)s AND acknowledgement.task = given.task
)
ORDER BY task;
