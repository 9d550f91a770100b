-- The tasks of flows, as their workers see them.

-- name: claim — Claim what is ready, so many of each queue, and so many of all.
SELECT step_id, position, run_id, queue, epoch, attempt, payload, wait_number, waited
FROM tidegate.flow_claim(%(owner)s, %(queues)s::text[], %(rooms)s::integer[], %(most)s);

-- name: complete — Complete tasks; answers those that are not ours any more.
SELECT run_id, step, position, epoch, holder, current
FROM tidegate.flow_complete(%(owner)s, %(results)s::jsonb);

-- name: fail — An attempt has failed.
SELECT tidegate.flow_fail(
    %(owner)s, %(run)s, %(step)s, %(position)s, %(epoch)s, %(error)s, %(pause)s, %(is_final)s
);

-- name: spawn — Make items tasks.
SELECT spawned, in_flight
FROM tidegate.flow_spawn(
    %(owner)s, %(run)s, %(step)s, %(epoch)s, %(items)s::jsonb, %(cursor)s::jsonb,
    %(cursor_position)s
);

-- name: finish_generator — There are no more items.
SELECT tidegate.flow_finish_generator(%(owner)s, %(run)s, %(step)s, %(epoch)s);

-- name: skip — The condition of a step does not hold.
SELECT tidegate.flow_skip(%(owner)s, %(run)s, %(step)s, %(epoch)s);

-- name: suspend — Put a task aside until the state changes.
SELECT tidegate.flow_suspend(
    %(owner)s, %(run)s, %(step)s, %(position)s, %(epoch)s, %(keys)s::text[], %(seen)s, %(number)s,
    %(poll)s, %(timeout)s
);

-- name: tell_gate — Say what a task is about to wait for.
SELECT tidegate.flow_tell_gate(
    %(owner)s, %(run)s, %(step)s, %(position)s, %(epoch)s, (
        SELECT jsonb_agg(jsonb_strip_nulls(jsonb_build_object(
            'key', it ->> 'key', 'target_key', it ->> 'target_key',
            'target', (it ->> 'target')::jsonb)))
        FROM jsonb_array_elements(%(gate)s::jsonb) AS it)
);

-- name: pass_wait — A task goes on behind its wait.
SELECT tidegate.flow_pass_wait(%(owner)s, %(run)s, %(step)s, %(position)s, %(epoch)s);

-- name: put_back — Let tasks go that were not worked on.
SELECT tidegate.flow_put_back(%(owner)s, %(tasks)s::jsonb);

-- name: inputs — The input of a run and its signal for a step.
SELECT run.input::text, signal.payload::text
FROM tidegate.flow_run AS run
LEFT JOIN tidegate.flow_signal AS signal ON signal.run_id = run.id AND signal.step = %(step)s
WHERE run.id = %(run)s;

-- name: generator — Where a generator is.
SELECT spawned, spawned - succeeded - failed - canceled, cursor::text, cursor_position
FROM tidegate.flow_step
WHERE id = %(step)s;

-- name: unwanted — Which of these runs are closed or being canceled.
SELECT id
FROM tidegate.flow_run
WHERE id = ANY(%(runs)s::bigint[]) AND state NOT IN ('running', 'paused');

-- name: paused — Which of these runs are paused.
SELECT id
FROM tidegate.flow_run
WHERE id = ANY(%(runs)s::bigint[]) AND state = 'paused';

-- name: held_by — What a worker has claimed and not settled, without what there is to do.
SELECT step_id, position, run_id, queue, epoch, attempts, NULL, wait_number, NULL
FROM tidegate.flow_task
WHERE owner = %(owner)s AND state = 'claimed';
