"""The monitor releases runs at sharded aggregates and enforces their deadlines.

One process of a deployment monitors a pipeline, under a lease; others stand by. It reads facts,
lets `tidegate.completion` decide, and writes the decision. The tasks that need a release are
recorded in the database, so it needs neither the plan nor Spark, and a process that takes over
after a crash reads the same facts and decides the same. A monitor that fails repeatedly gives its
lease back.
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
from tidegate.settings import DEFAULTS, Settings
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

MONITOR = "monitor"


class Monitor:
    """Monitors one pipeline.

    `explain` returns why a run is not done; `checksum` computes the checksums of files.
    """

    def __init__(
        self,
        database: Database,
        pipeline: str,
        notifications: Notifications,
        explain: Callable[[RunInfo], str],
        checksum: ChecksumFiles,
        settings: Settings = DEFAULTS,
        process: str = "",
    ) -> None:
        self._database = database
        self._pipeline = pipeline
        self.releases = 0
        """ENDs that it has released."""
        self.coordinator = CheckpointCoordinator(database, pipeline, checksum)
        self._explain = explain
        self._lease_seconds = settings.lease_seconds
        self._owner = f"{getpid()}-{new_owner_id(process)}"
        self._lease: Lease | None = None
        self._warned: set[int] = set()
        self._leases = LeaseKeeper(database, self._on_lost)
        self._periodic = PeriodicTask(
            "tidegate-monitor",
            self._look,
            settings.monitor_seconds,
            on_repeated_failure=self._step_down,
        )
        topic = monitor_topic(pipeline)
        self._unsubscribe = notifications.subscribe(topic, self._periodic.run_now)

    @property
    def is_leading(self) -> bool:
        """Whether this process holds the lease."""
        return self._lease is not None

    @property
    def is_alive(self) -> bool:
        """Whether it monitors or stands by; False after it was closed or has failed."""
        return self._periodic.is_alive

    @property
    def error(self) -> BaseException | None:
        """The error that ended it, if one did."""
        return self._periodic.error

    def close(self) -> None:
        """Stop, and give the lease back, so that another process takes over at once."""
        self._unsubscribe()
        self._periodic.close()
        try:
            self._step_down()
        except StoreError as error:
            log.warning(
                "could not release %s lease %s; it will expire: %s", MONITOR, self._pipeline, error
            )
        self._leases.close()

    def _look(self) -> None:
        lease = self._lease or self._lead()
        if lease is None:
            return
        self._release(lease)
        self.coordinator.look(lease)
        self._enforce_deadlines(lease)

    def _lead(self) -> Lease | None:
        take = partial(
            acquire,
            kind=MONITOR,
            key=self._pipeline,
            owner=self._owner,
            seconds=self._lease_seconds,
        )
        self._lease = self._database.transact(take)
        if self._lease is not None:
            self._leases.keep(self._lease)
        return self._lease

    def _step_down(self) -> None:
        lease, self._lease = self._lease, None
        if lease is not None:
            self._leases.release(lease, [monitor_topic(self._pipeline)])

    def _on_lost(self, lease: Lease) -> None:
        log.warning("the monitor of %s has lost its lease", lease.key)
        self._lease = None

    # ── releases ──

    def _release(self, lease: Lease) -> None:
        gates = self._database.transact(lambda c: release_points_of(c, self._pipeline))
        if not gates:
            return
        self.releases += self._database.transact(lambda c: self._release_complete(c, lease, gates))
        crash_point("release.after_commit")

    def _release_complete(self, connection: Connection, lease: Lease, gates: Sequence[str]) -> int:
        """Release the runs that are complete at a task; the number of released ENDs."""
        guard(connection, lease)
        released = 0
        for run, task, facts in unreleased(connection, self._pipeline, gates):
            verdict = decide(facts)
            if isinstance(verdict, Release):
                released += release(connection, run, task)
            elif isinstance(verdict, Fault):
                cause = UndeclaredMessages(run=run.name, task=task, unexpected=verdict.unexpected)
                close_run(connection, run, RunState.FAILED, str(cause))
        return released

    # ── deadlines ──

    def _enforce_deadlines(self, lease: Lease) -> None:
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
