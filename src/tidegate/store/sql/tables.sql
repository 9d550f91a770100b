-- Tables of users, as the catalogue knows them.

-- name: columns — The columns of a table, and the place of each in its primary key.
SELECT
    attribute.attname,
    -- What a domain is made of: a row that is gone has no values, which a domain may forbid.
    (WITH RECURSIVE made_of AS (
        SELECT attribute.atttypid AS id, attribute.atttypmod AS modifier
        UNION ALL
        SELECT domain.typbasetype, domain.typtypmod
        FROM made_of JOIN pg_type AS domain ON domain.oid = made_of.id AND domain.typtype = 'd'
    )
    SELECT format_type(made_of.id, made_of.modifier)
    FROM made_of JOIN pg_type AS plain ON plain.oid = made_of.id AND plain.typtype <> 'd'),
    CASE WHEN attribute.attcollation <> type.typcollation THEN (
        SELECT quote_ident(schema.nspname) || '.' || quote_ident(found.collname)
        FROM pg_collation AS found
        JOIN pg_namespace AS schema ON schema.oid = found.collnamespace
        WHERE found.oid = attribute.attcollation
    ) END,
    -- Behind its own columns a key may include others, which identify nothing.
    array_position((key.indkey::smallint[])[0 : key.indnkeyatts - 1], attribute.attnum) AS place,
    attribute.attgenerated <> ''
FROM pg_class AS class
JOIN pg_namespace AS namespace ON namespace.oid = class.relnamespace
JOIN pg_attribute AS attribute ON attribute.attrelid = class.oid
JOIN pg_type AS type ON type.oid = attribute.atttypid
LEFT JOIN pg_index AS key
    -- A key that is checked late lets two rows have it for a while, and orders nothing.
    ON key.indrelid = class.oid AND key.indisprimary AND key.indimmediate
WHERE namespace.nspname = %(schema)s AND class.relname = %(name)s
AND class.relkind IN ('r', 'p') AND attribute.attnum > 0 AND NOT attribute.attisdropped
AND (
    attribute.attgenerated = ''
    OR attribute.attnum = ANY ((key.indkey::smallint[])[0 : key.indnkeyatts - 1]))
ORDER BY attribute.attnum;
