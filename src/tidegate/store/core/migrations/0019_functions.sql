CREATE TABLE tidegate.functions (
    release text NOT NULL,                 -- of Tidegate, that has made them
    digest text NOT NULL,                  -- of their files
    made_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
