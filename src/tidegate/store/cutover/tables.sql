-- Tables of users, as the catalogue knows them.

-- name: columns — The columns of a table, and the place of each in its primary key.
SELECT
    attribute.attname,
    format_type(base.id, base.modifier),
    CASE WHEN attribute.attcollation <> type.typcollation THEN (
        SELECT quote_ident(schema.nspname) || '.' || quote_ident(found.collname)
        FROM pg_collation AS found
        JOIN pg_namespace AS schema ON schema.oid = found.collnamespace
        WHERE found.oid = attribute.attcollation
    ) END,
    -- The schema of the operators by which the key is ordered; a superuser made them.
    coalesce((
        SELECT schema.nspname
        FROM pg_opclass AS ordering
        JOIN pg_amop AS member ON member.amopfamily = ordering.opcfamily
            AND member.amoplefttype = ordering.opcintype
            AND member.amoprighttype = ordering.opcintype AND member.amopstrategy = 5
        JOIN pg_am AS method ON method.oid = member.amopmethod AND method.amname = 'btree'
        JOIN pg_operator AS greater ON greater.oid = member.amopopr
        JOIN pg_namespace AS schema ON schema.oid = greater.oprnamespace
        WHERE ordering.oid = key.indclass[array_position(
            (key.indkey::smallint[])[0 : key.indnkeyatts - 1], attribute.attnum) - 1]
    ), 'pg_catalog'),
    coalesce((
        SELECT pg_get_userbyid(own.typowner) FROM pg_type AS own
        WHERE own.oid = base.id AND own.typnamespace <> 'pg_catalog'::regnamespace
        AND NOT EXISTS (
            SELECT FROM pg_roles AS owner WHERE owner.oid = own.typowner
            AND (owner.rolsuper OR owner.rolname = current_user))
    ), ''),
    -- A domain inside of the type, whose conditions are checked when a value is read from text.
    CASE WHEN base.id >= 16384::oid THEN (
        WITH RECURSIVE inside AS (
            SELECT base.id AS id
            UNION
            SELECT part.id FROM inside CROSS JOIN LATERAL (
                SELECT typelem FROM pg_type WHERE oid = inside.id AND typelem <> 0
                UNION ALL SELECT typbasetype FROM pg_type WHERE oid = inside.id AND typtype = 'd'
                UNION ALL SELECT rngsubtype FROM pg_range
                WHERE rngtypid = inside.id OR rngmultitypid = inside.id
                UNION ALL SELECT field.atttypid FROM pg_type AS row
                JOIN pg_attribute AS field ON field.attrelid = row.typrelid
                WHERE row.oid = inside.id AND row.typrelid <> 0
                AND field.attnum > 0 AND NOT field.attisdropped
            ) AS part (id)
        )
        SELECT format_type(domain.oid, NULL) || ' of ' || pg_get_userbyid(domain.typowner)
        FROM inside JOIN pg_type AS domain ON domain.oid = inside.id AND domain.typtype = 'd'
        WHERE NOT EXISTS (
            SELECT FROM pg_roles AS owner WHERE owner.oid = domain.typowner
            AND (owner.rolsuper OR owner.rolname = current_user))
        LIMIT 1
    ) END,
    -- Behind its own columns a key may include others, which identify nothing.
    array_position((key.indkey::smallint[])[0 : key.indnkeyatts - 1], attribute.attnum) AS place,
    attribute.attgenerated <> ''
FROM pg_class AS class
JOIN pg_namespace AS namespace ON namespace.oid = class.relnamespace
JOIN pg_attribute AS attribute ON attribute.attrelid = class.oid
JOIN pg_type AS type ON type.oid = attribute.atttypid
-- What a domain is made of: a row that is gone has no values, which a domain may forbid.
CROSS JOIN LATERAL (
    WITH RECURSIVE made_of AS (
        SELECT attribute.atttypid AS id, attribute.atttypmod AS modifier
        UNION ALL
        SELECT domain.typbasetype, domain.typtypmod
        FROM made_of JOIN pg_type AS domain ON domain.oid = made_of.id AND domain.typtype = 'd'
    )
    SELECT made_of.id, made_of.modifier
    FROM made_of JOIN pg_type AS plain ON plain.oid = made_of.id AND plain.typtype <> 'd'
) AS base
LEFT JOIN pg_index AS key
    -- A key that is checked late lets two rows have it for a while, and orders nothing.
    ON key.indrelid = class.oid AND key.indisprimary AND key.indimmediate
WHERE namespace.nspname = %(schema)s AND class.relname = %(name)s
AND class.relkind IN ('r', 'p') AND attribute.attnum > 0 AND NOT attribute.attisdropped
AND (
    attribute.attgenerated = ''
    OR attribute.attnum = ANY ((key.indkey::smallint[])[0 : key.indnkeyatts - 1]))
ORDER BY attribute.attnum;

-- name: planned_code — A function of another role that planning a query on a table would call.
-- PostgreSQL computes what is constant in such expressions when it plans, as the role that reads.
WITH part AS (
    SELECT to_regclass(%(table)s)::oid AS relid
    UNION SELECT relid FROM pg_partition_tree(to_regclass(%(table)s))
), made AS (
    SELECT 'pg_class'::regclass AS classid, relid AS objid FROM part
    UNION ALL SELECT 'pg_class'::regclass, indexrelid FROM pg_index JOIN part ON relid = indrelid
    UNION ALL SELECT 'pg_statistic_ext'::regclass, oid
    FROM pg_statistic_ext JOIN part ON relid = stxrelid
)
SELECT function.oid::regprocedure::text, pg_get_userbyid(function.proowner)
FROM made
JOIN pg_depend AS uses ON uses.classid = made.classid AND uses.objid = made.objid
LEFT JOIN pg_operator AS operator
    ON uses.refclassid = 'pg_operator'::regclass AND operator.oid = uses.refobjid
JOIN pg_proc AS function ON function.oid = CASE uses.refclassid
    WHEN 'pg_proc'::regclass THEN uses.refobjid
    WHEN 'pg_operator'::regclass THEN operator.oprcode::oid END
WHERE (SELECT rolsuper FROM pg_roles WHERE rolname = current_user)
AND NOT (SELECT rolsuper FROM pg_roles WHERE oid = function.proowner)
LIMIT 1;

-- name: type_owner — The owner of a type, unless it is a superuser, this role or PostgreSQL itself.
SELECT pg_get_userbyid(own.typowner)
FROM pg_type AS own
WHERE own.oid = to_regtype(%(type)s) AND own.typnamespace <> 'pg_catalog'::regnamespace
AND NOT EXISTS (
    SELECT FROM pg_roles AS owner WHERE owner.oid = own.typowner
    AND (owner.rolsuper OR owner.rolname = current_user));
