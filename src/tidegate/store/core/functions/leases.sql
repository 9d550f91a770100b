-- Whether a lease is held: one decision for tasks, monitors, workers and flow workers.

-- A running holder renews its lease several times within its length. So an expiry further away than
-- twice the length was written before the clock went back, and its holder may have ended long ago. A
-- clock that goes back by less than the length affects no running holder.
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
