-- The role that writes logs of changes. {words} are names, put in by `tidegate.store.cutover.log_writer`.

-- name: rights — What the role may do beyond writing logs; nothing where there is no such role.
SELECT CASE
    WHEN rolsuper THEN 'is a superuser'
    WHEN rolcanlogin THEN 'can log in'
    WHEN rolcreaterole OR rolcreatedb THEN 'can create roles or databases'
    WHEN rolreplication OR rolbypassrls THEN 'can replicate, or bypasses row security'
    WHEN EXISTS (SELECT FROM pg_auth_members WHERE member = pg_roles.oid)
    THEN 'is a member of another role'
END
FROM pg_roles
WHERE rolname = %(writer)s;

-- name: facts — The owner of a table, and the rights of the connected role.
SELECT
    pg_get_userbyid(class.relowner),
    (SELECT rolsuper FROM pg_roles WHERE oid = class.relowner),
    own.rolsuper,
    own.rolname::text,
    -- It may give the writer what that needs, and act for it.
    pg_has_role(class.relowner, 'USAGE')
    AND has_schema_privilege(class.relnamespace, 'USAGE WITH GRANT OPTION')
    AND coalesce((
        SELECT pg_has_role(nspowner, 'USAGE') FROM pg_namespace WHERE nspname = 'tidegate_log'
    ), true)
    AND coalesce((
        SELECT pg_has_role(oid, 'USAGE') FROM pg_roles WHERE rolname = %(writer)s
    ), own.rolcreaterole)
FROM pg_class AS class
JOIN pg_roles AS own ON own.rolname = current_user
WHERE class.oid = to_regclass(%(table)s);

-- name: create — A role that owns functions of triggers, and has no other rights.
CREATE ROLE {writer} NOLOGIN NOINHERIT;

-- name: join — Act for it, where that does not come with being a superuser.
GRANT {writer} TO CURRENT_USER;

-- name: close_function — Only the owner of the table makes triggers with it: for new partitions.
REVOKE ALL ON FUNCTION {function}() FROM PUBLIC;

-- name: open_function — So creating a partition copies the triggers of its table.
GRANT EXECUTE ON FUNCTION {function}() TO {owner};

-- name: open_schema — To be given a function, a role has to be able to create one there.
GRANT USAGE, CREATE ON SCHEMA {schema} TO {writer};

-- name: hand_over — What the triggers do, they do with the rights of the writer.
ALTER FUNCTION {function}() OWNER TO {writer};

-- name: close_schema — Only for as long as that took.
REVOKE CREATE ON SCHEMA {schema} FROM {writer};

-- name: let_write — All that it may do with a log.
GRANT INSERT ON {log} TO {writer};

-- name: let_reach — A table that is truncated is read in its schema.
GRANT USAGE ON SCHEMA {table_schema} TO {writer};

-- name: let_read — The key of a table that is truncated, or of its partition.
GRANT SELECT ({key}) ON {table} TO {writer};
