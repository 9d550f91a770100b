-- Every claim reads past the entries of tasks that were ready before, until they are vacuumed. That
-- must not wait for a share of all tasks that are kept, nor leave the entries where they are.
ALTER TABLE tidegate.flow_task SET (
    autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_scale_factor = 0.01,
    vacuum_index_cleanup = on
);
