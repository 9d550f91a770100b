"""A process at its post: it does its part, tells its colleagues, and goes when it is told to.

Going means: hand over what is owned, tell the others, meet them at a fence, so that everybody who
can take over has heard of it, and say what was done. Without a group all of it still happens,
except that nobody is told.
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
"""The role of those who have tasks to hand over."""
LOOK = 0.25
"""Seconds between two looks at whether all is well."""
STATS_EVERY = 2.0
HAND_OVER_BOUND = 120.0
"""Seconds that the jobs at work may take before their outcome is dropped and done again."""


class Role(Protocol):
    """What a process does for a deployment."""

    role: str

    def check(self) -> None:
        """Raise if it cannot go on."""
        ...

    def hand_over(self, bound: float) -> bool:
        """Let go of what is owned; whether that was done in time."""
        ...

    def did(self) -> dict[str, int]:
        """What was done so far, by what it is called."""
        ...

    @property
    def warning(self) -> str:
        """What is not as it should be although the duty is done; empty if there is nothing."""
        ...


@dataclass
class WorkerRole:
    """Runs tasks."""

    service: PipelineService
    role: str = WORKER
    had_at_the_end: int | None = field(default=None, init=False)
    """Tasks, before they were handed over."""

    def check(self) -> None:
        """Raise if nothing is at work any more."""
        self.service.check()

    def hand_over(self, bound: float) -> bool:
        """Commit what is at work and give the tasks to the others."""
        self.had_at_the_end = len(self.service.worker.tasks)
        return self.service.worker.drain(bound)

    def did(self) -> dict[str, int]:
        """Tasks, jobs and rows of its stages; what clients have had it do, if it takes runs."""
        work = self.service.factory.work.values()
        return {
            **self._tasks(),
            "jobs": sum(it.jobs for it in work),
            "rows": sum(it.rows for it in work),
            **_fronted(self.service),
        }

    def _tasks(self) -> dict[str, int]:
        if self.had_at_the_end is not None:
            return {"tasks at the end": self.had_at_the_end}
        return {"tasks": len(self.service.worker.tasks)}

    @property
    def warning(self) -> str:
        """Tasks that wait for somebody who may run their stages."""
        tasks = self.service.worker.unattended
        return f"no worker is there for {listed(tasks)}: see --stages" if tasks else ""


@dataclass
class ServerRole:
    """Takes runs by HTTP."""

    front: PipelineFrontend
    role: str = "server"

    def check(self) -> None:
        """Raise if nobody here can watch the runs."""
        self.front.check()

    def hand_over(self, bound: float) -> bool:
        """Clients ask again; there is nothing to hand over."""
        return True

    def did(self) -> dict[str, int]:
        """What clients have had it do; as a monitor that stands by, it may have released runs."""
        return _fronted(self.front)

    @property
    def warning(self) -> str:
        """Nothing."""
        return ""


@dataclass
class MonitorRole:
    """Watches the runs."""

    watch: Monitor
    role: str = "monitor"

    def check(self) -> None:
        """Raise what the watch has died of."""
        if self.watch.error is not None:
            raise self.watch.error

    def hand_over(self, bound: float) -> bool:
        """Closing lets another take over at once."""
        return True

    def did(self) -> dict[str, int]:
        """What it has let through, and committed."""
        return _watched(self.watch)

    @property
    def warning(self) -> str:
        """Nothing."""
        return ""


def _fronted(front: PipelineFrontend) -> dict[str, int]:
    return {**front.server.counters.counts(), **_watched(front.watch)}


def _watched(watch: Monitor) -> dict[str, int]:
    return {"releases": watch.releases, "checkpoints": watch.coordinator.checkpoints}


def run_until_stopped(duty: Role, peer: GroupPeer | None, stopped: Event) -> bool:
    """Do a duty until told to go, by a signal or by a colleague; whether nothing was dropped."""
    told_at = 0.0
    while not (stopped.is_set() or _is_to_go(peer)):
        duty.check()
        if peer is not None and monotonic() - told_at > STATS_EVERY:
            told_at = monotonic()
            now = Stats(peer.name, duty.role, duty.did(), warning=duty.warning)
            peer.publish_stats(now)
        stopped.wait(LOOK)
    is_clean = duty.hand_over(HAND_OVER_BOUND)
    if peer is not None and not peer.is_replaced:
        final = Stats(peer.name, duty.role, duty.did(), is_final=True)
        _say_goodbye(peer, final)
    return is_clean


def _is_to_go(peer: GroupPeer | None) -> bool:
    if peer is None:
        return False
    if peer.is_replaced:  # nobody could manage it any more
        log.warning("another process is %s now; this one hands over and ends", peer.name)
        return True
    return peer.stop_requested.is_set() or peer.drain_requested.is_set()


def _say_goodbye(peer: GroupPeer, stats: Stats) -> None:
    """Everybody has heard of the tasks that are free before this process is gone.

    Whatever the group makes of it, what was owned is handed over: this cannot fail any more.
    """
    peer.tell_news()
    peer.publish_stats(stats)
    try:
        if peer.group.is_connected and not peer.stop_requested.is_set():
            completion = peer.fence(f"goodbye {uuid4().hex[:8]}")
            if not completion.is_satisfied:
                log.warning("%s leaves: %s", peer.name, completion)
        peer.leave()
    except GroupError as trouble:
        log.warning("%s leaves without a goodbye: %s", peer.name, trouble)
