-- Completing tasks looks for those that are refused only when there are some.

CREATE OR REPLACE FUNCTION tidegate.flow_complete(p_owner text, p_results jsonb)
RETURNS TABLE (run_id bigint, step text, "position" bigint, epoch bigint, holder text, current bigint)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    v_done record;
    v_run tidegate.flow_run;
    v_step bigint;
    v_steps bigint[] := '{}';
    v_number bigint := 0;
BEGIN
    PERFORM FROM tidegate.flow_run
    WHERE id IN (
        SELECT DISTINCT given.run FROM jsonb_to_recordset(p_results) AS given (run bigint))
    ORDER BY id FOR NO KEY UPDATE;
    FOR v_done IN
        WITH done AS (
            UPDATE tidegate.flow_task AS task
            SET state = 'succeeded', result = given.result, closed_at = clock_timestamp()
            FROM jsonb_to_recordset(p_results) AS given (
                step bigint, position bigint, epoch bigint, result jsonb)
            WHERE task.step_id = given.step AND task.position = given.position
            AND (task.owner = p_owner AND task.epoch = given.epoch AND task.state = 'claimed')
                IS TRUE  -- so that it goes by the key, and not by all that is claimed
            RETURNING task.run_id, task.step_id, task.position, given.result
        )
        SELECT done.run_id, done.step_id, count(*) FILTER (WHERE done.position >= 0) AS items,
            (array_agg(done.result) FILTER (WHERE done.position < 0))[1] AS own,
            bool_or(done.position < 0) AS is_own, count(*) AS number
        FROM done GROUP BY done.run_id, done.step_id ORDER BY done.run_id, done.step_id
    LOOP
        SELECT * INTO v_run FROM tidegate.flow_run WHERE id = v_done.run_id;
        UPDATE tidegate.flow_step SET succeeded = succeeded + v_done.items
        WHERE id = v_done.step_id;
        IF v_done.is_own AND v_run.state <> 'canceling' THEN
            PERFORM tidegate.flow_complete_own(v_run, v_done.step_id, v_done.own);
        END IF;
        v_steps := v_steps || v_done.step_id;
        v_number := v_number + v_done.number;
    END LOOP;
    -- Only then: a step that fails its run ends the others, which may be done by this call too.
    FOREACH v_step IN ARRAY v_steps LOOP
        SELECT run.* INTO v_run
        FROM tidegate.flow_run AS run JOIN tidegate.flow_step AS step ON step.run_id = run.id
        WHERE step.id = v_step;
        PERFORM tidegate.flow_follow(v_run, v_step);
    END LOOP;
    -- Nearly always all were ours, and there are no others to look for.
    IF v_number = jsonb_array_length(p_results) THEN
        RETURN;
    END IF;
    RETURN QUERY
    SELECT given.run, coalesce(step.name, ''), given.position, given.epoch,
        CASE WHEN task.state = 'claimed' THEN 'held by ' || task.owner
            ELSE coalesce(task.state, 'gone') END,
        coalesce(task.epoch, 0)
    FROM jsonb_to_recordset(p_results) AS given (
        run bigint, step bigint, position bigint, epoch bigint)
    LEFT JOIN tidegate.flow_task AS task
        ON task.step_id = given.step AND task.position = given.position
    LEFT JOIN tidegate.flow_step AS step ON step.id = given.step
    WHERE (task.owner = p_owner AND task.epoch = given.epoch AND task.state = 'succeeded')
        IS NOT TRUE;
END
$$;
