"""Renews all leases of a process on one thread and reports lost leases.

A lease is lost when the database reports another owner, and also when it could not be renewed in
time: another process may acquire it at any moment, so the owner gives it up by its own clock rather
than by a fenced write.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from threading import Condition, Thread
from time import monotonic
from typing import Self

import psycopg

from tidegate.store.core.database import Database
from tidegate.store.core.leases import RENEW_AT, Lease, expire, release, renew
from tidegate.store.core.notifications import notify

log = logging.getLogger(__name__)

RETRY_AFTER = 1 / 20
"""Fraction of a lease's duration to wait after a failed renewal."""


@dataclass(frozen=True, slots=True)
class LeaseVerdict:
    """The leases that are held and lost after a renewal."""

    held: tuple[Lease, ...]
    lost: tuple[Lease, ...]


def decide(kept: Sequence[Lease], renewed: Sequence[Lease] | None, now: float) -> LeaseVerdict:
    """Which leases are still held; `renewed` is None when the database did not answer."""
    if renewed is None:
        held = tuple(lease for lease in kept if lease.is_safe(now))
    else:
        held = tuple(renewed)
    keys = {(lease.kind, lease.key) for lease in held}
    return LeaseVerdict(held, tuple(lease for lease in kept if (lease.kind, lease.key) not in keys))


class LeaseKeeper:
    """Renews leases on a daemon thread, where `on_lost` is called and must return quickly."""

    def __init__(self, database: Database, on_lost: Callable[[Lease], None]) -> None:
        self._database = database
        self._on_lost = on_lost
        self._kept: dict[tuple[str, str], Lease] = {}
        self._changed = Condition()
        self._closed = False
        self._thread = Thread(target=self._run, name="tidegate-lease-keeper", daemon=True)
        self._thread.start()

    @property
    def held(self) -> tuple[Lease, ...]:
        """The leases that are certainly held at this moment; never waits for the database."""
        now = monotonic()
        with self._changed:
            return tuple(lease for lease in self._kept.values() if lease.is_safe(now))

    def keep(self, lease: Lease) -> None:
        """Renew this lease until it is released."""
        with self._changed:
            self._kept[lease.kind, lease.key] = lease
            self._changed.notify()

    def release(self, lease: Lease, topics: Sequence[str] = ()) -> bool:
        """Stop renewing and release a lease; False when it was lost before.

        `topics` are notified: processes listening there may acquire it.
        """
        return self._end(lease, topics, release)

    def expire(self, lease: Lease, topics: Sequence[str] = ()) -> bool:
        """Stop renewing and expire a lease at once, when its owner's last writes are unknown."""
        return self._end(lease, topics, expire)

    def _end(
        self,
        lease: Lease,
        topics: Sequence[str],
        end: Callable[[psycopg.Connection, Lease], bool],
    ) -> bool:
        with self._changed:
            self._kept.pop((lease.kind, lease.key), None)

        def transaction(connection: psycopg.Connection) -> bool:
            notify(connection, topics)
            return end(connection, lease)

        return self._database.transact(transaction)

    def close(self) -> None:
        """Stop renewing; leases that were not released will expire."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(30)

    def _run(self) -> None:
        while due := self._wait_until_due():
            renewed = self._try_to_renew(due)
            self._apply(decide(due, renewed, monotonic()))
            if renewed is None:
                with self._changed:
                    self._changed.wait(_shortest(due) * RETRY_AFTER)

    def _wait_until_due(self) -> list[Lease]:
        """All leases, as soon as one of them has to be renewed; none when closed."""
        with self._changed:
            while not self._closed:
                pause = _pause(self._kept.values(), monotonic())
                if pause is not None and pause <= 0:
                    return list(self._kept.values())
                self._changed.wait(pause)
            return []

    def _try_to_renew(self, leases: Sequence[Lease]) -> list[Lease] | None:
        try:
            return self._database.transact_aside(
                lambda connection: renew(connection, leases), _shortest(leases) * RENEW_AT
            )
        except Exception as error:  # noqa: BLE001  the thread must survive any error
            log.warning("could not renew %d leases: %s", len(leases), error)
            return None

    def _apply(self, verdict: LeaseVerdict) -> None:
        with self._changed:
            for lease in verdict.held:
                if self._is_current(lease):
                    self._kept[lease.kind, lease.key] = lease
            lost = [lease for lease in verdict.lost if self._is_current(lease)]
            for lease in lost:
                del self._kept[lease.kind, lease.key]
        for lease in lost:
            self._on_lost(lease)

    def _is_current(self, lease: Lease) -> bool:
        """Whether the lease was neither released nor acquired again in the meantime."""
        return self._kept.get((lease.kind, lease.key)) == lease

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _shortest(leases: Iterable[Lease]) -> float:
    return min(lease.seconds for lease in leases)


def _pause(leases: Iterable[Lease], now: float) -> float | None:
    """Seconds until the first lease has to be renewed; None without leases."""
    return min(
        (lease.requested_at + lease.seconds * RENEW_AT - now for lease in leases), default=None
    )
