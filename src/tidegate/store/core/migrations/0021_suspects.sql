-- Runs that may be what a lost worker process was lost by, until a job of theirs is done.
CREATE TABLE tidegate.suspect (
    run_id bigint NOT NULL REFERENCES tidegate.run ON DELETE CASCADE,
    task text NOT NULL,
    losses integer NOT NULL DEFAULT 0,     -- workers lost while processing this run alone
    tried_by text,                         -- the worker that processes it alone at this moment
    lost_by text,                          -- the last worker that was lost with it
    error text,                            -- what that worker reported, if it could
    PRIMARY KEY (run_id, task)
);
