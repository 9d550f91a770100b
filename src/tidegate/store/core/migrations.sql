-- Schema migrations; see tidegate.store.core.migrations.

-- name: lock — Wait for other migrating processes; held until the end of the transaction.
SELECT pg_advisory_xact_lock(7469646567617465);

-- name: has_table — Whether any migration was applied.
-- Reads the catalogue because to_regclass may answer from before the lock was acquired.
SELECT EXISTS (
    SELECT FROM pg_catalog.pg_tables WHERE schemaname = 'tidegate' AND tablename = 'migration'
);

-- name: last_applied — The number of the last applied migration, 0 for none.
SELECT coalesce(max(number), 0) FROM tidegate.migration;

-- name: record — Record an applied migration.
INSERT INTO tidegate.migration (number, name) VALUES (%s, %s);

-- name: function_version — The release that created the functions, and the digest of its files.
SELECT release, digest FROM tidegate.function_version;

-- name: defer_bodies — Functions may call others that are created later in this transaction.
SET LOCAL check_function_bodies = off;

-- name: record_functions — Record the version of the functions.
WITH previous AS (DELETE FROM tidegate.function_version)
INSERT INTO tidegate.function_version (release, digest) VALUES (%s, %s);
