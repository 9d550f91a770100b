-- Leases. Time is the server's: clocks of owners are never compared.
-- `lease_is_held` interprets the expiry; see functions/leases.sql.

-- name: acquire — Acquire a free lease; the epoch grows unless the owner held it without interruption.
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

-- name: renew — Extend the leases that are still held; returns their keys.
UPDATE tidegate.lease AS held
SET expires_at = clock_timestamp() + make_interval(secs => locked.seconds), seconds = locked.seconds
FROM (
    SELECT lease.kind, lease.key, given.seconds
    FROM unnest(
        %(kinds)s::text[], %(keys)s::text[], %(owners)s::text[], %(epochs)s::bigint[],
        %(seconds)s::float8[]
    ) AS given (kind, key, owner, epoch, seconds)
    JOIN tidegate.lease USING (kind, key, owner, epoch)
    ORDER BY lease.kind, lease.key
    FOR UPDATE OF lease
) AS locked
WHERE held.kind = locked.kind AND held.key = locked.key
RETURNING held.kind, held.key;

-- name: release — Release a lease unless it has another owner.
UPDATE tidegate.lease
SET owner = NULL
WHERE kind = %(kind)s AND key = %(key)s AND owner = %(owner)s AND epoch = %(epoch)s;

-- name: expire — Expire a lease at once unless it has another owner.
UPDATE tidegate.lease
SET expires_at = clock_timestamp()
WHERE kind = %(kind)s AND key = %(key)s AND owner = %(owner)s AND epoch = %(epoch)s;

-- name: lock — The owner of a lease, locked until the end of the transaction.
SELECT kind, key, owner, epoch
FROM tidegate.lease
WHERE kind = %(kind)s AND key = %(key)s
FOR SHARE;

-- name: holders — The owners of these keys of a kind; free keys are missing.
SELECT key, owner
FROM tidegate.lease
WHERE kind = %(kind)s AND key = ANY(%(keys)s)
AND tidegate.lease_is_held(owner, expires_at, seconds);

-- name: holders_below — The owners of all keys of a kind with this prefix.
SELECT key, owner
FROM tidegate.lease
WHERE kind = %(kind)s AND starts_with(key, %(prefix)s)
AND tidegate.lease_is_held(owner, expires_at, seconds)
ORDER BY key;

-- name: forget_below — Remove the free leases of a kind with this prefix.
DELETE FROM tidegate.lease
WHERE kind = %(kind)s AND starts_with(key, %(prefix)s)
AND NOT tidegate.lease_is_held(owner, expires_at, seconds);

-- name: free_keys — The free keys of a kind, among those given.
SELECT given.key
FROM unnest(%(keys)s::text[]) AS given (key)
LEFT JOIN tidegate.lease AS held ON held.kind = %(kind)s AND held.key = given.key
WHERE NOT tidegate.lease_is_held(held.owner, held.expires_at, held.seconds)
ORDER BY given.key;
