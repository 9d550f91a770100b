-- Change logs, in the database of their table.
-- {words} are identifiers, inserted by `tidegate.store.cutover.change_log`.

-- name: head — The first transaction after all that have ended.
SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint;

-- name: bound — The first transaction that has not ended.
SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint;

-- name: changes — The next changes that can be read; at least one row, for the bound.
SELECT it.xid::text::bigint, it.number, it.key, pg_snapshot_xmin(now.snapshot)::text::bigint
FROM (SELECT pg_current_snapshot() AS snapshot) AS now
LEFT JOIN LATERAL (
    SELECT xid, number, key
    FROM {log}
    WHERE (xid, number) > (%(offset)s::text::xid8, %(after)s)
    AND xid < pg_snapshot_xmin(now.snapshot)
    ORDER BY xid, number
    LIMIT %(most)s
) AS it ON true
ORDER BY it.xid, it.number;

-- name: pending — The keys that were changed by transactions from an offset on.
SELECT DISTINCT key
FROM {log}
WHERE xid >= %(offset)s::text::xid8
AND to_jsonb(key) IN (SELECT jsonb_array_elements(%(keys)s::jsonb));

-- name: lag — The number of changes after an offset, and the age of the oldest.
SELECT count(*), coalesce(extract(epoch FROM clock_timestamp() - min(made_at)), 0)::float8
FROM (
    SELECT made_at FROM {log}
    WHERE xid >= %(offset)s::text::xid8
    ORDER BY xid, number
    LIMIT %(most)s
) AS it;

-- name: holder — The oldest running transaction, which determines the bound.
SELECT pid, coalesce(application_name, ''), coalesce(state, 'of another role'), xact_start, NULL
FROM pg_stat_activity
WHERE backend_xid = pg_snapshot_xmin(pg_current_snapshot())::xid
UNION ALL
SELECT NULL, '', '', prepared, gid
FROM pg_prepared_xacts
WHERE transaction = pg_snapshot_xmin(pg_current_snapshot())::xid;

-- name: register — Register a consumer; a repetition changes nothing.
INSERT INTO tidegate_log.consumer (log, name, applied)
VALUES (%(log)s, %(consumer)s, pg_snapshot_xmin(pg_current_snapshot()))
ON CONFLICT (log, name) DO NOTHING;

-- name: start_offset — The offset from which changes are retained for a consumer.
SELECT applied::text::bigint FROM tidegate_log.consumer
WHERE log = %(log)s AND name = %(consumer)s;

-- name: has_consumers — Whether any log was created in this database.
SELECT WHERE to_regclass('tidegate_log.consumer') IS NOT NULL;

-- name: consumers — The consumers of a log, by offset.
SELECT name, applied::text::bigint FROM tidegate_log.consumer
WHERE log = %(log)s
ORDER BY applied, name;

-- name: commit_offset — Commit the offset of a consumer.
UPDATE tidegate_log.consumer
SET applied = greatest(applied, %(offset)s::text::xid8), committed_at = clock_timestamp()
WHERE log = %(log)s AND name = %(consumer)s;

-- name: remove_consumer — Stop retaining changes for a consumer.
DELETE FROM tidegate_log.consumer WHERE log = %(log)s AND name = %(consumer)s;

-- name: trim — Remove some of the changes that all consumers have consumed.
DELETE FROM {log}
WHERE (xid, number) IN (
    SELECT xid, number FROM {log}
    WHERE xid < (SELECT min(applied) FROM tidegate_log.consumer WHERE log = %(log)s)
    ORDER BY xid, number
    LIMIT %(most)s
    FOR UPDATE SKIP LOCKED);

-- name: rows_within — The rows of a range, with the last change of each.
SELECT {columns}, coalesce((
    SELECT max(number) FROM {log} WHERE key = ARRAY[{key}]), 0), false
FROM {table} AS it
WHERE {within};

-- name: rows_of — The rows of some keys, with the last change of each; also of deleted ones.
SELECT {key_texts}, {others}coalesce((
    SELECT max(number) FROM {log} WHERE key = ARRAY[{key_texts}]), 0), it.{first} IS NULL
FROM (VALUES {wanted}) AS wanted ({names})
LEFT JOIN {table} AS it ON {same};
