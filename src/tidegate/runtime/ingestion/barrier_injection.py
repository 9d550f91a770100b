"""Barriers of checkpoints come into the sources of runs here, between two chunks.

That a checkpoint wants a barrier stands in the database, and so does that a source has it. Every
process that takes chunks has an injector for each source that owes one: it is told when there is
news, and polled after every chunk and also when none comes. What it gives is put on the source's
channels in one transaction; whoever comes second, here or in another process, finds nothing to do.
"""

from __future__ import annotations

import logging
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Self

from tidegate.dataflow import BarrierInjector, InjectorHandle
from tidegate.errors import BarrierInjectionFailed
from tidegate.runtime.periodic import PeriodicTask
from tidegate.store import checkpoint_topic, unfinished_among
from tidegate.store.checkpoints import checkpoints as checkpoint_store

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidegate.store import ChannelName, Database, Notifications, RunInfo

log = logging.getLogger(__name__)

MOST_FAILURES = 3
"""In a row, until the checkpoint of a source that cannot inject is given up."""
NET = 1.0
"""Seconds after which one looks although nobody woke it."""


@dataclass(frozen=True)
class _Source:
    """One source of a run, at the place where its chunks are appended."""

    run: RunInfo
    name: str
    injector: BarrierInjector
    handle: InjectorHandle


class BarrierInjection:
    """Injects for one pipeline, by itself while it is entered. `channels` are those of a source."""

    def __init__(
        self,
        database: Database,
        pipeline: str,
        notifications: Notifications,
        channels: Callable[[str], Sequence[ChannelName]],
    ) -> None:
        self._database = database
        self._pipeline = pipeline
        self._notifications = notifications
        self._channels = channels
        self._turn = Lock()
        self._sources: dict[tuple[int, str], _Source] = {}
        self._failures: Counter[tuple[int, str]] = Counter()
        """How often in a row sources could not inject."""
        self._tending = ExitStack()

    def look(self) -> None:
        """See which barriers are wanted, and inject them."""
        with self._turn:
            for owing in self._database.transact(
                lambda c: checkpoint_store.pending_barriers(c, self._pipeline)
            ):
                source = self._source(owing.run, owing.source)
                source.handle.inject(owing.number, owing.epoch, unpublished=owing.is_unpublished)
            for known in [*self._sources.values()]:
                self._try(known)
            self._forget_closed()

    def after_chunk(self, run: RunInfo, source: str) -> None:
        """A chunk was appended to a source: its barrier, if one waits, comes behind it."""
        with self._turn:
            known = self._sources.get((run.id, source))
            if known is not None:
                self._try(known)

    def _source(self, run: RunInfo, name: str) -> _Source:
        key = run.id, name
        if key not in self._sources:
            injector = BarrierInjector(f"{name} of run {run.name}")
            self._sources[key] = _Source(run, name, injector, injector.handle())
        return self._sources[key]

    def _try(self, source: _Source) -> None:
        """One source that cannot inject keeps no other from it, and is named in the end."""
        try:
            self._poll(source)
        except BarrierInjectionFailed as failure:
            log.warning("%s", failure)
            self._failures[source.run.id, source.name] += 1
            if self._failures[source.run.id, source.name] >= MOST_FAILURES:
                self._give_up(source, failure)
        else:
            self._failures.pop((source.run.id, source.name), None)

    def _give_up(self, source: _Source, failure: BarrierInjectionFailed) -> None:
        """Nothing comes of the checkpoint that this source owes; the next one may."""
        del self._failures[source.run.id, source.name]
        for owed in self._database.transact(
            lambda c: checkpoint_store.pending_barriers(c, self._pipeline)
        ):
            if (owed.run.id, owed.source) == (source.run.id, source.name):
                reason, offender = failure.reason, f"source {source.name}"
                its = partial(checkpoint_store.abort, run=owed.run, number=owed.number)
                self._database.transact(partial(its, reason=reason, offender=offender))

    def _poll(self, source: _Source) -> None:
        barrier = source.injector.poll_barrier()
        if barrier is None:
            return
        inject = partial(
            checkpoint_store.inject,
            run=source.run,
            source=source.name,
            barrier=barrier,
            channels=self._channels(source.name),
        )
        try:
            self._database.transact(inject)
        except Exception as cause:
            # The injector takes a number once. That the source owes it still stands in the
            # database, and another one is told.
            del self._sources[source.run.id, source.name]
            raise BarrierInjectionFailed(source.name, str(barrier), str(cause)) from cause

    def _forget_closed(self) -> None:
        runs = {run for run, _ in self._sources}
        if runs:
            alive = self._database.transact(lambda c: unfinished_among(c, runs))
            for key in [key for key in self._sources if key[0] not in alive]:
                del self._sources[key]

    def __enter__(self) -> Self:
        tending = PeriodicTask("tidegate-injection", self.look, NET)
        self._tending.callback(tending.close)
        self._tending.callback(
            self._notifications.subscribe(checkpoint_topic(self._pipeline), tending.run_now)
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._tending.close()
