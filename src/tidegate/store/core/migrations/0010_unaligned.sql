ALTER TABLE tidegate.run ADD COLUMN unaligned bigint NOT NULL DEFAULT 0;

ALTER TABLE tidegate.checkpoint ADD COLUMN patience double precision CHECK (patience >= 0);

ALTER TABLE tidegate.checkpoint ADD COLUMN unaligned boolean NOT NULL DEFAULT false;

ALTER TABLE tidegate.chunk ADD COLUMN seals jsonb NOT NULL DEFAULT '[]';

CREATE TABLE tidegate.in_flight (
    run_id bigint NOT NULL,
    number bigint NOT NULL,
    place bigint NOT NULL,
    from_task text NOT NULL,
    to_task text NOT NULL,
    input integer NOT NULL,
    kind text NOT NULL CHECK (kind IN ('event', 'watermark')),
    payload jsonb NOT NULL,
    files jsonb,
    PRIMARY KEY (run_id, number, place),
    FOREIGN KEY (run_id, number) REFERENCES tidegate.checkpoint ON DELETE CASCADE
);
