-- Notifications of commits. A notification is a hint and may be lost.

-- name: listen — Receive notifications of later commits.
LISTEN tidegate;

-- name: notify — Notify listeners when this transaction commits.
SELECT pg_notify('tidegate', %s);
