-- The contents of plans, compared when a run is restored under another plan.

-- name: record — Record the contents of a plan, or that it is used again.
INSERT INTO tidegate.plan (hash, nodes)
VALUES (%(hash)s, %(nodes)s)
ON CONFLICT (hash) DO UPDATE SET recorded_at = excluded.recorded_at;

-- name: recorded — The contents of a plan.
SELECT nodes FROM tidegate.plan WHERE hash = %(hash)s;

-- name: record_served — Record the plan with which a pipeline is served.
INSERT INTO tidegate.current_plan (pipeline, plan, shards)
VALUES (%(pipeline)s, %(plan)s, %(shards)s)
ON CONFLICT (pipeline) DO UPDATE
SET plan = excluded.plan, shards = excluded.shards, recorded_at = excluded.recorded_at;

-- name: last_served — The plan with which a pipeline was served last.
SELECT plan, shards FROM tidegate.current_plan WHERE pipeline = %(pipeline)s;

-- name: remove_unused — Remove plans that no run or checkpoint names.
DELETE FROM tidegate.plan
WHERE recorded_at < clock_timestamp() - make_interval(secs => %(seconds)s)
    AND NOT EXISTS (SELECT FROM tidegate.run WHERE run.plan = plan.hash)
    AND NOT EXISTS (
        SELECT FROM tidegate.checkpoint WHERE checkpoint.manifest ->> 'plan' = plan.hash
    );

-- name: ended_before — The tasks that had ended before the barrier of a checkpoint.
SELECT task
FROM unnest(%(tasks)s::text[]) AS given (task)
WHERE NOT EXISTS (
    SELECT FROM tidegate.acknowledgement
    WHERE run_id = %(run)s AND number = %(number)s AND acknowledgement.task = given.task
)
ORDER BY task;
