-- What of a row of an index can be searched. Generated columns call it.

-- A document holds 1 MB at most. A row whose text has more words is found by the first of them:
-- refused, it would keep all changes behind it from the index. Names are qualified, for what calls
-- it is also restored from dumps, without a search path.
CREATE OR REPLACE FUNCTION tidegate.document(config regconfig, words text) RETURNS tsvector
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN pg_catalog.to_tsvector(config, words);
EXCEPTION WHEN program_limit_exceeded THEN
    BEGIN
        RETURN pg_catalog.to_tsvector(config, pg_catalog.left(words, 250000));
    EXCEPTION WHEN program_limit_exceeded THEN  -- a dictionary may make much of one word
        RETURN '';
    END;
END
$$;

COMMENT ON FUNCTION tidegate.document IS
    'The words of a text that can be searched; of one with too many, the first of them. '
    'Used by indexes: dropping it would take their documents away.';
