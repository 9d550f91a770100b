"""Injects the barriers of checkpoints into the sources of runs, between two chunks.

The database records which sources need a barrier and which have it. Every process that accepts
chunks has an injector for each source that needs one; it is polled after every chunk, after every
notification, and periodically. A barrier is appended to the source's channels in one transaction,
once: a second process finds nothing to do.
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
"""Failures in a row after which the checkpoint is aborted."""
POLL = 1.0
"""Seconds between two attempts without a notification."""


@dataclass(frozen=True)
class _Source:
    """One source of a run, and its injector."""

    run: RunInfo
    name: str
    injector: BarrierInjector
    handle: InjectorHandle


class BarrierInjection:
    """Injects barriers for one pipeline; periodically while it is entered.

    `channels` returns the channels of a source.
    """

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
        self._lock = Lock()
        self._sources: dict[tuple[int, str], _Source] = {}
        self._failures: Counter[tuple[int, str]] = Counter()
        """Failures in a row, by run and source."""
        self._stack = ExitStack()

    def inject_due(self) -> None:
        """Inject the barriers that checkpoints need."""
        with self._lock:
            for owed in self._database.transact(
                lambda c: checkpoint_store.pending_barriers(c, self._pipeline)
            ):
                source = self._source(owed.run, owed.source)
                source.handle.inject(owed.number, owed.epoch, unpublished=owed.is_unpublished)
            for known in [*self._sources.values()]:
                self._try(known)
            self._forget_closed()

    def after_chunk(self, run: RunInfo, source: str) -> None:
        """Inject a due barrier after a chunk was appended to a source."""
        with self._lock:
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
        """Inject into one source; a failure is logged and does not affect other sources."""
        try:
            self._poll(source)
        except BarrierInjectionFailed as failure:
            log.warning("%s", failure)
            self._failures[source.run.id, source.name] += 1
            if self._failures[source.run.id, source.name] >= MOST_FAILURES:
                self._abort(source, failure)
        else:
            self._failures.pop((source.run.id, source.name), None)

    def _abort(self, source: _Source, failure: BarrierInjectionFailed) -> None:
        """Abort the checkpoint whose barrier cannot be injected; the next one may succeed."""
        del self._failures[source.run.id, source.name]
        for owed in self._database.transact(
            lambda c: checkpoint_store.pending_barriers(c, self._pipeline)
        ):
            if (owed.run.id, owed.source) == (source.run.id, source.name):
                reason, offender = failure.reason, f"source {source.name}"
                abort = partial(checkpoint_store.abort, run=owed.run, number=owed.number)
                self._database.transact(partial(abort, reason=reason, offender=offender))

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
            # An injector accepts a number once. The database still has the barrier as missing, so
            # a new injector gets it.
            del self._sources[source.run.id, source.name]
            raise BarrierInjectionFailed(source.name, str(barrier), str(cause)) from cause

    def _forget_closed(self) -> None:
        runs = {run for run, _ in self._sources}
        if runs:
            unfinished = self._database.transact(lambda c: unfinished_among(c, runs))
            for key in [key for key in self._sources if key[0] not in unfinished]:
                del self._sources[key]

    def __enter__(self) -> Self:
        periodic = PeriodicTask("tidegate-injection", self.inject_due, POLL)
        self._stack.callback(periodic.close)
        self._stack.callback(
            self._notifications.subscribe(checkpoint_topic(self._pipeline), periodic.run_now)
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
