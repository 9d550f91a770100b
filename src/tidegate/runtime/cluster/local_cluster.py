"""A deployment of several processes on one machine: starts, supervises and stops them.

A cluster starts with a rendezvous of all its processes; those that are missing when its bound
passes are named. It stops with a fence, after which every process knows of the stop, and with the
final stats of each.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import cycle
from os import environ
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Self
from uuid import uuid4

from tidegate.errors import (
    ClusterIncomplete,
    CoordinatorBroken,
    GroupError,
    MembersMissing,
    listed,
)
from tidegate.group import Coordinator
from tidegate.runtime.cluster import discovery
from tidegate.runtime.cluster.discovery import GroupAddress
from tidegate.runtime.cluster.log_rotation import Rotation
from tidegate.runtime.cluster.peer import FENCE_BOUND, STOP, GroupPeer, Stats
from tidegate.runtime.cluster.process_supervisor import (
    ProcessSpec,
    ProcessSupervisor,
    SupervisedProcess,
)
from tidegate.runtime.cluster.roles import HAND_OVER_BOUND
from tidegate.settings import Settings

log = logging.getLogger(__name__)

LOGS = "logs"
SUPERVISOR_NAME = "up"
"""The name of the supervising process in the group."""
START_BOUND = 180.0
"""Seconds for all processes to be ready; each worker starts a Spark."""
MOST_FAILURES = 3
"""Failures of a process during the start after which the start has failed."""
POLL = 0.5
WARNING_DELAY = 5.0
"""Seconds for which a warning has to persist before it is reported."""
END_BOUND = 30.0
"""Seconds for a process to end after it has handed over."""


@dataclass(frozen=True)
class ClusterSpec:
    """The processes to run for a pipeline, and their options."""

    pipeline: str
    folder: Path
    workers: int
    monitors: int
    serve: Sequence[str] | None = None
    """The options of the server; without them none is started."""
    work: Sequence[str] = ()
    """The options of every worker."""
    stages: Sequence[str] = ()
    """Lists of stages, assigned to the workers in turn; without any, each runs all stages."""

    def process_specs(self) -> list[ProcessSpec]:
        """One for each process."""
        workers = [f"worker-{number}" for number in range(1, self.workers + 1)]
        monitors = [f"monitor-{number}" for number in range(1, self.monitors + 1)]
        specs = [self._spec("monitor", name, ()) for name in monitors]
        stages = cycle([["--stages", stages] for stages in self.stages] or [[]])
        specs += [
            self._spec("worker", name, [*self.work, *only])
            for name, only in zip(workers, stages, strict=False)
        ]
        if self.serve is not None:
            specs.append(self._spec("serve", "server", ["--no-tasks", *self.serve]))
        return specs

    def _spec(self, command: str, name: str, options: Sequence[str]) -> ProcessSpec:
        line = [sys.executable, "-m", "tidegate", command, self.pipeline]
        line += ["--deployment", str(self.folder), "--name", name, "--with-parent"]
        return ProcessSpec(name, command, [*line, *options])


class Warnings:
    """Reports a warning once, however many processes have it, and only if it persists."""

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._since: dict[str, float] = {}
        self._reported: set[str] = set()

    def update(self, present: set[str], now: float) -> None:
        """Note the present warnings; one that was over may be reported again."""
        self._since = {warning: self._since.get(warning, now) for warning in present}
        self._reported &= present
        for warning in sorted(present - self._reported):
            if now - self._since[warning] >= WARNING_DELAY:
                self._reported.add(warning)
                self._report(warning)


class LocalCluster:
    """The supervised processes, and this process as a member of their group."""

    def __init__(
        self,
        supervisor: ProcessSupervisor,
        peer: GroupPeer,
        ensure_coordinator: Callable[[], None] = lambda: None,
        report: Callable[[str], None] = log.info,
    ) -> None:
        self.supervisor = supervisor
        self.peer = peer
        self._ensure_coordinator = ensure_coordinator
        self._report = report
        """Called with a line for the operator."""
        self._failed: set[str] = set()
        """Processes that failed and have not joined the group again."""

    @property
    def names(self) -> set[str]:
        """Of all processes except those that have exited without an error."""
        return {name for name, it in self.supervisor.processes.items() if not it.is_gone}

    def wait_until_ready(self, stopped: Event, bound: float = START_BOUND) -> None:
        """Wait until all processes have joined; raises `ClusterIncomplete` with the reason."""
        began = monotonic()
        while not (stopped.is_set() or self._have_all_joined()):
            self.supervise()
            has_failed = any(_cannot_start(it) for it in self.supervisor.processes.values())
            if has_failed or monotonic() > began + bound:
                raise self._incomplete(monotonic() - began)
        completion = self.peer.fence(f"ready {uuid4().hex[:8]}")
        offenders = {member.name for member in completion.offenders.values()} & self.names
        if offenders and not stopped.is_set():  # temporary members may come and go
            raise ClusterIncomplete(str(completion), FENCE_BOUND, "")

    def run_until_stopped(self, stopped: Event) -> None:
        """Restart failed processes and report warnings, until `stopped` or all have exited."""
        warnings = Warnings(self._report)
        while not (stopped.is_set() or self.supervisor.is_gone):
            self.supervise()
            present = {stats.warning for stats in self.peer.stats.values()} - {""}
            warnings.update(present, monotonic())
            stopped.wait(POLL)

    def supervise(self) -> None:
        """Restart what has failed, and report failures and recoveries."""
        self._ensure_coordinator()
        for name, event in self.supervisor.supervise().items():
            self._report(event)
            self._failed.add(name)
        recovered = {name for name in self._failed if self._is_member(name)}
        self._failed -= recovered
        for name in sorted(recovered):
            self._report(f"{name} is running again")

    def _is_member(self, name: str) -> bool:
        """Whether the process has joined since its last start; its predecessor may be listed."""
        process = self.supervisor.processes[name]
        members = {(member.name, member.pid) for member in self.peer.members}
        return process.is_alive and (name, process.pid) in members

    def stop(self) -> list[Stats]:
        """Stop all processes; the final stats of each."""
        names = self.names
        self.peer.hint(STOP)
        with suppress(GroupError):
            self.peer.fence(f"stop {uuid4().hex[:8]}")
        self.peer.wait_for_final_stats(names, HAND_OVER_BOUND)
        stats = self.peer.stats
        return [stats[name] for name in sorted(stats)]

    def _have_all_joined(self) -> bool:
        try:
            self.peer.group.wait_for(self.names, POLL)
        except MembersMissing:
            return False
        return True

    def _incomplete(self, seconds: float) -> ClusterIncomplete:
        """Names the processes that cannot start, or else all that have not joined."""
        members = {member.name for member in self.peer.members}
        processes = self.supervisor.processes
        failed = [process for process in processes.values() if _cannot_start(process)]
        missing = failed or [it for name, it in processes.items() if name not in members]
        names = listed([process.spec.name for process in missing])
        output = "\n".join(f"last output of {it.spec.name}: {it.last_output()}" for it in missing)
        return ClusterIncomplete(f"{names} did not start", seconds, output)


def _cannot_start(process: SupervisedProcess) -> bool:
    return process.is_refused or process.failures > MOST_FAILURES


class CoordinatorSupervisor:
    """The coordinator of the group, restarted after an internal error."""

    def __init__(self, address: str, secret: bytes) -> None:
        self._secret = secret
        self.coordinator = Coordinator(address, secret=secret)

    def supervise(self) -> None:
        """Restart the coordinator if it is broken; members rejoin by themselves."""
        try:
            self.coordinator.check()
        except CoordinatorBroken as error:
            log.critical("%s", error, exc_info=True)
            self.coordinator.close()
            self.coordinator = Coordinator(self.coordinator.address, secret=self._secret)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.coordinator.close()


@contextmanager
def local_cluster(
    spec: ClusterSpec, address: str, report: Callable[[str], None] = log.info
) -> Iterator[LocalCluster]:
    """Start all processes and their coordinator, and stop them at the end of the block."""
    secret = discovery.secret_for()
    settings = Settings.from_environment(environ)
    rotation = Rotation(settings.log_bytes, settings.log_files)
    with CoordinatorSupervisor(address, secret) as coordinator_supervisor:
        group = GroupAddress(coordinator_supervisor.coordinator.address, secret)
        group.save(spec.folder)
        peer = GroupPeer.join(SUPERVISOR_NAME, group)
        supervisor = ProcessSupervisor(spec.folder / LOGS, rotation)
        try:
            supervisor.start(spec.process_specs())
            yield LocalCluster(supervisor, peer, coordinator_supervisor.supervise, report)
        finally:
            supervisor.close(END_BOUND)
            peer.leave()
            discovery.remove(spec.folder, group)
