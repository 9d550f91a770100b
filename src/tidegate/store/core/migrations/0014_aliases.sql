-- ── Aliases: by which name readers know an index, and which one it is ──

-- Every switch of an alias; the last one is what it stands for. Written with the switch itself.
CREATE TABLE tidegate.alias_switch (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    alias text NOT NULL,
    index text NOT NULL,                   -- what it stands for since
    previous text,                         -- what it stood for before; null: it was not there
    run_id bigint,                         -- the run of a flow that did it; null: a person
    switched_by text NOT NULL,
    pending bigint,                        -- changes that were not in the index at that moment
    staleness double precision,            -- seconds since the oldest of those was made
    switched_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE INDEX alias_switch_alias ON tidegate.alias_switch (alias, id);
