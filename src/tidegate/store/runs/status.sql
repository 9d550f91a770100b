-- Status of runs.

-- name: overview — The latest runs, optionally of one pipeline or with a name prefix.
SELECT
    run.id, run.pipeline, run.name, run.incarnation, run.state, run.cause,
    run.begun_at, run.closed_at, run.warn_at, run.deadline_at,
    coalesce(sum(source.delivered), 0)::bigint, sum(source.declared)::bigint,
    count(source.name), count(source.declared), count(source.ended_at),
    (SELECT count(*) FROM tidegate.result WHERE result.run_id = run.id)
FROM tidegate.run
LEFT JOIN tidegate.source ON source.run_id = run.id
WHERE (%(pipeline)s::text IS NULL OR run.pipeline = %(pipeline)s)
    AND starts_with(run.name, %(prefix)s)
GROUP BY run.id
ORDER BY run.id DESC
LIMIT %(limit)s;

-- name: sources_of — The sources of a run with delivered and declared chunks.
SELECT source.name, source.delivered, source.declared, source.declared_at, source.ended_at,
    coalesce(
        (SELECT max(delivered_at) FROM tidegate.chunk
         WHERE chunk.run_id = source.run_id AND chunk.source = source.name),
        run.begun_at),
    source.watermark
FROM tidegate.source
JOIN tidegate.run ON run.id = source.run_id
WHERE source.run_id = %(run)s
ORDER BY source.name;

-- name: delivered_chunks — The delivered chunks of a source after a number.
SELECT number, sha256, rows
FROM tidegate.chunk
WHERE run_id = %(run)s AND source = %(source)s AND number > %(after)s
ORDER BY number
LIMIT %(limit)s;

-- name: all_channels_of — The channels of a run: sent, declared, processed, and the age of the oldest unread.
-- The last column lists sent messages that are missing; there are none unless data was lost.
SELECT
    channel.from_task, channel.to_task, channel.input, channel.sent, channel.declared, cursor.seq,
    (SELECT message.sent_at FROM tidegate.message
     WHERE message.channel_id = channel.id AND message.seq = cursor.seq + 1),
    CASE
        WHEN channel.pruned + (SELECT count(*) FROM tidegate.message WHERE channel_id = channel.id)
            < channel.sent
        THEN ARRAY(
            SELECT number FROM generate_series(channel.pruned + 1, channel.sent) AS number
            WHERE NOT EXISTS (
                SELECT FROM tidegate.message WHERE channel_id = channel.id AND seq = number
            )
            ORDER BY number
            LIMIT 20
        )
    END
FROM tidegate.channel
JOIN tidegate.cursor ON cursor.channel_id = channel.id
WHERE channel.run_id = %(run)s
ORDER BY channel.id;

-- name: releases_of — The tasks at which a run was released.
SELECT task FROM tidegate.release WHERE run_id = %(run)s;

-- name: owners — The owners of leases of a kind, and the seconds until they expire.
SELECT key, owner, epoch, CASE
    WHEN owner IS NULL OR tidegate.lease_is_held(owner, expires_at, seconds)
        THEN extract(epoch FROM expires_at - clock_timestamp())::float8
    ELSE least(0, extract(epoch FROM expires_at - clock_timestamp())::float8)
END
FROM tidegate.lease
WHERE kind = %(kind)s AND key = ANY(%(keys)s::text[]);

-- name: record_release_points — Record the release points of a plan.
INSERT INTO tidegate.release_point (plan, task)
SELECT %(plan)s, unnest(%(tasks)s::text[])
ON CONFLICT DO NOTHING;

-- name: release_points_of — The release points of a run.
SELECT release_point.task
FROM tidegate.run
JOIN tidegate.release_point USING (plan)
WHERE run.id = %(run)s;

-- name: now — The server's clock.
SELECT clock_timestamp();
