-- Runs: begun once, closed once, removed with everything of theirs.

-- name: begun_before — The run that this very request has begun.
SELECT id, pipeline, name, incarnation, state, cause, request_digest
FROM tidegate.run
WHERE request = %(request)s;

-- name: begin_run — Open a run under a name that no open run has; a name used before counts up.
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

-- name: open_channels — Give a run its channels, each with a cursor at its beginning.
WITH opened AS (
    INSERT INTO tidegate.channel (run_id, from_task, to_task, input)
    SELECT %(run)s, from_task, to_task, input
    FROM unnest(%(from_tasks)s::text[], %(to_tasks)s::text[], %(inputs)s::integer[])
        AS channel (from_task, to_task, input)
    RETURNING id
)
INSERT INTO tidegate.cursor (channel_id)
SELECT id FROM opened;

-- name: open_sources — Give a run its sources.
INSERT INTO tidegate.source (run_id, name)
SELECT %(run)s, name FROM unnest(%(sources)s::text[]) AS source (name);

-- name: find_run — The last run of a name, whatever became of it.
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

-- name: tardy_runs — The open runs of a pipeline that somebody wants to be warned of.
SELECT id, pipeline, name, incarnation, state, cause
FROM tidegate.run
WHERE pipeline = %(pipeline)s AND state = 'open' AND warn_at <= clock_timestamp()
ORDER BY warn_at;

-- name: plan_of — What the tasks of a run are made from.
SELECT plan FROM tidegate.run WHERE id = %(run)s;

-- name: hold — A run's state; it stays as it is until the commit.
SELECT state, cause FROM tidegate.run WHERE id = %(run)s FOR SHARE;

-- name: close — Close a run that is open.
UPDATE tidegate.run
SET state = %(state)s, cause = %(cause)s, closed_at = clock_timestamp()
WHERE id = %(run)s AND state = 'open';

-- name: tasks_of — The tasks that read channels of these runs, with their pipelines; null for a run without.
SELECT DISTINCT run.pipeline, channel.to_task
FROM tidegate.run
LEFT JOIN tidegate.channel ON channel.run_id = run.id
WHERE run.id = ANY(%(runs)s::bigint[]);

-- name: flows_of — The flows with a task that has begun one of these runs.
SELECT DISTINCT flow_run.flow
FROM tidegate.flow_pipeline
JOIN tidegate.flow_run ON flow_run.id = flow_pipeline.flow_run_id
WHERE flow_pipeline.pipeline_run_id = ANY(%(runs)s::bigint[]) AND NOT flow_pipeline.is_settled;

-- name: remove_closed — Remove runs closed some time ago, the oldest first, with their channels.
DELETE FROM tidegate.run
WHERE id IN (
    SELECT id
    FROM tidegate.run
    WHERE state <> 'open' AND closed_at <= clock_timestamp() - make_interval(secs => %(seconds)s)
    ORDER BY closed_at
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
);
