ALTER TABLE tidegate.run ADD COLUMN checkpoints jsonb;

ALTER TABLE tidegate.run ADD COLUMN lineage bigint[] NOT NULL DEFAULT '{}';

ALTER TABLE tidegate.source ADD COLUMN injected bigint NOT NULL DEFAULT 0;

ALTER TABLE tidegate.chunk ADD COLUMN behind bigint NOT NULL DEFAULT 0;

ALTER TABLE tidegate.channel ADD COLUMN pruned bigint NOT NULL DEFAULT 0;

CREATE TABLE tidegate.checkpoint (
    run_id bigint NOT NULL REFERENCES tidegate.run ON DELETE CASCADE,
    number bigint NOT NULL CHECK (number > 0),
    id uuid NOT NULL,
    epoch bigint NOT NULL CHECK (epoch >= 0 AND epoch < 281474976710656),
    unpublished boolean NOT NULL DEFAULT false,
    state text NOT NULL DEFAULT 'triggered' CHECK (
        state IN ('triggered', 'injected', 'aligning', 'acknowledged', 'committed', 'aborted')
    ),
    triggered_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    injected_at timestamptz,
    aligning_at timestamptz,
    acknowledged_at timestamptz,
    settled_at timestamptz,
    reason text,
    offender text,
    manifest jsonb,
    PRIMARY KEY (run_id, number)
);

CREATE UNIQUE INDEX checkpoint_open ON tidegate.checkpoint (run_id)
    WHERE state NOT IN ('committed', 'aborted');

CREATE TABLE tidegate.acknowledgement (
    run_id bigint NOT NULL,
    number bigint NOT NULL,
    task text NOT NULL,
    acknowledged_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    waited double precision NOT NULL DEFAULT 0,
    last text,
    bytes bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (run_id, number, task),
    FOREIGN KEY (run_id, number) REFERENCES tidegate.checkpoint ON DELETE CASCADE
);

CREATE TABLE tidegate.state (
    run_id bigint NOT NULL REFERENCES tidegate.run ON DELETE CASCADE,
    task text NOT NULL,
    number bigint NOT NULL,
    place integer NOT NULL,
    input integer NOT NULL,
    payload jsonb NOT NULL,
    files jsonb NOT NULL DEFAULT '[]',
    removed bigint,
    PRIMARY KEY (run_id, task, number, place)
);

CREATE TABLE tidegate.garbage (
    run_id bigint NOT NULL REFERENCES tidegate.run ON DELETE CASCADE,
    file text NOT NULL,
    noted_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (run_id, file)
);

CREATE TABLE tidegate.output (
    run_id bigint NOT NULL,
    number bigint NOT NULL,
    place integer NOT NULL,
    payload jsonb NOT NULL,
    files jsonb NOT NULL DEFAULT '[]',
    PRIMARY KEY (run_id, number, place),
    FOREIGN KEY (run_id, number) REFERENCES tidegate.checkpoint ON DELETE CASCADE
);
