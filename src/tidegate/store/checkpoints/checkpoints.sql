-- Checkpoints. Lock order: runs, sources and checkpoints, channels.

-- name: set_checkpoints — Set the checkpoint configuration of a run.
UPDATE tidegate.run SET checkpoints = %(checkpoints)s::jsonb WHERE id = %(run)s;

-- name: trigger — Trigger a checkpoint unless one is pending or every source has ended.
INSERT INTO tidegate.checkpoint (run_id, number, id, epoch, unpublished, alignment_timeout)
SELECT
    %(run)s, coalesce(max(number), 0) + 1, %(id)s, coalesce(max(epoch), 0) + 1, %(unpublished)s,
    %(alignment_timeout)s
FROM tidegate.checkpoint
WHERE run_id = %(run)s
HAVING EXISTS (SELECT FROM tidegate.source WHERE run_id = %(run)s AND ended_at IS NULL)
ON CONFLICT DO NOTHING
RETURNING number;

-- name: pending_barriers — The barriers that sources of a pipeline's runs have to inject.
SELECT
    run.id, run.pipeline, run.name, run.incarnation, run.state, run.cause,
    source.name, checkpoint.number, checkpoint.epoch, checkpoint.unpublished
FROM tidegate.checkpoint
JOIN tidegate.run ON run.id = checkpoint.run_id
JOIN tidegate.source ON source.run_id = run.id
WHERE checkpoint.state NOT IN ('committed', 'aborted')
    AND run.pipeline = %(pipeline)s AND run.state = 'open'
    AND source.ended_at IS NULL AND source.injected < checkpoint.number
    AND checkpoint.alignment_timeout IS DISTINCT FROM 0
ORDER BY run.id, source.name;

-- name: lock_injection — Whether a source still has to inject this barrier; locked until the commit.
SELECT source.injected < checkpoint.number AND source.ended_at IS NULL
FROM tidegate.checkpoint
JOIN tidegate.source ON source.run_id = checkpoint.run_id AND source.name = %(source)s
WHERE checkpoint.run_id = %(run)s AND checkpoint.number = %(number)s
    AND checkpoint.state NOT IN ('committed', 'aborted')
FOR NO KEY UPDATE OF source
FOR SHARE OF checkpoint;

-- name: record_injected — Record the last barrier of a source.
UPDATE tidegate.source SET injected = %(number)s WHERE run_id = %(run)s AND name = %(source)s;

-- name: acknowledge — Record which tasks have forwarded a barrier; closed runs are skipped.
INSERT INTO tidegate.acknowledgement (run_id, number, task, alignment_seconds, last_upstream, bytes)
SELECT
    given.run_id, given.number, given.task, given.alignment_seconds, given.last_upstream, given.bytes
FROM jsonb_to_recordset(%(given)s::jsonb) AS given (
    run_id bigint, number bigint, task text, alignment_seconds double precision,
    last_upstream text, bytes bigint
)
JOIN tidegate.checkpoint USING (run_id, number)
JOIN tidegate.run ON run.id = given.run_id
WHERE run.state = 'open'
FOR KEY SHARE OF checkpoint
ON CONFLICT DO NOTHING;

-- name: add_entries — Add state at a barrier.
INSERT INTO tidegate.task_state (run_id, task, number, position, input, payload, files)
SELECT given.run_id, given.task, given.number, given.position, given.input, given.payload, given.files
FROM jsonb_to_recordset(%(given)s::jsonb) AS given (
    run_id bigint, task text, number bigint, position integer, input integer, payload jsonb,
    files jsonb
)
JOIN tidegate.run ON run.id = given.run_id
WHERE run.state = 'open'
ON CONFLICT DO NOTHING;

-- name: add_state — Add state outside of a checkpoint, unless it was added before.
-- It belongs to the checkpoints after the last one that the task has acknowledged or that is unaligned.
-- Positions of state at a barrier start at 0, these at 1000000000.
INSERT INTO tidegate.task_state (run_id, task, number, position, input, payload, files)
SELECT given.run_id, given.task, next.number, start.position + given.position, given.input, given.payload,
    given.files
FROM jsonb_to_recordset(%(given)s::jsonb) AS given (
    run_id bigint, task text, channel bigint, origin bigint, position integer, input integer,
    payload jsonb, files jsonb
)
JOIN tidegate.run ON run.id = given.run_id AND run.state = 'open'
JOIN tidegate.cursor ON cursor.channel_id = given.channel AND cursor.seq = given.origin
CROSS JOIN LATERAL (
    SELECT 1 + greatest(run.last_unaligned, (
        SELECT max(number) FROM tidegate.acknowledgement
        WHERE run_id = given.run_id AND task = given.task
    )) AS number
) AS next
CROSS JOIN LATERAL (
    SELECT greatest(1000000000, 1 + max(position)) AS position
    FROM tidegate.task_state
    WHERE run_id = given.run_id AND task = given.task AND number = next.number
) AS start;

