-- Indexes and the aliases that show them. {words} are names, put in by `tidegate.store.cutover.indexes`.

-- name: is_there — Whether something has this name.
SELECT FROM pg_class AS class
JOIN pg_namespace AS namespace ON namespace.oid = class.relnamespace
WHERE namespace.nspname = %(schema)s AND class.relname = %(name)s;

-- name: note_comment — Whose it is, and what tells it from others of its name, before it and elsewhere.
COMMENT ON TABLE {index} IS {comment};

-- name: identity — The same, read; nothing for what is no index.
-- Another owner than a superuser, this role, or one that it is a member of could have put code there.
SELECT class.oid::bigint, obj_description(class.oid, 'pg_class'), CASE
    WHEN NOT (owner.rolsuper OR owner.oid = own_role.oid
        OR (NOT own_role.rolsuper AND pg_has_role(owner.oid, 'MEMBER'))) THEN owner.rolname END
FROM pg_class AS class
JOIN pg_roles AS owner ON owner.oid = class.relowner
JOIN pg_roles AS own_role ON own_role.rolname = current_user
JOIN pg_namespace AS namespace ON namespace.oid = class.relnamespace
WHERE namespace.nspname = %(schema)s AND class.relname = %(name)s AND class.relkind = 'r'
AND EXISTS (
    SELECT FROM pg_attribute AS own
    WHERE own.attrelid = class.oid AND own.attname = 'tidegate_version' AND NOT own.attisdropped);

-- name: known — The indexes that were made for an alias.
SELECT namespace.nspname, class.relname, class.oid::bigint, comment.description
FROM pg_description AS comment
JOIN pg_class AS class ON class.oid = comment.objoid AND class.relkind = 'r'
JOIN pg_namespace AS namespace ON namespace.oid = class.relnamespace
WHERE comment.classoid = 'pg_class'::regclass AND comment.objsubid = 0
AND starts_with(comment.description, %(owned)s)
ORDER BY class.oid;

-- name: hold_alias — Wait for whoever else decides about an alias, until the end of the transaction.
SELECT pg_advisory_xact_lock(hashtext('tidegate alias'), hashtext(%(alias)s));

-- name: hold — Let nobody drop it before this transaction ends.
LOCK TABLE {index} IN ROW EXCLUSIVE MODE;

-- name: is_empty — Whether nothing was ever written to it.
SELECT NOT EXISTS (SELECT FROM {index});

-- name: kind — What an alias is now.
SELECT class.relkind = 'v'
FROM pg_class AS class
JOIN pg_namespace AS namespace ON namespace.oid = class.relnamespace
WHERE namespace.nspname = %(schema)s AND class.relname = %(name)s;

-- name: make_incoming — Where rows wait that are about to be written, seen by this session alone.
CREATE TEMPORARY TABLE IF NOT EXISTS {incoming} (LIKE {index}) ON COMMIT DELETE ROWS;

-- name: write — Take what is not older than what is there, in the order of keys: no ring of waits.
INSERT INTO {index} AS kept ({names})
SELECT DISTINCT ON ({key}) {names}
FROM {incoming}
ORDER BY {key}, tidegate_version DESC
ON CONFLICT ({key}) DO UPDATE SET {values}
WHERE excluded.tidegate_version >= kept.tidegate_version;

-- name: view_columns — The columns of an alias.
SELECT attribute.attname, format_type(attribute.atttypid, attribute.atttypmod)
FROM pg_class AS class
JOIN pg_namespace AS namespace ON namespace.oid = class.relnamespace
JOIN pg_attribute AS attribute ON attribute.attrelid = class.oid
WHERE namespace.nspname = %(schema)s AND class.relname = %(name)s AND class.relkind = 'v'
AND attribute.attnum > 0
ORDER BY attribute.attnum;

-- name: create_view — Let an alias stand for an index.
CREATE OR REPLACE VIEW {alias}{options} AS SELECT {columns} FROM {index} WHERE {live};

-- name: current — The table that an alias shows: the one that its document is from.
SELECT DISTINCT namespace.nspname, shown.relname
FROM pg_class AS view
JOIN pg_namespace AS own ON own.oid = view.relnamespace
JOIN pg_rewrite AS rule ON rule.ev_class = view.oid
JOIN pg_depend AS uses ON uses.classid = 'pg_rewrite'::regclass AND uses.objid = rule.oid
JOIN pg_class AS shown ON uses.refclassid = 'pg_class'::regclass AND uses.refobjid = shown.oid
JOIN pg_namespace AS namespace ON namespace.oid = shown.relnamespace
JOIN pg_attribute AS attribute
    ON attribute.attrelid = shown.oid AND attribute.attnum = uses.refobjsubid
WHERE own.nspname = %(schema)s AND view.relname = %(name)s AND view.relkind = 'v'
AND attribute.attname = %(document)s;

-- name: shown_by — A view that shows an index, if there is one.
SELECT namespace.nspname, view.relname
FROM pg_depend AS uses
JOIN pg_rewrite AS rule ON rule.oid = uses.objid
JOIN pg_class AS view ON view.oid = rule.ev_class
JOIN pg_namespace AS namespace ON namespace.oid = view.relnamespace
WHERE uses.classid = 'pg_rewrite'::regclass AND uses.refclassid = 'pg_class'::regclass
AND uses.refobjid = %(index)s::bigint::oid
LIMIT 1;

-- name: note_switch — Keep which index an alias stands for since now.
INSERT INTO tidegate.alias_switch (alias, index, previous, run_id, switched_by, pending, staleness)
VALUES (%(alias)s, %(index)s, %(previous)s, %(run)s, %(by)s, %(pending)s, %(staleness)s);

-- name: switches — What an alias stood for, the last first.
SELECT alias, index, previous, run_id, switched_by, pending, staleness, switched_at
FROM tidegate.alias_switch
WHERE alias = %(alias)s
ORDER BY id DESC
LIMIT %(most)s;

-- name: was_shown — Whether readers of an alias were ever switched to an index.
SELECT FROM tidegate.alias_switch WHERE alias = %(alias)s AND index = %(index)s LIMIT 1;

-- name: switch_of — The switch that a run of a flow has made.
SELECT alias, index, previous, run_id, switched_by, pending, staleness, switched_at
FROM tidegate.alias_switch
WHERE run_id = %(run)s
ORDER BY id
LIMIT 1;
