-- Observations of the server's clock, in seconds since 1970.

-- name: read — The clock, its last stored reading, and since when it has not jumped.
SELECT
    extract(epoch FROM clock_timestamp())::float8,
    extract(epoch FROM clock.seen_at)::float8,
    extract(epoch FROM clock.steady_since)::float8
FROM tidegate.clock;

-- name: store — Store a reading; after a jump the clock counts as steady from here on.
UPDATE tidegate.clock
SET seen_at = to_timestamp(%(at)s),
    steady_since = CASE WHEN %(has_jumped)s THEN to_timestamp(%(at)s) ELSE steady_since END;
