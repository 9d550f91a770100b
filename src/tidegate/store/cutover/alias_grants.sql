-- Options of aliases, and read privileges. {words} are identifiers, inserted by
-- `tidegate.store.cutover.alias_grants`.

-- name: options — The options of a view; none where there is no view.
SELECT it.option_name, it.option_value
FROM pg_class AS class
CROSS JOIN pg_options_to_table(class.reloptions) AS it
WHERE class.oid = to_regclass(%(alias)s);

-- name: is_row_secured — Whether an index shows each reader some of its rows.
SELECT FROM pg_class WHERE oid = to_regclass(%(index)s) AND relrowsecurity;

-- name: owner_without — The owner of a view, in whose name it is read, when it may not read an index.
SELECT pg_get_userbyid(relowner)
FROM pg_class
WHERE oid = to_regclass(%(alias)s)
AND NOT has_table_privilege(relowner, to_regclass(%(index)s), 'SELECT');

-- name: readers — The readers of the previous index, for a view with security_invoker.
SELECT CASE WHEN own.grantee > 0 THEN pg_get_userbyid(own.grantee) END
FROM pg_class AS before
CROSS JOIN aclexplode(before.relacl) AS own
WHERE before.oid = to_regclass(%(before)s)
AND own.privilege_type = 'SELECT' AND own.grantee <> before.relowner
AND EXISTS (
    SELECT FROM pg_class AS view
    CROSS JOIN pg_options_to_table(view.reloptions) AS chosen
    WHERE view.oid = to_regclass(%(alias)s)
    AND chosen.option_name = 'security_invoker' AND chosen.option_value::boolean);

-- name: grant — Grant read access to an index.
GRANT SELECT ON {index} TO {reader};
