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

COMMENT ON TABLE tidegate.alias_switch IS
    'Every switch of an alias to an index, who made it, and how stale the index was then.';
