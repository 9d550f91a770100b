"""Leases: who owns a task, a monitor, a flow's task; one table and one set of rules for all.

A lease is held under an epoch, which grows with every change of hands. Whoever writes for a
thing it owns calls `guard` in the same transaction: a lease that has gone to somebody else
makes it raise `Fenced`, and the transaction changes nothing. An expired lease that nobody took
is still good; only taking it ends it.

Expiry goes by the server's clock. The holder goes by its own monotonic clock, started before it
asked, and so stops relying on a lease before the server gives it away.
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
"""The part of its time after which a lease is renewed, so that two attempts may fail."""


@dataclass(frozen=True, slots=True)
class Lease:
    """One thing that is owned. `owner` must be unique to one holder, and to one life of it."""

    kind: str
    key: str
    owner: str
    epoch: int
    seconds: float
    asked_at: float = field(default=0.0, compare=False)
    """When it was asked for, by the holder's monotonic clock."""

    def is_safe(self, now: float) -> bool:
        """Whether it certainly has not been given to somebody else yet."""
        return now < self.asked_at + self.seconds

    def is_due(self, now: float) -> bool:
        """Whether it is time to renew it."""
        return now >= self.asked_at + self.seconds * RENEW_AT


def acquire(
    connection: psycopg.Connection, kind: str, key: str, owner: str, seconds: float
) -> Lease | None:
    """Take what nobody holds, or whose holder let it expire; None when it is held.

    Asked again by its holder, it is renewed under the same epoch, so that asking may be repeated.
    """
    now = monotonic()
    row = connection.execute(
        _SQL["acquire"].sql, {"kind": kind, "key": key, "owner": owner, "seconds": seconds}
    ).fetchone()
    return Lease(kind, key, owner, row[0], seconds, now) if row else None


def renew(connection: psycopg.Connection, leases: Sequence[Lease]) -> list[Lease]:
    """Renew leases for their time, all in one statement; those missing in the answer are lost."""
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
    return [replace(lease, asked_at=now) for lease in leases if (lease.kind, lease.key) in held]


def release(connection: psycopg.Connection, lease: Lease) -> bool:
    """Give a lease back at once; False when it was lost before."""
    return connection.execute(_SQL["release"].sql, _identity(lease)).rowcount == 1


def expire(connection: psycopg.Connection, lease: Lease) -> bool:
    """Let a lease expire at once, as if its owner had died; False when it was lost before."""
    return connection.execute(_SQL["expire"].sql, _identity(lease)).rowcount == 1


def guard(connection: psycopg.Connection, *leases: Lease) -> None:
    """Raise `Fenced` unless they are still their owners', and keep it so until the commit."""
    check_held(hold_leases(connection, leases), leases)


def hold_leases(
    connection: psycopg.Connection, leases: Iterable[Lease]
) -> list[psycopg.Cursor[Any]]:
    """Ask who holds these and keep it so until the commit; `check_held` understands the answers.

    They are held in the order in which `renew` takes them: nobody waits in a ring.
    """
    return [
        connection.execute(_SQL["hold"].sql, {"kind": lease.kind, "key": lease.key})
        for lease in sorted(leases, key=lambda lease: (lease.kind, lease.key))
    ]


def check_held(answers: Iterable[psycopg.Cursor[Any]], leases: Iterable[Lease]) -> None:
    """Raise `Fenced` for the first that is not its owner's any more."""
    rows = (row for answer in answers for row in answer.fetchall())
    held = {(kind, key): (owner, epoch) for kind, key, owner, epoch in rows}
    for lease in leases:
        owner, epoch = held.get((lease.kind, lease.key), (None, 0))
        if (owner, epoch) != (lease.owner, lease.epoch):
            raise Fenced(
                kind=lease.kind,
                key=lease.key,
                owner=lease.owner,
                epoch=lease.epoch,
                holder=owner or "nobody",
                current=epoch,
            )


def free_keys(connection: psycopg.Connection, kind: str, keys: Iterable[str]) -> list[str]:
    """Which of these things nobody holds; by the time one is acquired somebody may."""
    rows = connection.execute(_SQL["free_keys"].sql, {"kind": kind, "keys": list(keys)})
    return [key for (key,) in rows]


def holders(connection: psycopg.Connection, kind: str, keys: Iterable[str]) -> dict[str, str]:
    """Who holds which of these things; those that nobody holds are missing."""
    rows = connection.execute(_SQL["holders"].sql, {"kind": kind, "keys": list(keys)})
    return dict(rows.fetchall())


def held_now(connection: psycopg.Connection, kind: str, key: str) -> Lease | None:
    """The lease of this key, read for another owner; locked until the transaction ends."""
    row = connection.execute(_SQL["hold"].sql, {"kind": kind, "key": key}).fetchone()
    return Lease(kind, key, row[2], row[3], 0.0) if row and row[2] is not None else None


def holders_below(connection: psycopg.Connection, kind: str, prefix: str) -> dict[str, str]:
    """Who holds which things of this kind whose keys begin like this."""
    rows = connection.execute(_SQL["holders_below"].sql, {"kind": kind, "prefix": prefix})
    return dict(rows.fetchall())


def forget_below(connection: psycopg.Connection, kind: str, prefix: str) -> None:
    """Remove what nobody holds; only for keys that nobody will ask for again."""
    connection.execute(_SQL["forget_below"].sql, {"kind": kind, "prefix": prefix})


def _identity(lease: Lease) -> dict[str, object]:
    return {
        "kind": lease.kind,
        "key": lease.key,
        "owner": lease.owner,
        "epoch": lease.epoch,
    }


_SQL = queries(__name__)
