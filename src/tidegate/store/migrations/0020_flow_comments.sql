-- ── What flows look like from psql ──

COMMENT ON FUNCTION tidegate.flow_begin IS
    'Begin a run of a flow; under a key that was used before, answer the run that has it. '
    'Steps: [{"number", "name", "kind": plain|map|generator|reduce, "depends_on": [names], '
    '"optional": [those that may be skipped], "needs_signal", "retries", "item_retries", '
    '"tolerated_count", "tolerated_share"}, …], each behind those that it depends on. '
    'Keys of the state: [{"name", "monotonic", "external", "writers": [steps]}, …].';

COMMENT ON TABLE tidegate.flow_run IS
    'Runs of flows: running, paused, canceling, completed, failed or canceled, and the first cause.';

COMMENT ON TABLE tidegate.flow_step IS
    'The steps of runs as they were declared when the run began, with the counters of their items.';

COMMENT ON TABLE tidegate.flow_task IS
    'Pieces of work: a step''s own (position -1) or that of an item; who has claimed it, under '
    'which epoch, and what came of it.';

COMMENT ON TABLE tidegate.flow_state IS
    'What the steps of a run coordinate by; who wrote it last. Written by flow_set_state only.';

COMMENT ON TABLE tidegate.flow_signal IS
    'One-shot input for a step, from outside. Given by the function of the same name.';

COMMENT ON VIEW tidegate.flow_progress IS
    'How far the steps of all runs are: items spawned, succeeded, failed, canceled, in flight.';

COMMENT ON TABLE tidegate.alias_switch IS
    'Every switch of an alias to an index, who made it, and how stale the index was then.';

-- ── End of comments ──
