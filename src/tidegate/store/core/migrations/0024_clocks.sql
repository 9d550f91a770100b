-- An expiry that is further away than its lease is long was written by a clock that has gone back.
ALTER TABLE tidegate.lease ADD COLUMN seconds double precision;

-- What was seen of the server's clock; nothing is removed by age after it has jumped.
CREATE TABLE tidegate.clock (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    seen_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    steady_since timestamptz NOT NULL DEFAULT '-infinity'
);

INSERT INTO tidegate.clock DEFAULT VALUES;
