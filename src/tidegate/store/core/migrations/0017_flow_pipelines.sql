-- With which plan each pipeline was served last, for those who begin runs and have no Spark.
CREATE TABLE tidegate.served (
    pipeline text PRIMARY KEY,
    plan text NOT NULL,
    shards integer NOT NULL,
    noted_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Runs of pipelines that tasks of flows have begun.
CREATE TABLE tidegate.flow_pipeline (
    step_id bigint NOT NULL,
    position bigint NOT NULL,
    pipeline text NOT NULL,
    name text NOT NULL,                    -- of the pipeline's run
    flow_run_id bigint NOT NULL REFERENCES tidegate.flow_run ON DELETE CASCADE,
    pipeline_run_id bigint NOT NULL,       -- no foreign key: it may be removed before the flow's
    attempt integer NOT NULL,              -- of the task, that has begun it
    is_settled boolean NOT NULL DEFAULT false,  -- nobody needs to look at it any more
    PRIMARY KEY (step_id, position, pipeline, name)
);

CREATE INDEX flow_pipeline_open ON tidegate.flow_pipeline (pipeline_run_id) WHERE NOT is_settled;

CREATE INDEX flow_pipeline_of_run ON tidegate.flow_pipeline (flow_run_id);
