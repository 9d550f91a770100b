CREATE SCHEMA IF NOT EXISTS tidegate;

CREATE TABLE tidegate.migration (
    number integer PRIMARY KEY,
    name text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
