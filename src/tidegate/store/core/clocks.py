"""Decides whether the database's clock is reliable enough to remove data by age.

A clock that jumps ahead would make results look old and remove them too early. Every process that
removes data by age therefore watches the clock and stores its observations:

- while a process runs, the clock has to advance like the process's own clock;
- between processes it must not go back, nor advance by more than `AWAY`.

After a jump an age is trusted when the clock has been steady for that long, or for the setting
`clock_settle_seconds`, whichever is shorter. Meanwhile an operator can correct the clock.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from math import inf

import psycopg

from tidegate.store.core.database import Database
from tidegate.store.core.queries import queries

log = logging.getLogger(__name__)

SLACK = 60.0
"""Seconds by which the clock may deviate from the process's own between two readings."""
AWAY = 7 * 86_400.0
"""Longest time in seconds without any process before the clock is considered to have jumped."""
SETTLE = 86_400.0
"""Seconds after a jump from which on every age is trusted, by default."""
STORE_EVERY = 60.0
"""Seconds between two stored observations."""


@dataclass(frozen=True, slots=True)
class ClockRecord:
    """The stored observation: the clock's last reading, and the time since when it is steady."""

    at: float
    steady_since: float = -inf


@dataclass(frozen=True, slots=True)
class ClockReading:
    """The database's clock and the process's own clock at the same moment."""

    at: float
    own: float


def jump(stored: ClockRecord, last: ClockReading | None, now: ClockReading) -> float:
    """Seconds by which the clock has jumped; 0 if not. `last` is this process's last reading.

    >>> jump(ClockRecord(100.0), ClockReading(100.0, own=5.0), ClockReading(100_000.0, own=15.0))
    99890.0
    """
    if last is not None:
        off = (now.at - last.at) - (now.own - last.own)
        return off if abs(off) > SLACK else 0.0
    off = now.at - stored.at
    return off if off < -SLACK or off > AWAY else 0.0


def is_age_trusted(record: ClockRecord, age: float, settle: float) -> bool:
    """Whether data that appears older than `age` seconds is."""
    return record.at - record.steady_since >= min(age, settle)


class ClockWatch:
    """Watches the clock for one process. `trusts_age` has to be called periodically."""

    def __init__(self, database: Database, settle: float = SETTLE) -> None:
        self._database = database
        self._settle = settle
        self._last: ClockReading | None = None
        self._stored_at = -inf
        self._has_warned = False

    def trusts_age(self, age: float) -> bool:
        """Whether data that appears older than `age` seconds may be removed; logs why not."""
        if is_age_trusted(self._read(), age, self._settle):
            return True
        if not self._has_warned:
            self._has_warned = True
            log.warning("data older than %.0f s is not removed yet: the database's clock has jumped"
                        " and is trusted again after being steady for %.0f s", age,
                        min(age, self._settle))  # fmt: skip
        return False

    def _read(self) -> ClockRecord:
        stored, now = self._database.transact(_readings)
        jumped = jump(stored, self._last, now)
        self._last = now
        if jumped:
            log.warning("the database's clock has jumped by %+.0f s", jumped)
            self._has_warned = False
        if jumped or now.own - self._stored_at >= STORE_EVERY:
            self._stored_at = now.own
            self._database.transact(lambda c: _store(c, now.at, has_jumped=bool(jumped)))
        return ClockRecord(now.at, now.at if jumped else stored.steady_since)


def _readings(connection: psycopg.Connection) -> tuple[ClockRecord, ClockReading]:
    row = connection.execute(_SQL["read"].sql).fetchone()
    own = time.clock_gettime(time.CLOCK_BOOTTIME)  # advances also while the machine is suspended
    at, seen_at, steady_since = row or (0.0, 0.0, 0.0)
    return ClockRecord(seen_at, steady_since), ClockReading(at, own)


def _store(connection: psycopg.Connection, at: float, *, has_jumped: bool) -> None:
    connection.execute(_SQL["store"].sql, {"at": at, "has_jumped": has_jumped})


_SQL = queries(__name__)
