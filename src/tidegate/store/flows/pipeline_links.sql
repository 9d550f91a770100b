-- Pipeline runs that were started by tasks of flows.

-- name: lock_flow — Lock the flow run until the commit; refused when it is closed.
SELECT tidegate.flow_lock(%(run)s, 'a run of a pipeline');

-- name: lock_task — Lock the task of a claim; refused when the claim was lost.
SELECT tidegate.flow_held(%(owner)s, %(step)s, %(position)s, %(epoch)s);

-- name: submitted — The run that a task started under a name, and whether all its chunks are declared.
SELECT
    link.attempt,
    NOT EXISTS (
        SELECT FROM tidegate.source WHERE source.run_id = run.id AND source.declared IS NULL
    ),
    run.id, run.pipeline, run.name, run.incarnation, run.state, run.cause
FROM tidegate.flow_pipeline AS link
JOIN tidegate.run ON run.id = link.pipeline_run_id
WHERE link.step_id = %(step)s AND link.position = %(position)s
    AND link.pipeline = %(pipeline)s AND link.name = %(name)s;

-- name: link — Record the run that a task started.
INSERT INTO tidegate.flow_pipeline (
    step_id, position, pipeline, name, flow_run_id, pipeline_run_id, attempt
)
VALUES (
    %(step)s, %(position)s, %(pipeline)s, %(name)s, %(run)s, %(pipeline_run)s, %(attempt)s
)
ON CONFLICT (step_id, position, pipeline, name) DO UPDATE
SET pipeline_run_id = excluded.pipeline_run_id, attempt = excluded.attempt, is_settled = false;

-- name: suspend — Suspend a task until a pipeline run is closed.
SELECT tidegate.flow_suspend_for_pipeline(
    %(owner)s, %(run)s, %(step)s, %(position)s, %(epoch)s, %(pipeline)s, %(name)s,
    %(pipeline_run)s, %(number)s, %(timeout)s
);

-- name: sweep — Wake tasks whose pipeline runs are closed; returns the runs that no task needs, and why.
SELECT run.id, run.pipeline, run.name, run.incarnation, run.state, run.cause, unneeded.reason
FROM tidegate.flow_sweep_pipelines() AS unneeded
JOIN tidegate.run ON run.id = unneeded.pipeline_run_id;
