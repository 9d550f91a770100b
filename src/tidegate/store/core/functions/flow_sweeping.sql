-- Sweeping of flows: safe to call by any process, at any time.

-- Locked runs are skipped, so that one long lock does not delay the others. To reach runs that are
-- always busy, one of the locked ones is waited for, briefly.
CREATE OR REPLACE FUNCTION tidegate.flow_await_one(p_runs bigint[]) RETURNS void
LANGUAGE plpgsql SET lock_timeout = '250ms' AS $$
DECLARE
    v_one bigint := p_runs[1 + floor(random() * cardinality(p_runs))::integer];
BEGIN
    PERFORM FROM tidegate.flow_run WHERE id = v_one FOR NO KEY UPDATE;
EXCEPTION WHEN lock_not_available THEN
    NULL;
END
$$;

-- Free a task of a lost worker, or fail it when too many workers were lost with it.
CREATE OR REPLACE FUNCTION tidegate.flow_free_task(
    p_run tidegate.flow_run, p_task tidegate.flow_task, p_has_died boolean, p_most_losses integer
) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF p_has_died AND (p_task).losses >= p_most_losses THEN
        PERFORM tidegate.flow_fail_task(p_run, p_task, format(
            'workers were lost with it %s times, the last one was %s',
            (p_task).losses + 1, (p_task).owner));
        RETURN;
    END IF;
    PERFORM tidegate.flow_let_go(p_run, p_task);
    IF p_has_died THEN
        -- A task that ends its workers is eventually claimed alone, not with the same other tasks.
        UPDATE tidegate.flow_task
        SET losses = losses + 1, available_at = now() + CASE WHEN losses > 0
            THEN random() * least(60.0, 0.25 * 2 ^ losses) ELSE 0 END * interval '1 second'
        WHERE step_id = (p_task).step_id AND position = (p_task).position;
        UPDATE tidegate.flow_step
        SET last_error = format('%s died with %s', (p_task).owner,
            CASE WHEN (p_task).position < 0 THEN 'it' ELSE 'item ' || (p_task).position END)
            || CASE WHEN (p_task).losses > 0
                THEN format(', which %s others have done', (p_task).losses) ELSE '' END
        WHERE id = (p_task).step_id;
    END IF;
END
$$;

CREATE OR REPLACE FUNCTION tidegate.flow_sweep(p_most_losses integer DEFAULT 10)
RETURNS TABLE (freed bigint, woken bigint, ended bigint)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    v_gone text[];
    v_stopped text[];
    v_runs bigint[];
    v_run tidegate.flow_run;
    v_task tidegate.flow_task;
