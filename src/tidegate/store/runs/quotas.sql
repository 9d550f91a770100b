-- Quotas: what the clients of a deployment have at once. A client's runs have names that begin alike.

-- name: open_runs_like — How many runs are open with such names, besides one of a pipeline.
SELECT count(*)
FROM tidegate.run
WHERE state = 'open' AND starts_with(name, %(beginning)s)
    AND (pipeline, name) <> (%(pipeline)s, %(name)s);

-- name: open_bytes_like — The bytes of all chunks of open runs with such names.
SELECT coalesce(sum(chunk.bytes), 0)::bigint
FROM tidegate.run
JOIN tidegate.chunk ON chunk.run_id = run.id
WHERE run.state = 'open' AND starts_with(run.name, %(beginning)s);
