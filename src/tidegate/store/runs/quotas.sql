-- Quotas: resource use of one client, whose runs have names with a common prefix.

-- name: open_runs_like — The number of open runs with this name prefix, except for one run.
SELECT count(*)
FROM tidegate.run
WHERE state = 'open' AND starts_with(name, %(prefix)s)
    AND (pipeline, name) <> (%(pipeline)s, %(name)s);

-- name: open_bytes_like — The size of all chunks of open runs with this name prefix.
SELECT coalesce(sum(chunk.bytes), 0)::bigint
FROM tidegate.run
JOIN tidegate.chunk ON chunk.run_id = run.id
WHERE run.state = 'open' AND starts_with(run.name, %(prefix)s);