-- name: compact — Mark state of an input as replaced by that of a later checkpoint.
UPDATE tidegate.task_state
SET removed = given.number
FROM jsonb_to_recordset(%(given)s::jsonb) AS given (
    run_id bigint, task text, number bigint, input integer, up_to bigint
)
WHERE task_state.run_id = given.run_id AND task_state.task = given.task AND task_state.input = given.input
    AND task_state.number <= given.up_to AND task_state.removed IS NULL;

-- name: stage — Add sink output of one checkpoint; visible when it is committed.
INSERT INTO tidegate.sink_output (run_id, number, position, payload, files)
SELECT given.run_id, given.number, given.position, given.payload, given.files
FROM jsonb_to_recordset(%(given)s::jsonb) AS given (
    run_id bigint, number bigint, position integer, payload jsonb, files jsonb
)
JOIN tidegate.checkpoint USING (run_id, number)
JOIN tidegate.run ON run.id = given.run_id
WHERE run.state = 'open'
FOR KEY SHARE OF checkpoint
ON CONFLICT DO NOTHING;

-- name: state_of — The state of a task, in the order in which it was added.
SELECT input, number, payload::text
FROM tidegate.task_state
WHERE run_id = %(run)s AND task = %(task)s AND removed IS NULL
ORDER BY number, position;

-- name: withdrawn — The checkpoints of runs whose barriers are to be ignored.
-- These are all up to the last unaligned one, and later aborted ones.
SELECT run.id, run.last_unaligned, ARRAY(
    SELECT number FROM tidegate.checkpoint
    WHERE run_id = run.id AND state = 'aborted' AND number > run.last_unaligned
    ORDER BY number
)
FROM tidegate.run
WHERE run.id = ANY(%(runs)s::bigint[]);

-- name: runs_to_checkpoint — The runs of a pipeline with periodic checkpoints or a pending one.
-- Runs often, while most runs are closed: candidates are found by indexes.
WITH concerned AS (
    SELECT id FROM tidegate.run
    WHERE pipeline = %(pipeline)s AND state = 'open' AND checkpoints IS NOT NULL
    UNION
    SELECT run.id
    FROM tidegate.checkpoint
    JOIN tidegate.run ON run.id = checkpoint.run_id
    WHERE checkpoint.state NOT IN ('committed', 'aborted') AND pipeline = %(pipeline)s
)
SELECT
    run.id, run.pipeline, run.name, run.incarnation, run.state, run.cause,
    run.checkpoints::text,
    coalesce((
        SELECT channel.to_task FROM tidegate.channel
        WHERE channel.run_id = run.id AND NOT EXISTS (
            SELECT FROM tidegate.channel AS next
            WHERE next.run_id = run.id AND next.from_task = channel.to_task
        )
        LIMIT 1
    ), ''),
    EXISTS (SELECT FROM tidegate.source WHERE run_id = run.id AND ended_at IS NULL),
    extract(epoch FROM clock_timestamp() - greatest(run.begun_at, past.triggered_at))::float8,
    extract(epoch FROM clock_timestamp() - greatest(run.begun_at, past.settled_at))::float8,
    extract(epoch FROM clock_timestamp() - greatest(run.begun_at, past.published_at))::float8,
    coalesce(past.failures, 0), coalesce(past.unaligned, 0)
FROM concerned
JOIN tidegate.run USING (id)
LEFT JOIN LATERAL (
    SELECT
        max(triggered_at) AS triggered_at,
        max(settled_at) AS settled_at,
        max(settled_at) FILTER (WHERE state = 'committed' AND NOT unpublished) AS published_at,
        count(*) FILTER (
            WHERE state = 'aborted' AND settled_at > run.begun_at AND number > coalesce(
                (SELECT max(number) FROM tidegate.checkpoint AS good
                 WHERE good.run_id = run.id AND good.state = 'committed'), 0)
        ) AS failures,
        count(*) FILTER (
            WHERE state = 'committed' AND unaligned AND number > coalesce(
                (SELECT max(number) FROM tidegate.checkpoint AS shown
                 WHERE shown.run_id = run.id AND shown.state = 'committed' AND NOT shown.unpublished), 0)
        ) AS unaligned
    FROM tidegate.checkpoint
    WHERE run_id = run.id
) AS past ON true
ORDER BY run.id;

