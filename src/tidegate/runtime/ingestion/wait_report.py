"""Reports long waits: a call that waits for a run logs periodically what the run waits for."""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Event as Flag
from time import monotonic
from typing import TYPE_CHECKING

from tidegate.errors import RunTimeout
from tidegate.store import RunState

if TYPE_CHECKING:
    from tidegate.store import RunInfo

log = logging.getLogger(__name__)

EVERY = 30.0
"""Seconds between two lines about the same wait."""
GLANCE = 1.0
"""Seconds after which a waiting client looks again without a notification."""


class WaitReport:
    """Logs every so many seconds why a run is not done; never when `every` is 0."""

    def __init__(
        self,
        explain: Callable[[RunInfo], str],
        every: float = EVERY,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._explain = explain
        self._every = every
        self._clock = clock
        self._since = self._logged_at = clock()

    def look(self, run: RunInfo) -> None:
        """Log a line if one is due. The run is open."""
        now = self._clock()
        if not self._every or now - self._logged_at < self._every:
            return
        self._logged_at = now
        waited = now - self._since
        log.warning("waited %.0f s for run %r: %s", waited, run.name, self._explain(run))


def wait_until_closed(
    look: Callable[[], RunInfo], changed: Flag, timeout: float | None, report: WaitReport
) -> RunInfo:
    """The run that `look` finds, once it is closed. Raises `RunTimeout`."""
    deadline = None if timeout is None else monotonic() + timeout
    while True:
        changed.clear()
        now = look()
        if now.state is not RunState.OPEN:
            return now
        left = GLANCE if deadline is None else min(GLANCE, deadline - monotonic())
        if left <= 0:
            raise RunTimeout(run=now.name, seconds=timeout or 0.0)
        report.look(now)
        changed.wait(left)