BEGIN
    freed := 0;
    woken := 0;
    ended := 0;
    -- One sweep at a time: what another process sweeps need not be waited for.
    IF NOT pg_try_advisory_xact_lock(hashtext('tidegate.flow_sweep')) THEN
        RETURN NEXT;
        RETURN;
    END IF;
    SELECT array_agg(owner) INTO v_gone FROM (
        SELECT DISTINCT owner FROM tidegate.flow_task WHERE state = 'claimed') AS at_work
    WHERE NOT EXISTS (
        SELECT FROM tidegate.lease
        WHERE kind = 'flow worker' AND key = at_work.owner
        AND tidegate.lease_is_held(lease.owner, expires_at, seconds));
    -- A suspended worker notices the loss of its lease and drops its tasks. A worker that released its
    -- lease was stopped and is not counted as lost; the row stays until all its tasks are freed.
    DELETE FROM tidegate.lease
    WHERE kind = 'flow worker' AND CASE
        WHEN owner IS NOT NULL THEN NOT tidegate.lease_is_held(owner, expires_at, seconds)
        ELSE NOT EXISTS (
            SELECT FROM tidegate.flow_task AS task
            WHERE task.state = 'claimed' AND task.owner = lease.key)
    END;
    v_stopped := ARRAY(
        SELECT key FROM tidegate.lease WHERE kind = 'flow worker' AND owner IS NULL);
    v_gone := ARRAY(SELECT unnest(v_gone) EXCEPT
        SELECT key FROM tidegate.lease WHERE kind = 'flow worker' AND owner IS NOT NULL);
    v_runs := ARRAY(
        SELECT run_id FROM tidegate.flow_task WHERE state = 'claimed' AND owner = ANY (v_gone)
        UNION SELECT task.run_id
        FROM tidegate.flow_task AS task JOIN tidegate.flow_run AS run ON run.id = task.run_id
        WHERE task.state = 'suspended' AND task.wait_until <= now() AND run.state = 'running'
        UNION SELECT id FROM tidegate.flow_run WHERE state = 'canceling');
    PERFORM tidegate.flow_await_one(v_runs);
    FOR v_run IN
        SELECT * FROM tidegate.flow_run
        WHERE id = ANY (v_runs) ORDER BY id FOR NO KEY UPDATE SKIP LOCKED
    LOOP
        FOR v_task IN
            SELECT * FROM tidegate.flow_task
            WHERE state = 'claimed' AND owner = ANY (v_gone) AND run_id = v_run.id
            FOR UPDATE
        LOOP
            freed := freed + 1;
            PERFORM tidegate.flow_free_task(
                v_run, v_task, v_task.owner <> ALL (v_stopped), p_most_losses);
            EXIT WHEN (SELECT state FROM tidegate.flow_run WHERE id = v_run.id) = 'failed';
        END LOOP;
        UPDATE tidegate.flow_task SET state = tidegate.flow_free(v_run)
        WHERE run_id = v_run.id AND state = 'suspended' AND wait_until <= now()
        AND v_run.state = 'running';
        IF FOUND THEN
            woken := woken + 1;
        END IF;
        IF v_run.state = 'canceling' AND tidegate.flow_settle_canceling(v_run.id) THEN
            ended := ended + 1;
        END IF;
        PERFORM tidegate.flow_notify(v_run);
    END LOOP;
    RETURN NEXT;
END
$$;

COMMENT ON FUNCTION tidegate.flow_sweep IS
    'Free the claims of lost workers, wake tasks whose wait has timed out, and cancel runs in state '
    'canceling without claims.';

CREATE OR REPLACE FUNCTION tidegate.flow_remove_closed(
    p_seconds double precision, p_most integer DEFAULT 10, p_tasks bigint DEFAULT 10000
) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    v_run bigint;
    v_removed bigint := 0;
    v_number bigint;
    v_left bigint := p_tasks;
BEGIN
    FOR v_run IN
        SELECT id FROM tidegate.flow_run
        WHERE closed_at < now() - make_interval(secs => p_seconds)
        ORDER BY closed_at LIMIT p_most
        FOR UPDATE SKIP LOCKED
    LOOP
        v_removed := v_removed + 1;
        DELETE FROM tidegate.flow_task WHERE ctid = ANY (ARRAY(
            SELECT task.ctid
            FROM tidegate.flow_task AS task JOIN tidegate.flow_step AS step
                ON step.id = task.step_id
            WHERE step.run_id = v_run LIMIT v_left));
        GET DIAGNOSTICS v_number = ROW_COUNT;
        v_left := v_left - v_number;
        IF v_left <= 0 THEN  -- a run that is not whole any more is known by its date
            UPDATE tidegate.flow_run SET closed_at = 'epoch' WHERE id = v_run;
            EXIT;
        END IF;
        DELETE FROM tidegate.flow_run WHERE id = v_run;
    END LOOP;
    RETURN v_removed;
END
$$;

COMMENT ON FUNCTION tidegate.flow_remove_closed IS
    'Remove runs that were closed so many seconds ago: some of them, with at most so many tasks. '
    'Returns how many it has handled; 0 when nothing is left to remove.';

-- Deleting a run by hand deletes its tasks too; `flow_remove_closed` has left none.
CREATE OR REPLACE FUNCTION tidegate.flow_remove_tasks() RETURNS trigger
LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
    DELETE FROM tidegate.flow_task WHERE step_id = OLD.id;
    RETURN NULL;
END
$$;

CREATE OR REPLACE TRIGGER flow_step_removed AFTER DELETE ON tidegate.flow_step
    FOR EACH ROW EXECUTE FUNCTION tidegate.flow_remove_tasks();
