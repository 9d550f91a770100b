"""A deployment of several processes on one machine: who is wanted, and how they begin and end.

They begin with a rendezvous of everybody who is wanted, and whoever is missing when its bound
passes is named. They end with a fence, after which each has heard that it is over, and with a word
of each about what it has done.
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
"""What the process is called that started the others."""
START_BOUND = 180.0
"""Seconds for everybody to be at work; each worker starts a Spark."""
MOST_DEATHS = 3
"""One that dies more often before it is at work will never be."""
LOOK = 0.5
PASSING = 5.0
"""Seconds within which a warning may be over before anybody is told."""
END_BOUND = 30.0
"""Seconds for a process to end once it has handed over."""


@dataclass(frozen=True)
class ClusterSpec:
    """Who is to work on a pipeline, and with which options."""

    pipeline: str
    folder: Path
    workers: int
    monitors: int
    serve: Sequence[str] | None = None
    """The options of the server; none is started without them."""
    work: Sequence[str] = ()
    """The options of every worker."""
    stages: Sequence[str] = ()
    """Lists of the stages that workers are for, dealt out in turn; without any, all."""

    def process_specs(self) -> list[ProcessSpec]:
        """One for each process."""
        workers = [f"worker-{number}" for number in range(1, self.workers + 1)]
        monitors = [f"monitor-{number}" for number in range(1, self.monitors + 1)]
        process_specs = [self._post("monitor", name, ()) for name in monitors]
        process_specs += [
            self._post("worker", name, [*self.work, *only])
            for name, only in zip(workers, self._dealt(), strict=False)
        ]
        if self.serve is not None:
            process_specs.append(self._post("serve", "server", ["--no-tasks", *self.serve]))
        return process_specs

    def _dealt(self) -> Iterator[Sequence[str]]:
        return cycle([["--stages", its] for its in self.stages] or [[]])

    def _post(self, command: str, name: str, options: Sequence[str]) -> ProcessSpec:
        asked = [sys.executable, "-m", "tidegate", command, self.pipeline]
        asked += ["--deployment", str(self.folder), "--name", name, "--with-parent"]
        return ProcessSpec(name, command, [*asked, *options])


class Warnings:
    """Says what several may report, once, and only if it does not pass by itself."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._since: dict[str, float] = {}
        self._said: set[str] = set()

    def note(self, amiss: set[str], now: float) -> None:
        """This is amiss now; what was said and is over may be said again."""
        self._since = {it: self._since.get(it, now) for it in amiss}
        self._said &= amiss
        for warning in sorted(amiss - self._said):
            if now - self._since[warning] >= PASSING:
                self._said.add(warning)
                self._say(warning)


