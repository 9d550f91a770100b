-- The searchable document of a row of an index. Called by generated columns.

-- A tsvector is limited to 1 MB. A row with more text is found by its first words: if it were refused,
-- all later changes would be missing in the index. Names are qualified because generated columns are
-- also restored from dumps, without a search path.
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
    'The searchable words of a text, truncated to the limit of tsvector. '
    'Used by indexes: dropping it would drop their documents.';
