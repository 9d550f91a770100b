CREATE TABLE tidegate.release (
    run_id bigint NOT NULL REFERENCES tidegate.run ON DELETE CASCADE,
    task text NOT NULL,
    released_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (run_id, task)
);

CREATE INDEX channel_declared ON tidegate.channel (to_task, run_id) WHERE declared IS NOT NULL;

CREATE INDEX run_to_reclaim ON tidegate.run (id) WHERE state <> 'open' AND reclaimed_at IS NULL;
