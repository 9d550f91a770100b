-- How the schema is brought up to date; see tidegate.store.core.migrations.

-- name: take_turn — Wait for other processes that migrate, until the end of the transaction.
SELECT pg_advisory_xact_lock(7469646567617465);

-- name: is_begun — Whether any migration was ever applied.
-- Asked of the catalogue, not of to_regclass, which may answer from before we had our turn.
SELECT EXISTS (
    SELECT FROM pg_catalog.pg_tables WHERE schemaname = 'tidegate' AND tablename = 'migration'
);

-- name: last_applied — The number of the last migration, 0 for none.
SELECT coalesce(max(number), 0) FROM tidegate.migration;

-- name: note — Remember that a migration was applied.
INSERT INTO tidegate.migration (number, name) VALUES (%s, %s);

-- name: functions_made — Which release has made the functions, and from what.
SELECT release, digest FROM tidegate.functions;

-- name: defer_bodies — Functions may name others that are made after them, in this transaction.
SET LOCAL check_function_bodies = off;

-- name: note_functions — Remember what the functions were made from.
WITH before AS (DELETE FROM tidegate.functions)
INSERT INTO tidegate.functions (release, digest) VALUES (%s, %s);