-- name: pending — The checkpoint of a run that is neither committed nor aborted.
SELECT
    number, epoch, state,
    extract(epoch FROM clock_timestamp() - triggered_at)::float8,
    extract(epoch FROM clock_timestamp() - acknowledged_at)::float8,
    ARRAY(
        SELECT name FROM tidegate.source
        WHERE source.run_id = checkpoint.run_id AND ended_at IS NULL AND injected < number
        ORDER BY name
    ),
    ARRAY(
        SELECT task FROM tidegate.acknowledgement
        WHERE acknowledgement.run_id = checkpoint.run_id
            AND acknowledgement.number = checkpoint.number
        ORDER BY task
    ),
    alignment_timeout
FROM tidegate.checkpoint
WHERE run_id = %(run)s AND state NOT IN ('committed', 'aborted');

-- name: waiting — The tasks that align a barrier, with their channels and whether it has arrived there.
WITH arrived AS (
    SELECT channel.id, channel.to_task, message.sent_at
    FROM tidegate.channel
    JOIN tidegate.cursor ON cursor.channel_id = channel.id
    JOIN tidegate.message ON message.channel_id = channel.id AND message.seq > cursor.seq
    WHERE channel.run_id = %(run)s AND message.kind = 'barrier'
        AND message.payload ->> 'kind' = 'checkpoint'
        AND (message.payload ->> 'id')::bigint = %(number)s
)
SELECT
    channel.to_task, channel.from_task, arrived.id IS NOT NULL,
    extract(epoch FROM statement_timestamp() - min(arrived.sent_at) OVER (
        PARTITION BY channel.to_task
    ))::float8
FROM tidegate.channel
LEFT JOIN arrived ON arrived.id = channel.id
WHERE channel.run_id = %(run)s AND channel.to_task IN (SELECT to_task FROM arrived)
    AND (channel.declared IS NULL OR arrived.id IS NOT NULL)
    AND NOT EXISTS (
        SELECT FROM tidegate.acknowledgement
        WHERE acknowledgement.run_id = channel.run_id AND number = %(number)s
            AND task = channel.to_task
    )
ORDER BY channel.to_task, channel.from_task;

-- name: advance — Set the state of a pending checkpoint.
UPDATE tidegate.checkpoint
SET state = %(state)s,
    injected_at = CASE WHEN %(state)s = 'injected' THEN clock_timestamp() ELSE injected_at END,
    aligning_at = CASE WHEN %(state)s = 'aligning' THEN clock_timestamp() ELSE aligning_at END,
    acknowledged_at = CASE
        WHEN %(state)s = 'acknowledged' THEN clock_timestamp() ELSE acknowledged_at
    END
WHERE run_id = %(run)s AND number = %(number)s AND state NOT IN ('committed', 'aborted');

-- name: abort — Abort a pending checkpoint; it keeps the first reason.
UPDATE tidegate.checkpoint
SET state = 'aborted', settled_at = clock_timestamp(), reason = %(reason)s, offender = %(offender)s
WHERE run_id = %(run)s AND number = %(number)s AND state NOT IN ('committed', 'aborted');

-- name: record_unused — Record the files of in-flight messages as unused.
INSERT INTO tidegate.unused_file (run_id, file)
SELECT DISTINCT run_id, jsonb_path_query(payload, '$.**.files[*]') #>> '{}'
FROM tidegate.in_flight_message WHERE run_id = %(run)s AND number = %(number)s
ON CONFLICT DO NOTHING;

-- name: drop_in_flight — Remove the in-flight messages of a checkpoint.
DELETE FROM tidegate.in_flight_message WHERE run_id = %(run)s AND number = %(number)s;

-- name: drop_outputs — Remove the sink output of a checkpoint.
DELETE FROM tidegate.sink_output WHERE run_id = %(run)s AND number = %(number)s;

