-- How the changes of a table get into its log.
-- {words} are names, put in by `tidegate.store.cutover.change_capture`.

-- name: take_turns — Let one at a time prepare logs.
SELECT pg_advisory_xact_lock(hashtext('tidegate_log'));

-- name: prepared — Which of the things that a log needs are there, and what time it is.
SELECT
    to_regnamespace('tidegate_log') IS NOT NULL,
    to_regclass('tidegate_log.follower') IS NOT NULL,
    to_regclass(%(log)s) IS NOT NULL,
    coalesce(obj_description(to_regprocedure(%(function)s), 'pg_proc') = %(note)s, false)
    AND (%(writer)s::text IS NULL OR EXISTS (
        SELECT FROM pg_proc WHERE oid = to_regprocedure(%(function)s)
        AND pg_get_userbyid(proowner) = %(writer)s)),
    (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;

-- name: create_schema — The place of all logs.
CREATE SCHEMA {schema};

-- name: create_followers — Who reads logs, and how far each is.
CREATE TABLE {schema}.follower (
    log text NOT NULL,
    name text NOT NULL,
    applied xid8 NOT NULL,
    told_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (log, name)
);

-- name: create_log — The log of one table. Numbers begin at the time, so that they always grow.
CREATE TABLE {log} (
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    number bigint GENERATED ALWAYS AS IDENTITY (START WITH {time}),
    made_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    key text[] COLLATE "C" NOT NULL,
    PRIMARY KEY (xid, number),
    -- The last number of a key is looked up with every row that is read.
    UNIQUE (key, number)
);

-- name: forget_strange — What another server has logged: its transactions mean nothing here.
DELETE FROM {log} WHERE xid >= pg_snapshot_xmax(pg_current_snapshot());

-- name: create_function — What the triggers do, with the rights of the role that writes logs.
-- Named last, the types and functions of a writer's own do not stand in for those of PostgreSQL.
-- A table whose policies hide rows is not read: they would be missing in the log.
CREATE OR REPLACE FUNCTION {function}() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET row_security = off
{settings} AS $body$
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
$body$;

-- name: note_function — What it was made of, so that it is made again when that has changed.
COMMENT ON FUNCTION {function}() IS {note};

-- name: is_logged — Whether all triggers are there, are those of this log, and are turned on.
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

-- name: strangers — The triggers of this log on tables that are not, or no longer, the one it is of.
SELECT namespace.nspname, class.relname, other.tgname
FROM pg_trigger AS other
JOIN pg_class AS class ON class.oid = other.tgrelid
JOIN pg_namespace AS namespace ON namespace.oid = class.relnamespace
WHERE other.tgfoid = to_regprocedure(%(function)s) AND other.tgparentid = 0
AND other.tgrelid <> to_regclass(%(table)s)
AND other.tgrelid NOT IN (SELECT relid FROM pg_partition_tree(to_regclass(%(table)s)));

-- name: rivals — What has its trigger from another log: a partition by itself, or with its table.
SELECT namespace.nspname, class.relname
FROM pg_trigger AS other
JOIN pg_class AS class ON class.oid = other.tgrelid
JOIN pg_namespace AS namespace ON namespace.oid = class.relnamespace
WHERE other.tgname = 'tidegate_log' AND other.tgfoid <> to_regprocedure(%(function)s)
AND CASE WHEN other.tgrelid = to_regclass(%(table)s) THEN other.tgparentid <> 0
    ELSE other.tgparentid = 0
    AND other.tgrelid IN (SELECT relid FROM pg_partition_tree(to_regclass(%(table)s))) END;

-- name: drop_trigger — A table that has lost its name to another does not log under it.
DROP TRIGGER {trigger} ON {table};

-- name: partitions — The partitions of a table, and theirs.
SELECT namespace.nspname, class.relname
FROM pg_partition_tree(to_regclass(%(table)s)) AS part
JOIN pg_class AS class ON class.oid = part.relid
JOIN pg_namespace AS namespace ON namespace.oid = class.relnamespace
WHERE part.level > 0;

-- name: create_trigger — Log every row that is changed, also in partitions.
CREATE OR REPLACE TRIGGER tidegate_log AFTER INSERT OR UPDATE OR DELETE ON {table}
    FOR EACH ROW EXECUTE FUNCTION {function}();

-- name: create_truncate_trigger — Log every row of what is emptied; a partition may be so alone.
CREATE OR REPLACE TRIGGER tidegate_log_truncate BEFORE TRUNCATE ON {table}
    FOR EACH STATEMENT EXECUTE FUNCTION {function}();

-- name: enable_triggers — Also for what a subscription to another server writes.
ALTER TABLE {table}
    ENABLE ALWAYS TRIGGER tidegate_log,
    ENABLE ALWAYS TRIGGER tidegate_log_truncate;

-- name: stop_logging — The triggers go with their function.
DROP FUNCTION IF EXISTS {function}() CASCADE;

-- name: drop_log — Forget what was logged.
DROP TABLE IF EXISTS {log};
