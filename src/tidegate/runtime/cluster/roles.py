"""Main loop of a deployment process: run its role until stop or drain, then hand over and exit.

Before it exits, a process gives back its leases, publishes its final stats and meets the other
members at a fence, so that all of them have its stats. Without a group it only hands over.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from threading import Event
from time import monotonic
from typing import TYPE_CHECKING, Protocol
from uuid import uuid4

from tidegate.errors import GroupError, listed
from tidegate.runtime.cluster.peer import GroupPeer, Stats

if TYPE_CHECKING:
    from tidegate.runtime.monitor.monitor import Monitor
    from tidegate.runtime.service import PipelineFrontend, PipelineService

log = logging.getLogger(__name__)

WORKER = "worker"
"""The role of processes that own tasks."""
POLL = 0.25
"""Seconds between two health checks."""
STATS_EVERY = 2.0
HAND_OVER_BOUND = 120.0
"""Seconds for running jobs to finish; after that another worker repeats them."""


class Role(Protocol):
    """The part of a process in its deployment."""

    role: str

    def check(self) -> None:
        """Raise if the process cannot go on."""
        ...

    def hand_over(self, bound: float) -> bool:
        """Give back what is owned; whether that was done in time."""
        ...

    def did(self) -> dict[str, int]:
        """What was done so far: counts by name."""
        ...

    @property
    def warning(self) -> str:
        """A problem that the operator should know of; empty if there is none."""
        ...


@dataclass
class WorkerRole:
    """Runs tasks."""

    service: PipelineService
    role: str = WORKER
    final_tasks: int | None = field(default=None, init=False)
    """The number of tasks before they were handed over."""

    def check(self) -> None:
        """Raise if the worker or the monitor has failed."""
        self.service.check()

    def hand_over(self, bound: float) -> bool:
        """Commit running work and give the tasks back."""
        self.final_tasks = len(self.service.worker.tasks)
        return self.service.worker.drain(bound)

    def did(self) -> dict[str, int]:
        """Tasks, jobs and rows; also the counts of its server and monitor."""
        totals = self.service.factory.totals.values()
        return {
            **self._tasks(),
            "jobs": sum(stage.jobs for stage in totals),
            "rows": sum(stage.rows for stage in totals),
            **_frontend_counts(self.service),
        }

    def _tasks(self) -> dict[str, int]:
        if self.final_tasks is not None:
            return {"tasks at the end": self.final_tasks}
        return {"tasks": len(self.service.worker.tasks)}

    @property
    def warning(self) -> str:
        """Tasks of stages that no worker is configured to run."""
        tasks = self.service.worker.unattended
        return f"no worker runs {listed(tasks)}: see --stages" if tasks else ""


@dataclass
class ServerRole:
    """Accepts runs over HTTP."""

    frontend: PipelineFrontend
    role: str = "server"

    def check(self) -> None:
        """Raise if Spark or the monitor has failed."""
        self.frontend.check()

    def hand_over(self, bound: float) -> bool:
        """A server owns nothing; its clients retry."""
        return True

    def did(self) -> dict[str, int]:
        """What its clients did; also releases, since it has a standby monitor."""
        return _frontend_counts(self.frontend)

    @property
    def warning(self) -> str:
        """None."""
        return ""


@dataclass
class MonitorRole:
    """Monitors the runs."""

    monitor: Monitor
    role: str = "monitor"

    def check(self) -> None:
        """Raise the error that ended the monitor."""
        if self.monitor.error is not None:
            raise self.monitor.error

    def hand_over(self, bound: float) -> bool:
        """Closing the monitor gives its lease back."""
        return True

    def did(self) -> dict[str, int]:
        """Releases and committed checkpoints."""
        return _monitor_counts(self.monitor)

    @property
    def warning(self) -> str:
        """None."""
        return ""


def _frontend_counts(frontend: PipelineFrontend) -> dict[str, int]:
    return {**frontend.server.counters.counts(), **_monitor_counts(frontend.monitor)}


def _monitor_counts(monitor: Monitor) -> dict[str, int]:
    return {"releases": monitor.releases, "checkpoints": monitor.coordinator.checkpoints}


def run_until_stopped(role: Role, peer: GroupPeer | None, stopped: Event) -> bool:
    """Run a role until a signal or a member requests the end; whether no work was dropped."""
    published_at = 0.0
    while not (stopped.is_set() or _is_end_requested(peer)):
        role.check()
        if peer is not None and monotonic() - published_at > STATS_EVERY:
            published_at = monotonic()
            peer.publish_stats(Stats(peer.name, role.role, role.did(), warning=role.warning))
        stopped.wait(POLL)
    is_clean = role.hand_over(HAND_OVER_BOUND)
    if peer is not None and not peer.is_replaced:
        _leave(peer, Stats(peer.name, role.role, role.did(), is_final=True))
    return is_clean


def _is_end_requested(peer: GroupPeer | None) -> bool:
    if peer is None:
        return False
    if peer.is_replaced:  # no member could stop this process any more
        log.warning("another process is %s now; this one hands over and ends", peer.name)
        return True
    return peer.stop_requested.is_set() or peer.drain_requested.is_set()


def _leave(peer: GroupPeer, stats: Stats) -> None:
    """Publish the final stats and leave; a failure of the group is only logged."""
    peer.publish_stats(stats)
    try:
        if peer.group.is_connected and not peer.stop_requested.is_set():
            completion = peer.fence(f"leave {uuid4().hex[:8]}")
            if not completion.is_satisfied:
                log.warning("%s leaves: %s", peer.name, completion)
        peer.leave()
    except GroupError as error:
        log.warning("%s could not leave the group orderly: %s", peer.name, error)