class LocalCluster:
    """The processes at work, and this one among them."""

    def __init__(
        self,
        supervisor: ProcessSupervisor,
        peer: GroupPeer,
        tend: Callable[[], None] = lambda: None,
        say: Callable[[str], None] = log.info,
    ) -> None:
        self.supervisor = supervisor
        self.peer = peer
        self._tend = tend
        """Looks after the coordinator."""
        self._say = say
        """Tells whoever looks after the deployment."""
        self._away: set[str] = set()
        """Who has died and is not back."""

    @property
    def names(self) -> set[str]:
        """Of those who are wanted and have not left on purpose."""
        return {name for name, process in self.supervisor.processes.items() if not process.is_gone}

    def gather(self, stopped: Event, bound: float = START_BOUND) -> None:
        """Wait until everybody is at work; `ClusterIncomplete` says who is not, and why."""
        began = monotonic()
        while not (stopped.is_set() or self._are_all_here()):
            self.look()
            hopeless = any(_is_hopeless(process) for process in self.supervisor.processes.values())
            if hopeless or monotonic() > began + bound:
                raise self._incomplete(monotonic() - began)
        completion = self.peer.fence(f"everybody is here {uuid4().hex[:8]}")
        offenders = {member.name for member in completion.offenders.values()} & self.names
        if offenders and not stopped.is_set():  # guests may come and go
            raise ClusterIncomplete(str(completion), FENCE_BOUND, "")

    def keep(self, stopped: Event) -> None:
        """Start those again that die, until told to stop or all have gone; say what is amiss."""
        warnings = Warnings(self._say)
        while not (stopped.is_set() or self.supervisor.is_gone):
            self.look()
            warnings.note({it.warning for it in self.peer.stats.values()} - {""}, monotonic())
            stopped.wait(LOOK)

    def look(self) -> None:
        """Look after everybody, and say who has died or is back."""
        self._tend()
        for name, what in self.supervisor.look().items():
            self._say(what)
            self._away.add(name)
        back = {name for name in self._away if self._is_here(name)}
        self._away -= back
        for name in sorted(back):
            self._say(f"{name} is back")

    def _is_here(self, name: str) -> bool:
        """Whether its present life is in the group; the last one may still seem to be."""
        process = self.supervisor.processes[name]
        members = {(member.name, member.pid) for member in self.peer.members}
        return process.is_alive and (name, process.pid) in members

    def stop(self) -> list[Stats]:
        """Tell everybody to finish, and hear what each has done."""
        names = self.names
        self.peer.hint(STOP)
        with suppress(GroupError):
            self.peer.fence(f"everybody goes {uuid4().hex[:8]}")
        self.peer.wait_for_final_stats(names, HAND_OVER_BOUND)
        stats = self.peer.stats
        return [stats[name] for name in sorted(stats)]

    def _are_all_here(self) -> bool:
        try:
            self.peer.group.wait_for(self.names, LOOK)
        except MembersMissing:
            return False
        return True

    def _incomplete(self, seconds: float) -> ClusterIncomplete:
        """Those who never can come explain it; else all who have not."""
        here = {member.name for member in self.peer.members}
        processes = self.supervisor.processes
        hopeless = [process for process in processes.values() if _is_hopeless(process)]
        missing = hopeless or [process for name, process in processes.items() if name not in here]
        names = listed([process.spec.name for process in missing])
        said = "\n".join(
            f"{process.spec.name} said last: {process.last_output()}" for process in missing
        )
        return ClusterIncomplete(f"{names} did not come", seconds, said)


def _is_hopeless(process: SupervisedProcess) -> bool:
    return process.is_refused or process.failures > MOST_DEATHS


class CoordinatorSupervisor:
    """The coordinator of the group, begun again should a fault of its own end it."""

    def __init__(self, address: str, secret: bytes) -> None:
        self._secret = secret
        self.coordinator = Coordinator(address, secret=secret)

    def look(self) -> None:
        """See that there is one; its members come back by themselves."""
        try:
            self.coordinator.check()
        except CoordinatorBroken as fault:
            log.critical("%s", fault, exc_info=True)
            self.coordinator.close()
            self.coordinator = Coordinator(self.coordinator.address, secret=self._secret)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.coordinator.close()


@contextmanager
def local_cluster(
    wanted: ClusterSpec, address: str, say: Callable[[str], None] = log.info
) -> Iterator[LocalCluster]:
    """Start everybody, coordinate them, and end them all afterwards."""
    secret = discovery.secret_for()
    folder = wanted.folder
    settings = Settings.from_environment(environ)
    rotation = Rotation(settings.log_bytes, settings.log_files)
    with CoordinatorSupervisor(address, secret) as coordinator_supervisor:
        place = GroupAddress(coordinator_supervisor.coordinator.address, secret)
        place.save(folder)
        peer = GroupPeer.join(SUPERVISOR_NAME, place)
        supervisor = ProcessSupervisor(folder / LOGS, rotation)
        try:
            supervisor.start(wanted.process_specs())
            yield LocalCluster(supervisor, peer, coordinator_supervisor.look, say)
        finally:
            supervisor.close(END_BOUND)
            peer.leave()
            discovery.forget(folder, place)
