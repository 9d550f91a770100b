"""Barriers of checkpoints come into the sources of runs here, between two chunks.

Every process that takes chunks injects. That a checkpoint wants a barrier stands in the database,
and so does that a source has it: whoever comes second finds nothing to do.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Self

from tidegate.run.tending import Tending
from tidegate.store import cut_topic, cuts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidegate.store import Database, LaneName, Wakeups

NET = 1.0
"""Seconds after which one looks although nobody woke it."""


class Injection:
    """Injects for one pipeline, by itself while it is entered. `lanes` are those of a source."""

    def __init__(
        self,
        database: Database,
        pipeline: str,
        wakeups: Wakeups,
        lanes: Callable[[str], Sequence[LaneName]],
    ) -> None:
        self._database = database
        self._pipeline = pipeline
        self._wakeups = wakeups
        self._lanes = lanes
        self._tending = ExitStack()

    def look(self) -> None:
        """Inject what is wanted."""
        for owing in self._database.transact(lambda c: cuts.owed(c, self._pipeline)):
            lanes = self._lanes(owing.source)
            self._database.transact(partial(cuts.inject, owing=owing, lanes=lanes))

    def __enter__(self) -> Self:
        tending = Tending("tidegate-injection", self.look, NET)
        self._tending.callback(tending.close)
        self._tending.callback(self._wakeups.subscribe(cut_topic(self._pipeline), tending.hurry))
        return self

    def __exit__(self, *_: object) -> None:
        self._tending.close()
