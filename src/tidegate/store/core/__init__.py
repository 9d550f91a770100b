"""Database connection, schema, queries, leases, notifications, embedded PostgreSQL."""
