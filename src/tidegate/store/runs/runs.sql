-- Runs: started once, closed once, removed with all their rows.

-- name: run_of_request — The run that was started by this request.
SELECT id, pipeline, name, incarnation, state, cause, request_digest
FROM tidegate.run
WHERE request = %(request)s;

-- name: begin_run — Open a run; no row if the name is in use. A reused name gets the next incarnation.
INSERT INTO tidegate.run
    (pipeline, name, incarnation, plan, warn_at, deadline_at, request, request_digest)
SELECT
    %(pipeline)s, %(name)s, coalesce(max(incarnation), 0) + 1, %(plan)s,
    clock_timestamp() + make_interval(secs => %(warn_after)s),
    clock_timestamp() + make_interval(secs => %(deadline)s),
    %(request)s, %(body)s
FROM tidegate.run
WHERE pipeline = %(pipeline)s AND name = %(name)s
ON CONFLICT DO NOTHING
RETURNING id, pipeline, name, incarnation, state, cause;

-- name: open_channels — Create the channels of a run, each with a cursor at the start.
WITH opened AS (
    INSERT INTO tidegate.channel (run_id, from_task, to_task, input)
    SELECT %(run)s, from_task, to_task, input
    FROM unnest(%(from_tasks)s::text[], %(to_tasks)s::text[], %(inputs)s::integer[])
        AS channel (from_task, to_task, input)
    RETURNING id
)
INSERT INTO tidegate.cursor (channel_id)
SELECT id FROM opened;

-- name: open_sources — Create the sources of a run.
INSERT INTO tidegate.source (run_id, name)
SELECT %(run)s, name FROM unnest(%(sources)s::text[]) AS source (name);

-- name: find_run — The latest run with this name, in any state.
SELECT id, pipeline, name, incarnation, state, cause
FROM tidegate.run
WHERE pipeline = %(pipeline)s AND name = %(name)s
ORDER BY incarnation DESC
LIMIT 1;

-- name: open_runs — The open runs of a pipeline, the oldest first.
SELECT id, pipeline, name, incarnation, state, cause
FROM tidegate.run
WHERE pipeline = %(pipeline)s AND state = 'open'
ORDER BY id;

-- name: overdue_runs — The open runs of a pipeline whose deadline has passed.
SELECT id, pipeline, name, incarnation, state, cause
FROM tidegate.run
WHERE pipeline = %(pipeline)s AND state = 'open' AND deadline_at <= clock_timestamp()
ORDER BY deadline_at;

-- name: late_runs — The open runs of a pipeline whose warning time has passed.
SELECT id, pipeline, name, incarnation, state, cause
FROM tidegate.run
WHERE pipeline = %(pipeline)s AND state = 'open' AND warn_at <= clock_timestamp()
ORDER BY warn_at;

-- name: plan_of — The hash of a run's plan.
SELECT plan FROM tidegate.run WHERE id = %(run)s;

-- name: lock — The state of a run, locked until the commit.
SELECT state, cause FROM tidegate.run WHERE id = %(run)s FOR SHARE;

-- name: close — Close a run that is open.
UPDATE tidegate.run
SET state = %(state)s, cause = %(cause)s, closed_at = clock_timestamp()
WHERE id = %(run)s AND state = 'open';

-- name: tasks_of — The receiving tasks of these runs, with their pipelines; null for a run without tasks.
SELECT DISTINCT run.pipeline, channel.to_task
FROM tidegate.run
LEFT JOIN tidegate.channel ON channel.run_id = run.id
WHERE run.id = ANY(%(runs)s::bigint[]);

-- name: flows_of — The flows with a task that started one of these runs.
SELECT DISTINCT flow_run.flow
FROM tidegate.flow_pipeline
JOIN tidegate.flow_run ON flow_run.id = flow_pipeline.flow_run_id
WHERE flow_pipeline.pipeline_run_id = ANY(%(runs)s::bigint[]) AND NOT flow_pipeline.is_settled;

-- name: remove_closed — Remove runs that were closed some time ago, the oldest first.
DELETE FROM tidegate.run
WHERE id IN (
    SELECT id
    FROM tidegate.run
    WHERE state <> 'open' AND closed_at <= clock_timestamp() - make_interval(secs => %(seconds)s)
    ORDER BY closed_at
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
);
