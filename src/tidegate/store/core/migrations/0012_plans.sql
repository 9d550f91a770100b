CREATE TABLE tidegate.plan (
    hash text PRIMARY KEY,
    nodes text NOT NULL,
    noted_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
