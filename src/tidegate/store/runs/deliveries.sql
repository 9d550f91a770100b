-- Chunks as clients deliver them, and their declared number.

-- name: lock_source — The state of a source; locks out other deliveries until the commit.
SELECT delivered, declared, watermark, last_batch
FROM tidegate.source
WHERE run_id = %(run)s AND name = %(source)s
FOR NO KEY UPDATE;

-- name: source_names — The sources of a run.
SELECT name FROM tidegate.source WHERE run_id = %(run)s ORDER BY name;

-- name: find_chunk — A delivered chunk.
SELECT source, number, sha256, rows, bytes, files, shard, watermark
FROM tidegate.chunk
WHERE run_id = %(run)s AND source = %(source)s AND number = %(number)s;

-- name: next_number — The number after the last delivered chunk of a source.
SELECT coalesce(max(number), 0) + 1
FROM tidegate.chunk
WHERE run_id = %(run)s AND source = %(source)s;

-- name: add_chunk — Record and count a chunk.
WITH added AS (
    INSERT INTO tidegate.chunk (
        run_id, source, number, sha256, rows, bytes, files, shard, watermark, file_checksums,
        after_checkpoint
    )
    SELECT
        run_id, name, %(number)s, %(sha256)s, %(rows)s, %(bytes)s,
        to_jsonb(%(files)s::text[]), %(shard)s, %(watermark)s::bigint,
        %(file_checksums)s::jsonb, injected
    FROM tidegate.source
    WHERE run_id = %(run)s AND name = %(source)s
)
UPDATE tidegate.source
SET delivered = delivered + 1, watermark = greatest(watermark, %(watermark)s::bigint),
    ended_at = CASE WHEN %(is_last)s THEN clock_timestamp() ELSE ended_at END
WHERE run_id = %(run)s AND name = %(source)s;

-- name: begin_batch — Record that a batch of a stream was started, so that END waits for it.
UPDATE tidegate.source
SET last_batch = greatest(last_batch, %(number)s)
WHERE run_id = %(run)s AND name = %(source)s;

-- name: beyond — The chunks of a source with numbers above its declared count.
SELECT number
FROM tidegate.chunk
WHERE run_id = %(run)s AND source = %(source)s AND number > coalesce(%(count)s::bigint, number)
ORDER BY number
LIMIT %(limit)s;

-- name: gaps — The missing numbers as ranges; without a count, those before the largest.
SELECT low, high
FROM (
    SELECT lag(number, 1, 0::bigint) OVER (ORDER BY number) + 1 AS low, number - 1 AS high
    FROM (
        SELECT number
        FROM tidegate.chunk
        WHERE run_id = %(run)s AND source = %(source)s
            AND number <= coalesce(%(count)s::bigint, number)
        UNION ALL
        SELECT %(count)s::bigint + 1 WHERE %(count)s::bigint IS NOT NULL
    ) AS present
) AS gap
WHERE low <= high
ORDER BY low
LIMIT %(limit)s;

-- name: declare — Record the declared number of chunks.
UPDATE tidegate.source
SET declared = %(count)s, declared_at = clock_timestamp(),
    ended_at = CASE WHEN %(is_complete)s THEN clock_timestamp() ELSE ended_at END
WHERE run_id = %(run)s AND name = %(source)s;