-- name: commit — The one row by which a checkpoint becomes visible, with all of its sinks.
UPDATE tidegate.checkpoint
SET state = 'committed', settled_at = clock_timestamp(),
    acknowledged_at = coalesce(acknowledged_at, clock_timestamp()),
    manifest = jsonb_build_object(
        'id', id,
        'number', number,
        'epoch', epoch,
        'plan', (SELECT plan FROM tidegate.run WHERE id = %(run)s),
        'versions', %(versions)s::jsonb,
        'is_published', NOT unpublished,
        'is_aligned', NOT unaligned,
        'sources', (
            SELECT jsonb_object_agg(name, jsonb_strip_nulls(jsonb_build_object(
                'chunks', before.chunks,
                'ended', ended_at IS NOT NULL AND injected < %(number)s,
                'watermark', before.watermark
            )))
            FROM tidegate.source
            CROSS JOIN LATERAL (
                SELECT count(*) AS chunks, max(chunk.watermark) AS watermark
                FROM tidegate.chunk
                WHERE chunk.run_id = source.run_id AND chunk.source = source.name
                    AND after_checkpoint < %(number)s
            ) AS before
            WHERE run_id = %(run)s
        ),
        'added', coalesce((
            SELECT jsonb_agg(
                jsonb_build_object('task', task, 'input', input, 'files', files)
                ORDER BY task, position
            )
            FROM tidegate.task_state
            WHERE run_id = %(run)s AND number <= %(number)s AND number > coalesce((
                SELECT max(number) FROM tidegate.checkpoint AS earlier
                WHERE earlier.run_id = %(run)s AND earlier.state = 'committed'
            ), 0)
        ), '[]'),
        'in_flight', coalesce((
            SELECT jsonb_agg(
                jsonb_build_object('from', from_task, 'to', to_task, 'input', input, 'files', files)
                ORDER BY position
            )
            FROM tidegate.in_flight_message
            WHERE run_id = %(run)s AND number = %(number)s AND kind = 'event'
        ), '[]'),
        'outputs', coalesce((
            SELECT jsonb_agg(payload || jsonb_build_object('files', files) ORDER BY position)
            FROM tidegate.sink_output WHERE run_id = %(run)s AND number = %(number)s
        ), '[]')
    )
WHERE run_id = %(run)s AND number = %(number)s AND state NOT IN ('committed', 'aborted');

-- name: checkpoints_of — The checkpoints of a run, each with the task that delayed its barrier most.
SELECT
    checkpoint.number, checkpoint.id, checkpoint.epoch, checkpoint.state,
    checkpoint.triggered_at,
    extract(epoch FROM coalesce(settled_at, clock_timestamp()) - triggered_at)::float8,
    coalesce(acknowledged.alignment_seconds, 0), (coalesce(acknowledged.bytes, 0) + in_flight.bytes)::bigint,
    acknowledged.slowest, reason, offender, NOT unpublished, NOT unaligned,
    (SELECT min((source.value ->> 'watermark')::bigint)
     FROM jsonb_each(manifest -> 'sources') AS source
     WHERE NOT (source.value ->> 'ended')::boolean)
FROM tidegate.checkpoint
LEFT JOIN LATERAL (
    SELECT
        max(alignment_seconds) AS alignment_seconds, sum(bytes) AS bytes,
        (array_agg(task ORDER BY acknowledged_at - coalesce((
            SELECT max(before.acknowledged_at)
            FROM tidegate.channel
            JOIN tidegate.acknowledgement AS before
                ON before.run_id = channel.run_id AND before.task = channel.from_task
            WHERE channel.run_id = checkpoint.run_id AND channel.to_task = acknowledgement.task
                AND before.number = checkpoint.number AND before.last_upstream IS NOT NULL
        ), checkpoint.triggered_at) DESC, task) FILTER (WHERE last_upstream IS NOT NULL))[1] AS slowest
    FROM tidegate.acknowledgement
    WHERE acknowledgement.run_id = checkpoint.run_id
        AND acknowledgement.number = checkpoint.number
) AS acknowledged ON true
CROSS JOIN LATERAL (
    SELECT coalesce(sum((file ->> 'bytes')::bigint), 0) AS bytes
    FROM tidegate.in_flight_message
    CROSS JOIN LATERAL jsonb_array_elements(files) AS file
    WHERE in_flight_message.run_id = checkpoint.run_id AND in_flight_message.number = checkpoint.number
) AS in_flight
WHERE checkpoint.run_id = %(run)s
ORDER BY checkpoint.number;

-- name: manifest_of — The manifest of a committed checkpoint, by default the latest.
-- Locked until the commit, so that its sink output stays.
SELECT number, manifest
FROM tidegate.checkpoint
WHERE run_id = %(run)s AND state = 'committed' AND number = coalesce(%(number)s, number)
    AND NOT (unpublished AND %(published)s)
ORDER BY number DESC
LIMIT 1
FOR KEY SHARE;

-- name: sink_results — The results of all sinks at a checkpoint, from the state of the collector.
SELECT payload
FROM (
    SELECT number, position, payload
    FROM tidegate.task_state
    WHERE run_id = %(run)s AND task = %(task)s AND number <= %(number)s
        AND (removed IS NULL OR removed > %(number)s)
    UNION ALL
    SELECT number, position, payload
    FROM tidegate.sink_output
    WHERE run_id = %(run)s AND number = %(number)s
) AS given
ORDER BY number, position;
