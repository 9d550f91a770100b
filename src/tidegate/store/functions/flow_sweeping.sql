-- Sweeping behind flows: for anybody, as often as they like.

CREATE OR REPLACE FUNCTION tidegate.flow_sweep(p_most_losses integer DEFAULT 10)
RETURNS TABLE (freed bigint, woken bigint, ended bigint)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    v_dead text[];
    v_run tidegate.flow_run;
    v_task tidegate.flow_task;
BEGIN
    freed := 0;
    woken := 0;
    ended := 0;
    -- One at a time: what another sweeps at this moment need not be waited for.
    IF NOT pg_try_advisory_xact_lock(hashtext('tidegate.flow_sweep')) THEN
        RETURN NEXT;
        RETURN;
    END IF;
    SELECT array_agg(owner) INTO v_dead FROM (
        SELECT DISTINCT owner FROM tidegate.flow_task WHERE state = 'claimed') AS at_work
    WHERE NOT EXISTS (
        SELECT FROM tidegate.lease
        WHERE kind = 'flow worker' AND key = at_work.owner
        AND lease.owner IS NOT NULL AND expires_at > clock_timestamp());
    -- Without its lease a worker that was only asleep notices, and lets everything go.
    DELETE FROM tidegate.lease
    WHERE kind = 'flow worker' AND (owner IS NULL OR expires_at <= clock_timestamp());
    v_dead := ARRAY(SELECT unnest(v_dead) EXCEPT
        SELECT key FROM tidegate.lease WHERE kind = 'flow worker');
    FOR v_run IN
        SELECT * FROM tidegate.flow_run
        WHERE id IN (
            SELECT run_id FROM tidegate.flow_task WHERE state = 'claimed' AND owner = ANY (v_dead)
            UNION SELECT run_id FROM tidegate.flow_task
            WHERE state = 'parked' AND wait_until <= now()
            UNION SELECT id FROM tidegate.flow_run WHERE state = 'canceling')
        ORDER BY id FOR NO KEY UPDATE
    LOOP
        FOR v_task IN
            SELECT * FROM tidegate.flow_task
            WHERE state = 'claimed' AND owner = ANY (v_dead) AND run_id = v_run.id
            FOR UPDATE
        LOOP
            freed := freed + 1;
            IF v_task.losses >= p_most_losses THEN
                PERFORM tidegate.flow_fail_task(v_run, v_task, format(
                    'workers have died with it %s times, the last one was %s',
                    v_task.losses + 1, v_task.owner));
                EXIT WHEN (SELECT state FROM tidegate.flow_run WHERE id = v_run.id) = 'failed';
            ELSE
                PERFORM tidegate.flow_let_go(v_run, v_task);
                -- What kills its workers comes alone in the end, and not with the same innocents.
                UPDATE tidegate.flow_task
                SET losses = losses + 1, available_at = now() + CASE WHEN losses > 0
                    THEN random() * least(60.0, 0.25 * 2 ^ losses) ELSE 0 END * interval '1 second'
                WHERE step_id = v_task.step_id AND position = v_task.position;
            END IF;
        END LOOP;
        UPDATE tidegate.flow_task SET state = tidegate.flow_free(v_run)
        WHERE run_id = v_run.id AND state = 'parked' AND wait_until <= now();
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
    'Free what dead workers have claimed, wake waits whose bound has passed, and end runs that '
    'are being cancelled and that nobody works for any more.';

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
    'Forget runs that were closed so many seconds ago: some of them, with at most so many tasks. '
    'Answers how many it was at; 0 when nothing is left to forget.';
