"""Leases: exclusive ownership of tasks, monitors and workers, with fencing epochs.

The epoch of a lease grows with every change of owner. A write on behalf of an owner calls `guard`
in the same transaction, which raises `Fenced` when the lease has another owner, so that a stale
owner changes nothing. An expired lease stays valid until another owner acquires it.

Expiry is determined by the server's clock. The owner uses its own monotonic clock, read before the
request, and therefore stops relying on a lease before the server can give it to another owner.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any

import psycopg

from tidegate.errors import Fenced
from tidegate.store.core.queries import queries

RENEW_AT = 1 / 3
"""Fraction of a lease's duration after which it is renewed, so that two attempts may fail."""


@dataclass(frozen=True, slots=True)
class Lease:
    """An owned resource. `owner` must be unique per process and never reused after a restart."""

    kind: str
    key: str
    owner: str
    epoch: int
    seconds: float
    requested_at: float = field(default=0.0, compare=False)
    """When it was requested, by the owner's monotonic clock."""

    def is_safe(self, now: float) -> bool:
        """Whether the lease cannot have another owner yet."""
        return now < self.requested_at + self.seconds

    def is_due(self, now: float) -> bool:
        """Whether the lease has to be renewed."""
        return now >= self.requested_at + self.seconds * RENEW_AT


def acquire(
    connection: psycopg.Connection, kind: str, key: str, owner: str, seconds: float
) -> Lease | None:
    """Acquire a lease that is free or expired; None when another owner holds it.

    A repeated request of the same owner renews the lease under the same epoch.
    """
    now = monotonic()
    row = connection.execute(
        _SQL["acquire"].sql, {"kind": kind, "key": key, "owner": owner, "seconds": seconds}
    ).fetchone()
    return Lease(kind, key, owner, row[0], seconds, now) if row else None


def renew(connection: psycopg.Connection, leases: Sequence[Lease]) -> list[Lease]:
    """Renew leases for their duration, in one statement; leases missing in the result are lost."""
    if not leases:
        return []
    now = monotonic()
    rows = connection.execute(
        _SQL["renew"].sql,
        {
            "kinds": [lease.kind for lease in leases],
            "keys": [lease.key for lease in leases],
            "owners": [lease.owner for lease in leases],
            "epochs": [lease.epoch for lease in leases],
            "seconds": [lease.seconds for lease in leases],
        },
    ).fetchall()
    held = set(rows)
    return [replace(lease, requested_at=now) for lease in leases if (lease.kind, lease.key) in held]


def release(connection: psycopg.Connection, lease: Lease) -> bool:
    """Release a lease; False when it was lost before."""
    return connection.execute(_SQL["release"].sql, _identity(lease)).rowcount == 1


def expire(connection: psycopg.Connection, lease: Lease) -> bool:
    """Expire a lease at once, as after a crash of its owner; False when it was lost before."""
    return connection.execute(_SQL["expire"].sql, _identity(lease)).rowcount == 1


def guard(connection: psycopg.Connection, *leases: Lease) -> None:
    """Raise `Fenced` unless the leases are still valid; locks them until the commit."""
    check_held(lock_leases(connection, leases), leases)


def lock_leases(
    connection: psycopg.Connection, leases: Iterable[Lease]
) -> list[psycopg.Cursor[Any]]:
    """Read and lock leases until the commit; `check_held` evaluates the results.

    Leases are locked in the same order as in `renew`, which prevents deadlocks.
    """
    return [
        connection.execute(_SQL["lock"].sql, {"kind": lease.kind, "key": lease.key})
        for lease in sorted(leases, key=lambda lease: (lease.kind, lease.key))
    ]


def check_held(results: Iterable[psycopg.Cursor[Any]], leases: Iterable[Lease]) -> None:
    """Raise `Fenced` for the first lease that has another owner."""
    rows = (row for result in results for row in result.fetchall())
    held = {(kind, key): (owner, epoch) for kind, key, owner, epoch in rows}
    for lease in leases:
        owner, epoch = held.get((lease.kind, lease.key), (None, 0))
        if (owner, epoch) != (lease.owner, lease.epoch):
            raise Fenced(
                kind=lease.kind,
                key=lease.key,
                owner=lease.owner,
                epoch=lease.epoch,
                holder=owner or "none",
                current=epoch,
            )


def free_keys(connection: psycopg.Connection, kind: str, keys: Iterable[str]) -> list[str]:
    """The keys that are free at the moment; one may be acquired by another owner at any time."""
    rows = connection.execute(_SQL["free_keys"].sql, {"kind": kind, "keys": list(keys)})
    return [key for (key,) in rows]


def holders(connection: psycopg.Connection, kind: str, keys: Iterable[str]) -> dict[str, str]:
    """The owners of these keys; free keys are missing."""
    rows = connection.execute(_SQL["holders"].sql, {"kind": kind, "keys": list(keys)})
    return dict(rows.fetchall())


def held_now(connection: psycopg.Connection, kind: str, key: str) -> Lease | None:
    """The current lease of a key, of any owner; locked until the end of the transaction."""
    row = connection.execute(_SQL["lock"].sql, {"kind": kind, "key": key}).fetchone()
    return Lease(kind, key, row[2], row[3], 0.0) if row and row[2] is not None else None


def holders_below(connection: psycopg.Connection, kind: str, prefix: str) -> dict[str, str]:
    """The owners of all keys with this prefix; free keys are missing."""
    rows = connection.execute(_SQL["holders_below"].sql, {"kind": kind, "prefix": prefix})
    return dict(rows.fetchall())


def forget_below(connection: psycopg.Connection, kind: str, prefix: str) -> None:
    """Remove free leases with this prefix; only for keys that are never requested again."""
    connection.execute(_SQL["forget_below"].sql, {"kind": kind, "prefix": prefix})


def _identity(lease: Lease) -> dict[str, object]:
    return {
        "kind": lease.kind,
        "key": lease.key,
        "owner": lease.owner,
        "epoch": lease.epoch,
    }


_SQL = queries(__name__)
