-- Whether a lease is held: the same rule for tasks, monitors, workers and flow workers.

-- A running owner renews its lease several times within its duration. An expiry further away than twice
-- the duration was therefore written before the clock went back, and its owner may have ended long ago.
-- A clock that goes back by less than the duration affects no running owner.
CREATE OR REPLACE FUNCTION tidegate.lease_is_held(
    p_owner text, p_expires_at timestamptz, p_seconds double precision
) RETURNS boolean
LANGUAGE sql VOLATILE AS $$
    SELECT p_owner IS NOT NULL
        AND p_expires_at > clock_timestamp()
        AND (p_seconds IS NULL
            OR p_expires_at <= clock_timestamp() + make_interval(secs => 2 * p_seconds))
$$;

COMMENT ON FUNCTION tidegate.lease_is_held IS
    'Whether a lease has an owner and has not expired, by a clock that may have gone back.';
