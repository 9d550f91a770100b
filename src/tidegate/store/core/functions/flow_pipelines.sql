-- Pipeline runs that were started by tasks of flows.
--
-- Lock order: flow run, then pipeline run. Releasing a pipeline run never waits for a flow; flows are
-- notified with NOTIFY, and poll.

CREATE OR REPLACE FUNCTION tidegate.flow_suspend_for_pipeline(
    p_owner text, p_run bigint, p_step bigint, p_position bigint, p_epoch bigint,
    p_pipeline text, p_name text, p_pipeline_run bigint, p_number integer,
    p_timeout double precision
) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    v_run tidegate.flow_run := tidegate.flow_lock_if_there(p_run);
    v_is_open boolean;
    v_state text;
BEGIN
    -- Closing the pipeline run waits until the task is suspended, and the next sweep finds it closed.
    PERFORM FROM tidegate.run WHERE id = p_pipeline_run AND state = 'open' FOR SHARE;
    v_is_open := FOUND;
    v_state := tidegate.flow_suspend(
        p_owner, p_run, p_step, p_position, p_epoch, ARRAY[]::text[], 0, p_number, 0, p_timeout);
    IF v_state = 'suspended' THEN
        UPDATE tidegate.flow_pipeline
        SET pipeline_run_id = p_pipeline_run, is_settled = NOT v_is_open
        WHERE step_id = p_step AND position = p_position
        AND pipeline = p_pipeline AND name = p_name;
    END IF;
    IF v_state = 'suspended' AND NOT v_is_open THEN
        v_state := tidegate.flow_free(v_run);
        UPDATE tidegate.flow_task SET state = v_state
        WHERE step_id = p_step AND position = p_position;
        PERFORM tidegate.flow_notify(v_run);
    END IF;
    RETURN v_state;
END
$$;

COMMENT ON FUNCTION tidegate.flow_suspend_for_pipeline IS
    'Suspend a claimed task until this pipeline run is closed; ready at once when it is.';

CREATE OR REPLACE FUNCTION tidegate.flow_sweep_pipelines()
RETURNS TABLE (pipeline_run_id bigint, reason text)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    v_runs bigint[] := ARRAY(SELECT DISTINCT flow_run_id FROM tidegate.flow_pipeline_news);
    v_run tidegate.flow_run;
    v_link record;
BEGIN
    PERFORM tidegate.flow_await_one(v_runs);
    FOR v_run IN
        SELECT * FROM tidegate.flow_run
        WHERE id = ANY (v_runs) ORDER BY id FOR NO KEY UPDATE SKIP LOCKED
    LOOP
        -- Checked again under the lock: the task may have changed in the meantime.
        FOR v_link IN
            SELECT * FROM tidegate.flow_pipeline_news WHERE flow_run_id = v_run.id
        LOOP
            IF v_link.task_state = 'suspended' THEN
                UPDATE tidegate.flow_task
                SET state = tidegate.flow_free(v_run), available_at = now()
                WHERE step_id = v_link.step_id AND position = v_link.position;
            ELSIF v_link.is_open THEN
                pipeline_run_id := v_link.pipeline_run_id;
                reason := format('step %s of run %s of flow %s, which is %s, waits for it no more%s',
                    v_link.step, v_run.id, v_run.flow, v_run.state, ': ' || v_run.cause);
                RETURN NEXT;
            END IF;
            UPDATE tidegate.flow_pipeline SET is_settled = true
            WHERE step_id = v_link.step_id AND position = v_link.position
            AND pipeline = v_link.pipeline AND name = v_link.name;
        END LOOP;
        PERFORM tidegate.flow_notify(v_run);
    END LOOP;
END
$$;

COMMENT ON FUNCTION tidegate.flow_sweep_pipelines IS
    'Wake tasks whose pipeline runs are closed. Returns the open pipeline runs that no task needs, '
    'with the reason; the caller has to cancel them in the same transaction.';

-- Pipeline runs of tasks that wait for a closed one, or that are closed themselves.
CREATE OR REPLACE VIEW tidegate.flow_pipeline_news AS
SELECT
    link.step_id, link.position, link.pipeline, link.name, link.flow_run_id, link.pipeline_run_id,
    task.state AS task_state, run.id IS NOT NULL AS is_open, step.name AS step
FROM tidegate.flow_pipeline AS link
JOIN tidegate.flow_task AS task ON task.step_id = link.step_id AND task.position = link.position
JOIN tidegate.flow_step AS step ON step.id = link.step_id
LEFT JOIN tidegate.run ON run.id = link.pipeline_run_id AND run.state = 'open'
WHERE NOT link.is_settled AND (
    task.state IN ('succeeded', 'failed', 'canceled')
    OR (task.state = 'suspended' AND run.id IS NULL)
);

-- Retrying a run of a flow also starts its unsuccessful pipeline runs again, unless they were restored.
CREATE OR REPLACE FUNCTION tidegate.flow_forget_failed_pipelines() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM tidegate.flow_pipeline AS link
    WHERE flow_run_id = NEW.id AND EXISTS (
        SELECT FROM tidegate.run
        WHERE id = link.pipeline_run_id AND state IN ('failed', 'cancelled')
    ) AND NOT EXISTS (
        SELECT FROM tidegate.run
        WHERE lineage @> ARRAY[link.pipeline_run_id] AND state IN ('open', 'ended'));
    RETURN NULL;
END
$$;

CREATE OR REPLACE TRIGGER flow_run_retried AFTER UPDATE OF state ON tidegate.flow_run
    FOR EACH ROW WHEN (OLD.state = 'failed' AND NEW.state = 'running')
    EXECUTE FUNCTION tidegate.flow_forget_failed_pipelines();
