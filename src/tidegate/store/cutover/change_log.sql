-- Logs of changes, in the database of the table whose changes they are.
-- {words} are names, put in by `tidegate.store.cutover.change_log`.

-- name: head — The first transaction behind all that have ended.
SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint;

-- name: bound — The first transaction that has not ended.
SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint;

-- name: changes — The next changes that can be read; one row in any case, for the bound.
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

-- name: pending — Which keys were changed by transactions from an offset on.
SELECT DISTINCT key
FROM {log}
WHERE xid >= %(offset)s::text::xid8
AND to_jsonb(key) IN (SELECT jsonb_array_elements(%(keys)s::jsonb));

-- name: lag — What is not behind an offset: how much, and how old the oldest of it is.
SELECT count(*), coalesce(extract(epoch FROM clock_timestamp() - min(made_at)), 0)::float8
FROM (
    SELECT made_at FROM {log}
    WHERE xid >= %(offset)s::text::xid8
    ORDER BY xid, number
    LIMIT %(most)s
) AS it;

-- name: holder — The oldest transaction that is running: the one that the bound is at.
SELECT pid, coalesce(application_name, ''), coalesce(state, 'of another role'), xact_start, NULL
FROM pg_stat_activity
WHERE backend_xid = pg_snapshot_xmin(pg_current_snapshot())::xid
UNION ALL
SELECT NULL, '', '', prepared, gid
FROM pg_prepared_xacts
WHERE transaction = pg_snapshot_xmin(pg_current_snapshot())::xid;

-- name: register — Keep from now on what a follower will need; nothing changes when that is done.
INSERT INTO tidegate_log.follower (log, name, applied)
VALUES (%(log)s, %(follower)s, pg_snapshot_xmin(pg_current_snapshot()))
ON CONFLICT (log, name) DO NOTHING;

-- name: registered — From where on everything is kept for a follower.
SELECT applied::text::bigint FROM tidegate_log.follower
WHERE log = %(log)s AND name = %(follower)s;

-- name: has_followers — Whether any log was ever begun here.
SELECT WHERE to_regclass('tidegate_log.follower') IS NOT NULL;

-- name: followers — For whom changes are kept, those of the oldest first.
SELECT name, applied::text::bigint FROM tidegate_log.follower
WHERE log = %(log)s
ORDER BY applied, name;

-- name: tell_offset — Say how far a follower is.
UPDATE tidegate_log.follower
SET applied = greatest(applied, %(offset)s::text::xid8), told_at = clock_timestamp()
WHERE log = %(log)s AND name = %(follower)s;

-- name: forget_follower — Keep nothing for a follower any more.
DELETE FROM tidegate_log.follower WHERE log = %(log)s AND name = %(follower)s;

-- name: trim — Remove what all followers have behind them, some of it.
DELETE FROM {log}
WHERE (xid, number) IN (
    SELECT xid, number FROM {log}
    WHERE xid < (SELECT min(applied) FROM tidegate_log.follower WHERE log = %(log)s)
    ORDER BY xid, number
    LIMIT %(most)s
    FOR UPDATE SKIP LOCKED);

-- name: rows_within — The rows of a range, with the last change of each.
SELECT {columns}, coalesce((
    SELECT max(number) FROM {log} WHERE key = ARRAY[{key}]), 0), false
FROM {table} AS it
WHERE {within};

-- name: rows_of — The rows of some keys, with the last change of each; also of those that are gone.
SELECT {key_texts}, {others}coalesce((
    SELECT max(number) FROM {log} WHERE key = ARRAY[{key_texts}]), 0), it.{first} IS NULL
FROM (VALUES {wanted}) AS wanted ({names})
LEFT JOIN {table} AS it ON {same};
