"""Barriers of checkpoints come into the sources of runs here, between two chunks.

That a checkpoint wants a barrier stands in the database, and so does that a source has it. Every
process that takes chunks has an injector for each source that owes one: it is told when there is
news, and polled after every chunk and also when none comes. What it gives is put on the source's
lanes in one transaction; whoever comes second, here or in another process, finds nothing to do.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Self

from tidegate.run.tending import Tending
from tidegate.signals import BarrierInjector, InjectorHandle
from tidegate.store import cut_topic, cuts, unfinished_among

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidegate.store import Database, LaneName, Run, Wakeups

NET = 1.0
"""Seconds after which one looks although nobody woke it."""


@dataclass(frozen=True)
class _Source:
    """One source of a run, at the place where its chunks are appended."""

    run: Run
    name: str
    injector: BarrierInjector
    handle: InjectorHandle


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
        self._turn = Lock()
        self._sources: dict[tuple[int, str], _Source] = {}
        self._tending = ExitStack()

    def look(self) -> None:
        """See which barriers are wanted, and inject them."""
        with self._turn:
            for owing in self._database.transact(lambda c: cuts.owed(c, self._pipeline)):
                source = self._source(owing.run, owing.source)
                source.handle.inject(owing.number, owing.epoch, quiet=owing.is_quiet)
            for known in [*self._sources.values()]:
                self._poll(known)
            self._forget_closed()

    def after_chunk(self, run: Run, source: str) -> None:
        """A chunk was appended to a source: its barrier, if one waits, comes behind it."""
        with self._turn:
            known = self._sources.get((run.id, source))
            if known is not None:
                self._poll(known)

    def _source(self, run: Run, name: str) -> _Source:
        key = run.id, name
        if key not in self._sources:
            injector = BarrierInjector(f"{name} of run {run.name}")
            self._sources[key] = _Source(run, name, injector, injector.handle())
        return self._sources[key]

    def _poll(self, source: _Source) -> None:
        barrier = source.injector.poll_barrier()
        if barrier is None:
            return
        inject = partial(
            cuts.inject,
            run=source.run,
            source=source.name,
            barrier=barrier,
            lanes=self._lanes(source.name),
        )
        try:
            self._database.transact(inject)
        except BaseException:
            # The injector takes a number once. That the source owes it still stands in the
            # database, and another one is told.
            del self._sources[source.run.id, source.name]
            raise

    def _forget_closed(self) -> None:
        runs = {run for run, _ in self._sources}
        if runs:
            alive = self._database.transact(lambda c: unfinished_among(c, runs))
            for key in [key for key in self._sources if key[0] not in alive]:
                del self._sources[key]

    def __enter__(self) -> Self:
        tending = Tending("tidegate-injection", self.look, NET)
        self._tending.callback(tending.close)
        self._tending.callback(self._wakeups.subscribe(cut_topic(self._pipeline), tending.hurry))
        return self

    def __exit__(self, *_: object) -> None:
        self._tending.close()
