CREATE TABLE tidegate.lease (
    kind text NOT NULL,
    key text NOT NULL,
    owner text,
    epoch bigint NOT NULL CHECK (epoch > 0),
    expires_at timestamptz NOT NULL,
    PRIMARY KEY (kind, key)
);
