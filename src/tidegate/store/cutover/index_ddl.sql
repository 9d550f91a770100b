-- Creation of indexes. {words} are identifiers, inserted by `tidegate.store.cutover.index_ddl`.

-- name: create_schema — The schema of indexes and aliases.
CREATE SCHEMA IF NOT EXISTS {schema};

-- name: create_index — A table of versioned rows with a searchable document.
CREATE TABLE {index} (
    {columns},
    tidegate_version bigint NOT NULL,
    tidegate_deleted boolean NOT NULL,
    tidegate_document tsvector GENERATED ALWAYS AS (
        tidegate.document({language}::regconfig, {text})) STORED,
    PRIMARY KEY ({key})
);

-- name: index_document — For quick searches. PostgreSQL chooses a free name.
CREATE INDEX ON {index} USING gin (tidegate_document) WHERE NOT tidegate_deleted;

-- name: create_expected — The expected columns, compared with an existing index.
CREATE TEMPORARY TABLE tidegate_wanted (
    {columns},
    tidegate_document tsvector GENERATED ALWAYS AS (
        tidegate.document({language}::regconfig, {text})) STORED
);

-- name: searches_alike — Whether an existing index computes its document in the same way.
SELECT
FROM pg_attrdef AS own
JOIN pg_attribute AS attribute ON attribute.attrelid = own.adrelid AND attribute.attnum = own.adnum
JOIN pg_class AS class ON class.oid = own.adrelid
JOIN pg_namespace AS namespace ON namespace.oid = class.relnamespace
WHERE namespace.nspname = %(schema)s AND class.relname = %(name)s
AND attribute.attname = 'tidegate_document'
AND pg_get_expr(own.adbin, own.adrelid) = (
    SELECT pg_get_expr(adbin, adrelid) FROM pg_attrdef
    WHERE adrelid = 'pg_temp.tidegate_wanted'::regclass AND adnum = (
        SELECT max(attnum) FROM pg_attribute WHERE attrelid = 'pg_temp.tidegate_wanted'::regclass));

-- name: drop_expected — Drop the table after the comparison.
DROP TABLE pg_temp.tidegate_wanted;
