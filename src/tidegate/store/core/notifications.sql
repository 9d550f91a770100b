-- Waking those who sleep until something changes. A notification is a hint and may be lost.

-- name: listen — Hear of what is committed from here on.
LISTEN tidegate;

-- name: notify — Tell the listeners, when this transaction commits.
SELECT pg_notify('tidegate', %s);
