-- Types of values that runs get from outside: a run stores the JSON Schema of each, as declared by
-- its flow. Values that a worker could not decode are refused before they are stored.

-- Why a number, a text or the length of a list does not match a schema; null: it does.
CREATE OR REPLACE FUNCTION tidegate.flow_out_of_bounds(p_schema jsonb, p_value jsonb) RETURNS text
LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_kind text := jsonb_typeof(p_value);
    v_text text := p_value #>> '{}';
BEGIN
    RETURN CASE v_kind
        WHEN 'number' THEN CASE
            WHEN p_value < p_schema -> 'minimum' THEN format('is below %s', p_schema -> 'minimum')
            WHEN p_value > p_schema -> 'maximum' THEN format('is above %s', p_schema -> 'maximum')
            WHEN p_value <= p_schema -> 'exclusiveMinimum'
            THEN format('is not above %s', p_schema -> 'exclusiveMinimum')
            WHEN p_value >= p_schema -> 'exclusiveMaximum'
            THEN format('is not below %s', p_schema -> 'exclusiveMaximum') END
        WHEN 'string' THEN CASE
            WHEN length(v_text) < (p_schema ->> 'minLength')::integer
            OR length(v_text) > (p_schema ->> 'maxLength')::integer
            THEN format('has %s characters', length(v_text))
            WHEN p_schema ->> 'format' = 'uuid' AND v_text !~ '^[0-9A-Fa-f-]{32,36}$'
            THEN 'is no UUID'
            WHEN p_schema ->> 'format' = 'date' AND v_text !~ '^\d{4}-\d\d-\d\d$'
            THEN 'is no date' END
        WHEN 'array' THEN CASE
            WHEN jsonb_array_length(p_value) < (p_schema ->> 'minItems')::integer
            OR jsonb_array_length(p_value) > (p_schema ->> 'maxItems')::integer
            THEN format('has %s elements', jsonb_array_length(p_value)) END
    END;
END
$$;

-- Why a value does not match a schema; null: it does. `p_at` is its path.
CREATE OR REPLACE FUNCTION tidegate.flow_misfit(
    p_schema jsonb, p_value jsonb, p_whole jsonb, p_at text DEFAULT 'it'
) RETURNS text
LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_kind text := jsonb_typeof(p_value);
    v_wanted text := p_schema ->> 'type';
    v_reason text;
BEGIN
    IF jsonb_typeof(p_schema) IS DISTINCT FROM 'object' THEN
        RETURN NULL;  -- nothing is known of it
    END IF;
    IF p_schema ? '$ref' THEN
        RETURN tidegate.flow_misfit(
            p_whole #> string_to_array(substr(p_schema ->> '$ref', 3), '/'), p_value, p_whole, p_at);
    END IF;
    IF p_schema ? 'anyOf' THEN
        IF EXISTS (
            SELECT FROM jsonb_array_elements(p_schema -> 'anyOf') AS one (schema)
            WHERE tidegate.flow_misfit(one.schema, p_value, p_whole, p_at) IS NULL
        ) THEN
            RETURN NULL;
        END IF;
        RETURN (
            SELECT string_agg(
                tidegate.flow_misfit(one.schema, p_value, p_whole, p_at), ', and ' ORDER BY number)
            FROM jsonb_array_elements(p_schema -> 'anyOf') WITH ORDINALITY AS one (schema, number));
    END IF;
    IF p_schema ? 'enum' AND NOT EXISTS (
        SELECT FROM jsonb_array_elements(p_schema -> 'enum') AS one (value) WHERE value = p_value
    ) THEN
        RETURN format('%s is none of %s', p_at, p_schema -> 'enum');
    END IF;
    IF v_wanted <> v_kind
        AND NOT (v_kind = 'number' AND v_wanted = 'integer' AND strpos(p_value::text, '.') = 0)
        AND NOT (v_kind = 'number' AND coalesce(p_schema ->> 'format' = 'decimal', false))
    THEN
        RETURN format(
            '%s is %s, not %s', p_at,
            CASE WHEN v_wanted = 'integer' AND v_kind = 'number' THEN 'a fraction' ELSE v_kind END,
            v_wanted);
    END IF;
    v_reason := tidegate.flow_out_of_bounds(p_schema, p_value);
    IF v_reason IS NOT NULL THEN
        RETURN format('%s %s', p_at, v_reason);
    END IF;
    RETURN CASE v_kind
        WHEN 'object' THEN tidegate.flow_field_misfit(p_schema, p_value, p_whole, p_at)
        WHEN 'array' THEN (
            SELECT min(reason) FROM (
                SELECT tidegate.flow_misfit(
                    coalesce(p_schema -> 'prefixItems' -> (number - 1)::integer, p_schema -> 'items'),
                    value, p_whole, format('%s[%s]', p_at, number - 1)) AS reason
                FROM jsonb_array_elements(p_value) WITH ORDINALITY AS one (value, number)
            ) AS found)
    END;
END
$$;

-- The same for the fields of an object.
CREATE OR REPLACE FUNCTION tidegate.flow_field_misfit(
    p_schema jsonb, p_value jsonb, p_whole jsonb, p_at text
) RETURNS text
LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_missing text;
BEGIN
    SELECT name INTO v_missing
    FROM jsonb_array_elements_text(p_schema -> 'required') AS one (name) WHERE NOT p_value ? name;
    IF FOUND THEN
        RETURN format('%s has no %s', p_at, v_missing);
    END IF;
    RETURN (
        SELECT min(reason) FROM (
            SELECT CASE
                WHEN p_schema -> 'properties' ? name
                THEN tidegate.flow_misfit(
                    p_schema -> 'properties' -> name, value, p_whole, format('%s.%s', p_at, name))
                WHEN p_schema -> 'additionalProperties' = 'false'
                THEN format('%s has an unknown %s', p_at, name)
                ELSE tidegate.flow_misfit(
                    p_schema -> 'additionalProperties', value, p_whole, format('%s.%s', p_at, name))
            END AS reason
            FROM jsonb_each(p_value) AS one (name, value)
        ) AS found);
END
$$;

-- Refuse a value that is not of its declared type.
CREATE OR REPLACE FUNCTION tidegate.flow_check_type(p_of text, p_schema jsonb, p_value jsonb)
RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_reason text := left(tidegate.flow_misfit(p_schema, p_value, p_schema), 300);
BEGIN
    IF v_reason IS NOT NULL THEN
        PERFORM tidegate.flow_refuse(
            'TG009', format('%s: %s', p_of, v_reason), jsonb_build_object(
                'of', p_of, 'value', left(p_value::text, 100), 'reason', v_reason));
    END IF;
END
$$;
