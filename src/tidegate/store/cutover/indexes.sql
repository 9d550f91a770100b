-- Indexes and aliases. {words} are identifiers, inserted by `tidegate.store.cutover.indexes`.

-- name: exists — Whether a relation with this name exists.
SELECT FROM pg_class AS class
JOIN pg_namespace AS namespace ON namespace.oid = class.relnamespace
WHERE namespace.nspname = %(schema)s AND class.relname = %(name)s;

-- name: set_comment — Store the alias and the identity of an index.
COMMENT ON TABLE {index} IS {comment};

-- name: identity — The comment of an index; no row for another relation.
-- The owner is returned if it could have added code: not a superuser, this role, or a role it is member of.
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

-- name: known — The indexes of an alias.
SELECT namespace.nspname, class.relname, class.oid::bigint, comment.description
FROM pg_description AS comment
JOIN pg_class AS class ON class.oid = comment.objoid AND class.relkind = 'r'
JOIN pg_namespace AS namespace ON namespace.oid = class.relnamespace
WHERE comment.classoid = 'pg_class'::regclass AND comment.objsubid = 0
AND starts_with(comment.description, %(owned)s)
ORDER BY class.oid;

-- name: lock_alias — Serialise operations on an alias until the end of the transaction.
SELECT pg_advisory_xact_lock(hashtext('tidegate alias'), hashtext(%(alias)s));

-- name: lock — Lock an index against being dropped until the end of the transaction.
LOCK TABLE {index} IN ROW EXCLUSIVE MODE;

-- name: is_empty — Whether an index is empty.
SELECT NOT EXISTS (SELECT FROM {index});

-- name: kind — Whether the relation with the name of an alias is a view.
SELECT class.relkind = 'v'
FROM pg_class AS class
JOIN pg_namespace AS namespace ON namespace.oid = class.relnamespace
WHERE namespace.nspname = %(schema)s AND class.relname = %(name)s;

-- name: create_incoming — A temporary table for the rows to be written.
CREATE TEMPORARY TABLE IF NOT EXISTS {incoming} (LIKE {index}) ON COMMIT DELETE ROWS;

-- name: write — Write rows that are not older than existing ones, in key order to prevent deadlocks.
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

-- name: create_view — Make an alias show an index.
CREATE OR REPLACE VIEW {alias}{options} AS SELECT {columns} FROM {index} WHERE {live};

-- name: current — The index that an alias shows: the one its document is from.
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

-- name: record_switch — Record the switch of an alias.
INSERT INTO tidegate.alias_switch (alias, index, previous, run_id, switched_by, pending, staleness)
VALUES (%(alias)s, %(index)s, %(previous)s, %(run)s, %(by)s, %(pending)s, %(staleness)s);

-- name: switches — The switches of an alias, latest first.
SELECT alias, index, previous, run_id, switched_by, pending, staleness, switched_at
FROM tidegate.alias_switch
WHERE alias = %(alias)s
ORDER BY id DESC
LIMIT %(most)s;

-- name: was_shown — Whether readers of an alias were ever switched to an index.
SELECT FROM tidegate.alias_switch WHERE alias = %(alias)s AND index = %(index)s LIMIT 1;

-- name: switch_of — The switch made by a flow run.
SELECT alias, index, previous, run_id, switched_by, pending, staleness, switched_at
FROM tidegate.alias_switch
WHERE run_id = %(run)s
ORDER BY id
LIMIT 1;
