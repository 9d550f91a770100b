"""The monitor's watch: releases runs at sharded aggregates, and holds every run to its bounds.

One process of a deployment watches a pipeline, under a lease. It observes facts, lets
`tidegate.completion` decide, and writes the verdict; at which tasks it decides stands in the
database, so that it needs neither the plan nor Spark. Whoever takes over after a crash sees the
same facts and decides the same. Whoever cannot watch, for whatever reason, gives its lease back.
"""

from __future__ import annotations

import logging
from functools import partial
from os import getpid
from typing import TYPE_CHECKING, Self

from tidegate.completion import Fault, Release, decide
from tidegate.errors import StoreError, UndeclaredMessages
from tidegate.faults import crash_point
from tidegate.runtime.ingestion.run_state import OVERDUE
from tidegate.runtime.monitor.checkpoint_coordinator import CheckpointCoordinator
from tidegate.runtime.periodic import PeriodicTask
from tidegate.runtime.worker.owner_id import new_owner_id
from tidegate.store import (
    Lease,
    LeaseKeeper,
    RunState,
    acquire,
    close_run,
    guard,
    late_runs,
    monitor_topic,
    overdue_runs,
    release_points_of,
    unreleased,
)
from tidegate.store.runs.releases import release

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidegate.runtime.task.commit_rows import ChecksumFiles
    from tidegate.store import Connection, Database, Notifications, RunInfo

log = logging.getLogger(__name__)

LEASE_SECONDS = 6.0
MONITOR = "monitor"
NET = 1.0
"""Seconds after which the watch looks although nobody woke it; also how exact deadlines are."""


class Monitor:
    """Watches one pipeline.

    `explain` says why a run is not done, for those who are late; `checksum` how files are
    recognised.
    """

    def __init__(
        self,
        database: Database,
        pipeline: str,
        notifications: Notifications,
        explain: Callable[[RunInfo], str],
        checksum: ChecksumFiles,
        seconds: float = LEASE_SECONDS,
        process: str = "",
    ) -> None:
        self._database = database
        self._pipeline = pipeline
        self.on_release: Callable[[], None] = lambda: None
        """Called when something was let through."""
        self.releases = 0
        """How often it has let an END through."""
        self.coordinator = CheckpointCoordinator(database, pipeline, checksum)
        """Of checkpoints."""
        self._explain = explain
        self._seconds = seconds
        self._owner = f"{getpid()}-{new_owner_id(process)}"
        self._lease: Lease | None = None
        self._warned: set[int] = set()
        self._heartbeat = LeaseKeeper(database, self._on_lost)
        self._tending = PeriodicTask(
            "tidegate-monitor", self._look, NET, on_repeated_failure=self._step_down
        )
        topic = monitor_topic(pipeline)
        self._unsubscribe = notifications.subscribe(topic, self._tending.run_now)

    @property
    def is_leading(self) -> bool:
        """Whether it is this one that decides."""
        return self._lease is not None

    @property
    def is_alive(self) -> bool:
        """Whether it looks, or waits for its turn to; False once it was closed or has died."""
        return self._tending.is_alive

    @property
    def error(self) -> BaseException | None:
        """What it has died of, if it has."""
        return self._tending.error

    def close(self) -> None:
        """Stop, and let another take over at once."""
        self._unsubscribe()
        self._tending.close()
        try:
            self._step_down()
        except StoreError as trouble:
            log.warning("the monitor of %s is left to its lease: %s", self._pipeline, trouble)
        self._heartbeat.close()

    def _look(self) -> None:
        lease = self._lease or self._lead()
        if lease is None:
            return
        self._release(lease)
        self.coordinator.look(lease)
        self._hold_to_bounds(lease)

    def _lead(self) -> Lease | None:
        take = partial(
            acquire,
            kind=MONITOR,
            key=self._pipeline,
            owner=self._owner,
            seconds=self._seconds,
        )
        self._lease = self._database.transact(take)
        if self._lease is not None:
            self._heartbeat.keep(self._lease)
        return self._lease

    def _step_down(self) -> None:
        lease, self._lease = self._lease, None
        if lease is not None:
            self._heartbeat.release(lease)

    def _on_lost(self, lease: Lease) -> None:
        log.warning("the monitor of %s has lost its lease", lease.key)
        self._lease = None

    # ── releasing ──

    def _release(self, lease: Lease) -> None:
        gates = self._database.transact(lambda c: release_points_of(c, self._pipeline))
        if not gates:
            return
        made = self._database.transact(lambda c: self._release_complete(c, lease, gates))
        crash_point("release.after_commit")
        self.releases += made
        if made:
            self.on_release()

    def _release_complete(self, connection: Connection, lease: Lease, gates: Sequence[str]) -> int:
        """Let through what is complete; how many ENDs that were."""
        guard(connection, lease)
        made = 0
        for run, task, facts in unreleased(connection, self._pipeline, gates):
            verdict = decide(facts)
            if isinstance(verdict, Release):
                made += release(connection, run, task)
            elif isinstance(verdict, Fault):
                cause = UndeclaredMessages(run=run.name, task=task, unexpected=verdict.unexpected)
                close_run(connection, run, RunState.FAILED, str(cause))
        return made

    # ── bounds ──

    def _hold_to_bounds(self, lease: Lease) -> None:
        name = self._pipeline
        for run in self._database.transact(lambda c: late_runs(c, name)):
            if run.id not in self._warned:
                self._warned.add(run.id)
                log.warning("run %s is late: %s", run.name, self._explain(run))
        for run in self._database.transact(lambda c: overdue_runs(c, name)):
            cause = f"{OVERDUE}. {self._explain(run)}"
            self._database.transact(partial(self._fail, lease=lease, run=run, cause=cause))

    def _fail(self, connection: Connection, lease: Lease, run: RunInfo, cause: str) -> None:
        guard(connection, lease)
        close_run(connection, run, RunState.FAILED, cause)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
