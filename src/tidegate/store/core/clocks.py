"""Whether the database's clock is reliable enough to remove things by their age.

A clock that jumps ahead makes everything look old: results would be removed far too early. So
every process that removes things watches the clock, and what was seen is stored:

- while a process runs, the clock has to advance as the process's own clock does;
- between processes it may not go back, and not advance by more than `AWAY`.

After a jump an age counts only when the clock has been steady for that long, or for the time in the
setting `clock_settle_seconds`, whichever is shorter. Meanwhile an operator can set the clock right.
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
"""Seconds by which the clock may differ from the process's own between two looks."""
AWAY = 7 * 86_400.0
"""Seconds for which no process may have run without the clock being in doubt."""
SETTLE = 86_400.0
"""Seconds after a jump from which on every age counts, by default."""
NOTE_EVERY = 60.0


@dataclass(frozen=True, slots=True)
class Seen:
    """The clock when it was last looked at, and since when it has not jumped, as it says."""

    at: float
    steady_since: float = -inf


@dataclass(frozen=True, slots=True)
class Look:
    """The database's clock and the process's own, at the same moment."""

    at: float
    own: float


def jump(stored: Seen, last: Look | None, now: Look) -> float:
    """Seconds by which the clock has jumped; 0 if it has not. `last` is this process's last look.

    >>> jump(Seen(100.0), Look(100.0, own=5.0), Look(100_000.0, own=15.0))
    99890.0
    """
    if last is not None:
        off = (now.at - last.at) - (now.own - last.own)
        return off if abs(off) > SLACK else 0.0
    off = now.at - stored.at
    return off if off < -SLACK or off > AWAY else 0.0


def believes(seen: Seen, age: float, settle: float) -> bool:
    """Whether something that looks older than `age` seconds is."""
    return seen.at - seen.steady_since >= min(age, settle)


class ClockWatch:
    """Watches the clock for one process. `believes` has to be called periodically."""

    def __init__(self, database: Database, settle: float = SETTLE) -> None:
        self._database = database
        self._settle = settle
        self._last: Look | None = None
        self._noted_at = -inf
        self._has_warned = False

    def believes(self, age: float) -> bool:
        """Whether what looks older than `age` seconds may be removed. Logs why it may not."""
        if believes(self._look(), age, self._settle):
            return True
        if not self._has_warned:
            self._has_warned = True
            log.warning("what is older than %.0f s is not removed yet: the database's clock has"
                        " jumped, and is relied on when it has been steady for %.0f s", age,
                        min(age, self._settle))  # fmt: skip
        return False

    def _look(self) -> Seen:
        stored, now = self._database.transact(_seen)
        jumped = jump(stored, self._last, now)
        self._last = now
        if jumped:
            log.warning("the database's clock has jumped by %+.0f s", jumped)
            self._has_warned = False
        if jumped or now.own - self._noted_at >= NOTE_EVERY:
            self._noted_at = now.own
            self._database.transact(lambda c: _note(c, now.at, has_jumped=bool(jumped)))
        return Seen(now.at, now.at if jumped else stored.steady_since)


def _seen(connection: psycopg.Connection) -> tuple[Seen, Look]:
    row = connection.execute(_SQL["seen"].sql).fetchone()
    own = time.clock_gettime(time.CLOCK_BOOTTIME)  # which goes on while the machine is suspended
    at, seen_at, steady_since = row or (0.0, 0.0, 0.0)
    return Seen(seen_at, steady_since), Look(at, own)


def _note(connection: psycopg.Connection, at: float, *, has_jumped: bool) -> None:
    connection.execute(_SQL["note"].sql, {"at": at, "has_jumped": has_jumped})


_SQL = queries(__name__)
