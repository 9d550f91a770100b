-- Tasks of flows, as workers see them.

-- name: claim — Claim ready tasks, up to a limit of each queue and of all.
SELECT step_id, position, run_id, queue, epoch, attempt, payload, wait_number, waited
FROM tidegate.flow_claim(%(owner)s, %(queues)s::text[], %(limits)s::integer[], %(most)s);

-- name: complete — Complete tasks; returns those whose claim was lost.
SELECT run_id, step, position, epoch, holder, current
FROM tidegate.flow_complete(%(owner)s, %(results)s::jsonb);

-- name: fail — Record a failed attempt.
SELECT tidegate.flow_fail(
    %(owner)s, %(run)s, %(step)s, %(position)s, %(epoch)s, %(error)s, %(pause)s, %(is_final)s
);

-- name: spawn — Create tasks for items.
SELECT spawned, in_flight
FROM tidegate.flow_spawn(
    %(owner)s, %(run)s, %(step)s, %(epoch)s, %(items)s::jsonb, %(cursor)s::jsonb,
    %(cursor_position)s
);

-- name: finish_generator — Declare that there are no more items.
SELECT tidegate.flow_finish_generator(%(owner)s, %(run)s, %(step)s, %(epoch)s);

-- name: skip — Skip a step whose condition does not hold.
SELECT tidegate.flow_skip(%(owner)s, %(run)s, %(step)s, %(epoch)s);

-- name: suspend — Suspend a task until the state changes.
SELECT tidegate.flow_suspend(
    %(owner)s, %(run)s, %(step)s, %(position)s, %(epoch)s, %(keys)s::text[], %(seen)s, %(number)s,
    %(poll)s, %(timeout)s
);

-- name: record_gate — Record what a task is about to wait for.
SELECT tidegate.flow_record_gate(
    %(owner)s, %(run)s, %(step)s, %(position)s, %(epoch)s, (
        SELECT jsonb_agg(jsonb_strip_nulls(jsonb_build_object(
            'key', it ->> 'key', 'target_key', it ->> 'target_key',
            'target', (it ->> 'target')::jsonb)))
        FROM jsonb_array_elements(%(gate)s::jsonb) AS it)
);

-- name: pass_wait — Continue a task after its wait.
SELECT tidegate.flow_pass_wait(%(owner)s, %(run)s, %(step)s, %(position)s, %(epoch)s);

-- name: put_back — Return tasks that were not started.
SELECT tidegate.flow_put_back(%(owner)s, %(tasks)s::jsonb);

-- name: inputs — The input of a run and its signal for a step.
SELECT run.input::text, signal.payload::text
FROM tidegate.flow_run AS run
LEFT JOIN tidegate.flow_signal AS signal ON signal.run_id = run.id AND signal.step = %(step)s
WHERE run.id = %(run)s;

-- name: generator — The position of a generator.
SELECT spawned, spawned - succeeded - failed - canceled, cursor::text, cursor_position
FROM tidegate.flow_step
WHERE id = %(step)s;

-- name: unwanted — The runs that are neither running nor paused.
SELECT id
FROM tidegate.flow_run
WHERE id = ANY(%(runs)s::bigint[]) AND state NOT IN ('running', 'paused');

-- name: paused — The runs that are paused.
SELECT id
FROM tidegate.flow_run
WHERE id = ANY(%(runs)s::bigint[]) AND state = 'paused';

-- name: held_by — The open claims of a worker, without their payloads.
SELECT step_id, position, run_id, queue, epoch, attempts, NULL, wait_number, NULL
FROM tidegate.flow_task
WHERE owner = %(owner)s AND state = 'claimed';
