"""The heartbeat: renews all leases of a process, and says when one is lost.

A lease is lost when the database says that it has changed hands, and also when the holder could
not renew it in time: it may then be somebody else's at any moment, so the holder gives it up by
its own clock rather than find out by a refused write.
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
"""The part of a lease's time to wait after it could not be renewed."""


@dataclass(frozen=True, slots=True)
class LeaseVerdict:
    """What became of the leases after a heartbeat."""

    held: tuple[Lease, ...]
    lost: tuple[Lease, ...]


def decide(kept: Sequence[Lease], renewed: Sequence[Lease] | None, now: float) -> LeaseVerdict:
    """Which leases are still held, given those that were renewed; None when nobody answered."""
    if renewed is None:
        held = tuple(lease for lease in kept if lease.is_safe(now))
    else:
        held = tuple(renewed)
    still = {(lease.kind, lease.key) for lease in held}
    return LeaseVerdict(
        held, tuple(lease for lease in kept if (lease.kind, lease.key) not in still)
    )


class LeaseKeeper:
    """Keeps leases alive on a thread of its own. `on_lost` is called there, briefly."""

    def __init__(self, database: Database, on_lost: Callable[[Lease], None]) -> None:
        self._database = database
        self._on_lost = on_lost
        self._kept: dict[tuple[str, str], Lease] = {}
        self._changed = Condition()
        self._closed = False
        self._thread = Thread(target=self._run, name="tidegate-heartbeat", daemon=True)
        self._thread.start()

    @property
    def held(self) -> tuple[Lease, ...]:
        """The leases that are certainly ours at this moment; never waits for the database."""
        now = monotonic()
        with self._changed:
            return tuple(lease for lease in self._kept.values() if lease.is_safe(now))

    def keep(self, lease: Lease) -> None:
        """Renew this lease from now on."""
        with self._changed:
            self._kept[lease.kind, lease.key] = lease
            self._changed.notify()

    def give_back(self, lease: Lease, wakes: Sequence[str] = ()) -> bool:
        """Renew it no more and release it; False when it was lost before.

        `wakes` are the topics of those who may want it.
        """
        return self._leave(lease, wakes, release)

    def die(self, lease: Lease, wakes: Sequence[str] = ()) -> bool:
        """Renew it no more and let it expire at once: its owner cannot say what it has done."""
        return self._leave(lease, wakes, expire)

    def _leave(
        self,
        lease: Lease,
        wakes: Sequence[str],
        how: Callable[[psycopg.Connection, Lease], bool],
    ) -> bool:
        with self._changed:
            self._kept.pop((lease.kind, lease.key), None)

        def leave(connection: psycopg.Connection) -> bool:
            notify(connection, wakes)
            return how(connection, lease)

        return self._database.transact(leave)

    def close(self) -> None:
        """Stop; what is still kept will expire."""
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
        """All leases, as soon as one of them has to be renewed; nothing when closed."""
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
        except Exception as trouble:  # noqa: BLE001  whatever it is, a heart that stops is worse
            log.warning("%d leases could not be renewed: %s", len(leases), trouble)
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
        """Whether it is still the one to keep: it may have been given back, or taken anew."""
        return self._kept.get((lease.kind, lease.key)) == lease

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _shortest(leases: Iterable[Lease]) -> float:
    return min(lease.seconds for lease in leases)


def _pause(leases: Iterable[Lease], now: float) -> float | None:
    """Seconds until the first of the leases is due; None when there are none."""
    return min((lease.asked_at + lease.seconds * RENEW_AT - now for lease in leases), default=None)
