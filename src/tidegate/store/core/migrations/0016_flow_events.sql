-- What runs of flows wait for and what has happened to them, for SQL, the command line and metrics.

ALTER TABLE tidegate.flow_task ADD COLUMN wait_gate jsonb;

-- A task waits from when it was first parked until it has gone on, also while it looks again.
CREATE INDEX flow_task_waiting ON tidegate.flow_task (run_id, position)
    WHERE wait_number IS NOT NULL AND state IN ('ready', 'held', 'claimed', 'parked');

CREATE INDEX flow_run_open ON tidegate.flow_run (id) WHERE closed_at IS NULL;

-- What has happened to a run, for people and for log shippers; removed with it. Rows of one run
-- are committed in the order of their ids, as whoever moves a run holds its row.
CREATE TABLE tidegate.flow_event (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run_id bigint NOT NULL REFERENCES tidegate.flow_run ON DELETE CASCADE,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    kind text NOT NULL CHECK (kind IN ('run', 'step', 'policy', 'signal', 'state', 'wait')),
    name text NOT NULL,                    -- of the flow, the step, or the key of the state
    detail jsonb NOT NULL
);

CREATE INDEX flow_event_run ON tidegate.flow_event (run_id, id);

COMMENT ON TABLE tidegate.flow_event IS
    'What has happened to runs: states of runs and steps, failure policies, signals, writes of the '
    'state (of a monotonic key at most one in a second), and waits of steps, begun and ended.';
