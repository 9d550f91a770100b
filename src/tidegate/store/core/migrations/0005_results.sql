CREATE TABLE tidegate.result (
    run_id bigint NOT NULL REFERENCES tidegate.run ON DELETE CASCADE,
    sink text NOT NULL,
    rows bigint NOT NULL,
    batches jsonb NOT NULL,
    published_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (run_id, sink)
);
