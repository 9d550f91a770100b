-- Ownership by lease. Time is the server's: the clocks of owners are never compared.
-- `lease_is_held` decides what the time means; see functions/leases.sql.

-- name: acquire — Take a lease that nobody holds; the epoch grows unless it was ours all along.
INSERT INTO tidegate.lease AS held (kind, key, owner, epoch, expires_at, seconds)
VALUES (
    %(kind)s, %(key)s, %(owner)s, 1,
    clock_timestamp() + make_interval(secs => %(seconds)s), %(seconds)s
)
ON CONFLICT (kind, key) DO UPDATE SET
    owner = excluded.owner,
    epoch = held.epoch + CASE
        WHEN held.owner = excluded.owner
            AND tidegate.lease_is_held(held.owner, held.expires_at, held.seconds) THEN 0
        ELSE 1
    END,
    expires_at = excluded.expires_at,
    seconds = excluded.seconds
WHERE held.owner = excluded.owner
    OR NOT tidegate.lease_is_held(held.owner, held.expires_at, held.seconds)
RETURNING epoch;

-- name: renew — Put off the expiry of those leases that are still held; says which they are.
UPDATE tidegate.lease AS held
SET expires_at = clock_timestamp() + make_interval(secs => ours.seconds), seconds = ours.seconds
FROM (
    SELECT lease.kind, lease.key, ours.seconds
    FROM unnest(
        %(kinds)s::text[], %(keys)s::text[], %(owners)s::text[], %(epochs)s::bigint[],
        %(seconds)s::float8[]
    ) AS ours (kind, key, owner, epoch, seconds)
    JOIN tidegate.lease USING (kind, key, owner, epoch)
    ORDER BY lease.kind, lease.key
    FOR UPDATE OF lease
) AS ours
WHERE held.kind = ours.kind AND held.key = ours.key
RETURNING held.kind, held.key;

-- name: release — Give a lease back, unless it is somebody else's by now.
UPDATE tidegate.lease
SET owner = NULL
WHERE kind = %(kind)s AND key = %(key)s AND owner = %(owner)s AND epoch = %(epoch)s;

-- name: expire — Let a lease expire at once, as if its owner had died, unless it is lost already.
UPDATE tidegate.lease
SET expires_at = clock_timestamp()
WHERE kind = %(kind)s AND key = %(key)s AND owner = %(owner)s AND epoch = %(epoch)s;

-- name: hold — Who holds a lease; it does not change hands until the end of the transaction.
SELECT kind, key, owner, epoch
FROM tidegate.lease
WHERE kind = %(kind)s AND key = %(key)s
FOR SHARE;

-- name: holders — Who holds the keys of a kind, among those given; nobody is not mentioned.
SELECT key, owner
FROM tidegate.lease
WHERE kind = %(kind)s AND key = ANY(%(keys)s)
AND tidegate.lease_is_held(owner, expires_at, seconds);

-- name: holders_below — Which keys of a kind that begin like this are held, and by whom.
SELECT key, owner
FROM tidegate.lease
WHERE kind = %(kind)s AND starts_with(key, %(prefix)s)
AND tidegate.lease_is_held(owner, expires_at, seconds)
ORDER BY key;

-- name: forget_below — Remove the keys of a kind that begin like this and that nobody holds.
DELETE FROM tidegate.lease
WHERE kind = %(kind)s AND starts_with(key, %(prefix)s)
AND NOT tidegate.lease_is_held(owner, expires_at, seconds);

-- name: free_keys — The keys of a kind, among those given, that nobody holds.
SELECT wanted.key
FROM unnest(%(keys)s::text[]) AS wanted (key)
LEFT JOIN tidegate.lease AS held ON held.kind = %(kind)s AND held.key = wanted.key
WHERE NOT tidegate.lease_is_held(held.owner, held.expires_at, held.seconds)
ORDER BY wanted.key;
