"""Logs periodically why a run is not done, while a call waits for it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidegate.store import RunInfo

log = logging.getLogger(__name__)

EVERY = 30.0
"""Seconds between two lines about the same wait."""


class WaitReport:
    """Logs every so many seconds why a run is not done; never if `every` is 0."""

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

    def update(self, run: RunInfo) -> None:
        """Log a line about an open run if one is due."""
        now = self._clock()
        if not self._every or now - self._logged_at < self._every:
            return
        self._logged_at = now
        waited = now - self._since
        log.warning("waited %.0f s for run %r: %s", waited, run.name, self._explain(run))
