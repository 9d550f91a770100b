-- Change capture by triggers.
-- {words} are identifiers, inserted by `tidegate.store.cutover.change_capture`.

-- name: lock — Only one process at a time prepares logs.
SELECT pg_advisory_xact_lock(hashtext('tidegate_log'));

-- name: prepared — Which parts of a log exist, and the time.
SELECT
    to_regnamespace('tidegate_log') IS NOT NULL,
    to_regclass('tidegate_log.consumer') IS NOT NULL,
    to_regclass(%(log)s) IS NOT NULL,
    coalesce(obj_description(to_regprocedure(%(function)s), 'pg_proc') = %(note)s, false)
    AND (%(writer)s::text IS NULL OR EXISTS (
        SELECT FROM pg_proc WHERE oid = to_regprocedure(%(function)s)
        AND pg_get_userbyid(proowner) = %(writer)s)),
    (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;

-- name: create_schema — The schema of all logs.
CREATE SCHEMA {schema};

-- name: create_consumers — The consumers of logs and their offsets.
CREATE TABLE {schema}.consumer (
    log text NOT NULL,
    name text NOT NULL,
    applied xid8 NOT NULL,
    committed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (log, name)
);

-- name: create_log — The log of one table. Numbers start at the time, so that they also grow over recreated logs.
CREATE TABLE {log} (
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    number bigint GENERATED ALWAYS AS IDENTITY (START WITH {time}),
    made_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    key text[] COLLATE "C" NOT NULL,
    PRIMARY KEY (xid, number),
    -- The last number of a key is looked up for every row that is read.
    UNIQUE (key, number)
);

-- name: remove_foreign — Remove changes logged by another server, whose transaction ids are invalid here.
DELETE FROM {log} WHERE xid >= pg_snapshot_xmax(pg_current_snapshot());

-- name: create_function — The trigger function, with the rights of the role that writes logs.
-- pg_temp comes last, so that a writer's temporary objects do not replace those of PostgreSQL.
-- row_security is off: a table whose policies hide rows raises an error instead of missing changes.
CREATE OR REPLACE FUNCTION {function}() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET row_security = off
{settings} AS $body$
BEGIN
    IF TG_OP = 'TRUNCATE' THEN
        -- TRUNCATE removes rows that the snapshot does not show, and those could not be logged.
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
$body$;

-- name: comment_function — The digest of the function, which is recreated when it changes.
COMMENT ON FUNCTION {function}() IS {note};

-- name: is_logged — Whether all triggers exist, belong to this log, and are enabled.
WITH part AS (
    SELECT to_regclass(%(table)s) AS relid
    UNION SELECT relid FROM pg_partition_tree(to_regclass(%(table)s))
)
SELECT
    NOT EXISTS (
        SELECT FROM part, unnest(ARRAY['tidegate_log', 'tidegate_log_truncate']) AS wanted (name)
        WHERE NOT EXISTS (
            SELECT FROM pg_trigger AS own
            WHERE own.tgrelid = part.relid AND own.tgname = wanted.name
            AND own.tgfoid = to_regprocedure(%(function)s) AND own.tgenabled = 'A'))
    AND NOT EXISTS (
        SELECT FROM pg_trigger AS other
        WHERE other.tgfoid = to_regprocedure(%(function)s)
        AND other.tgrelid NOT IN (SELECT relid FROM part));

-- name: strangers — The triggers of this log on other tables.
SELECT namespace.nspname, class.relname, other.tgname
FROM pg_trigger AS other
JOIN pg_class AS class ON class.oid = other.tgrelid
JOIN pg_namespace AS namespace ON namespace.oid = class.relnamespace
WHERE other.tgfoid = to_regprocedure(%(function)s) AND other.tgparentid = 0
AND other.tgrelid <> to_regclass(%(table)s)
AND other.tgrelid NOT IN (SELECT relid FROM pg_partition_tree(to_regclass(%(table)s)));

-- name: rivals — Tables with a trigger of another log: a partition by itself, or with its table.
SELECT namespace.nspname, class.relname
FROM pg_trigger AS other
JOIN pg_class AS class ON class.oid = other.tgrelid
JOIN pg_namespace AS namespace ON namespace.oid = class.relnamespace
WHERE other.tgname = 'tidegate_log' AND other.tgfoid <> to_regprocedure(%(function)s)
AND CASE WHEN other.tgrelid = to_regclass(%(table)s) THEN other.tgparentid <> 0
    ELSE other.tgparentid = 0
    AND other.tgrelid IN (SELECT relid FROM pg_partition_tree(to_regclass(%(table)s))) END;

-- name: drop_trigger — Stop logging of a renamed table under its former name.
DROP TRIGGER {trigger} ON {table};

-- name: partitions — The partitions of a table, at all levels.
SELECT namespace.nspname, class.relname
FROM pg_partition_tree(to_regclass(%(table)s)) AS part
JOIN pg_class AS class ON class.oid = part.relid
JOIN pg_namespace AS namespace ON namespace.oid = class.relnamespace
WHERE part.level > 0;

-- name: create_trigger — Log every changed row, also in partitions.
CREATE OR REPLACE TRIGGER tidegate_log AFTER INSERT OR UPDATE OR DELETE ON {table}
    FOR EACH ROW EXECUTE FUNCTION {function}();

-- name: create_truncate_trigger — Log every row of a truncated table or partition.
CREATE OR REPLACE TRIGGER tidegate_log_truncate BEFORE TRUNCATE ON {table}
    FOR EACH STATEMENT EXECUTE FUNCTION {function}();

-- name: enable_triggers — Enable triggers also for replicated writes.
ALTER TABLE {table}
    ENABLE ALWAYS TRIGGER tidegate_log,
    ENABLE ALWAYS TRIGGER tidegate_log_truncate;

-- name: stop_logging — Drop the function with its triggers.
DROP FUNCTION IF EXISTS {function}() CASCADE;

-- name: drop_log — Drop the log.
DROP TABLE IF EXISTS {log};
