-- Logs of changes, in the database of the table whose changes they are.
-- {words} are names, put in by `tidegate.store.change_log`.

-- name: take_turns — Let one at a time prepare logs.
SELECT pg_advisory_xact_lock(hashtext('tidegate_log'));

-- name: create_schema — The place of all logs.
CREATE SCHEMA IF NOT EXISTS {schema};

-- name: create_followers — Who reads logs, and how far each is.
CREATE TABLE IF NOT EXISTS {schema}.follower (
    log text NOT NULL,
    name text NOT NULL,
    applied xid8 NOT NULL,
    told_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (log, name)
);

-- name: create_log — The log of one table. Numbers begin at the time, so that they always grow.
DO $tidegate_log$
BEGIN
    IF to_regclass({log_text}) IS NULL THEN
        EXECUTE format(
            'CREATE TABLE %s (
                xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
                number bigint GENERATED ALWAYS AS IDENTITY (START WITH %s),
                made_at timestamptz NOT NULL DEFAULT clock_timestamp(),
                key text[] NOT NULL,
                PRIMARY KEY (xid, number))',
            {log_text}, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint);
    END IF;
END
$tidegate_log$;

-- name: index_log — The last number of a key is looked up with every row that is read.
CREATE INDEX IF NOT EXISTS {by_key} ON {log} (key, number);

-- name: create_function — What the triggers do, with the rights of whoever owns the log.
CREATE OR REPLACE FUNCTION {function}() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog {settings} AS $tidegate_log$
BEGIN
    IF TG_OP = 'TRUNCATE' THEN
        -- It removes rows that its snapshot does not show, and those could not be logged.
        IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
            RAISE EXCEPTION 'the changes of % are logged: it can be truncated in a transaction that'
                ' is READ COMMITTED', {table_text} USING ERRCODE = 'feature_not_supported',
                HINT = 'DELETE its rows, or set the isolation level of this transaction.';
        END IF;
        EXECUTE {log_all} || TG_RELID::regclass || ' AS it';
        RETURN NULL;
    END IF;
    IF TG_OP <> 'INSERT' AND (TG_OP = 'DELETE' OR ARRAY[{old}] <> ARRAY[{new}]) THEN
        INSERT INTO {log} (key) VALUES (ARRAY[{old}]);
    END IF;
    IF TG_OP <> 'DELETE' THEN
        INSERT INTO {log} (key) VALUES (ARRAY[{new}]);
    END IF;
    RETURN NULL;
END
$tidegate_log$;

-- name: is_logged — Whether the triggers are there, and nobody has turned one off.
SELECT FROM pg_trigger
WHERE tgrelid = to_regclass(%(table)s) AND tgenabled = 'A'
AND tgname IN ('tidegate_log', 'tidegate_log_truncate')
HAVING count(*) = 2
-- A partition that is emptied alone fires triggers of its own only.
AND NOT EXISTS (
    SELECT FROM pg_partition_tree(to_regclass(%(table)s)) AS part
    WHERE NOT EXISTS (
        SELECT FROM pg_trigger AS own
        WHERE own.tgrelid = part.relid AND own.tgname = 'tidegate_log_truncate'));

-- name: partitions — The partitions of a table, and theirs.
SELECT namespace.nspname, class.relname
FROM pg_partition_tree(to_regclass(%(table)s)) AS part
JOIN pg_class AS class ON class.oid = part.relid
JOIN pg_namespace AS namespace ON namespace.oid = class.relnamespace
WHERE part.level > 0;

-- name: create_trigger — Log every row that is changed.
CREATE OR REPLACE TRIGGER tidegate_log AFTER INSERT OR UPDATE OR DELETE ON {table}
    FOR EACH ROW EXECUTE FUNCTION {function}();

-- name: create_truncate_trigger — Log every row of a table that is emptied.
CREATE OR REPLACE TRIGGER tidegate_log_truncate BEFORE TRUNCATE ON {table}
    FOR EACH STATEMENT EXECUTE FUNCTION {function}();

-- name: enable_triggers — Also for what a subscription to another server writes.
ALTER TABLE {table}
    ENABLE ALWAYS TRIGGER tidegate_log,
    ENABLE ALWAYS TRIGGER tidegate_log_truncate;

-- name: stop_logging — The triggers go with their function.
DROP FUNCTION IF EXISTS {function}() CASCADE;

-- name: enable_truncate_trigger — The same for a partition, which has the other one already.
ALTER TABLE {table} ENABLE ALWAYS TRIGGER tidegate_log_truncate;

-- name: drop_log — Forget what was logged.
DROP TABLE IF EXISTS {log};

-- name: head — The first transaction that has not begun.
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

-- name: holder — The oldest transaction that is running.
SELECT pid, application_name, state, xact_start
FROM pg_stat_activity
WHERE backend_xid IS NOT NULL
ORDER BY age(backend_xid) DESC
LIMIT 1;

-- name: register — Keep from now on what a follower will need; nothing changes when that is done.
INSERT INTO tidegate_log.follower (log, name, applied)
VALUES (%(log)s, %(follower)s, pg_snapshot_xmin(pg_current_snapshot()))
ON CONFLICT (log, name) DO NOTHING;

-- name: registered — From where on everything is kept for a follower.
SELECT applied::text::bigint FROM tidegate_log.follower
WHERE log = %(log)s AND name = %(follower)s;

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
    LIMIT 10000
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
