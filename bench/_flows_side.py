"""Common parts of the sides of the flows benchmark: their interface, and processes.

On each side one parent has many children, each of which is durable and retried for itself, and
worker processes do them. All use databases of the same server.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, perf_counter, sleep
from typing import Protocol

START_BOUND = 60.0
LOOK_EVERY = 0.05
READY = "at work"
"""The line that a worker process prints when it is ready."""


@dataclass(frozen=True, slots=True)
class Rate:
    """So many children were done in so many seconds."""

    children: int
    seconds: float

    @property
    def each_second(self) -> float:
        """Children per second."""
        return self.children / self.seconds

    def __str__(self) -> str:
        return f"{self.each_second:8,.0f}/s   ({self.children:,} in {self.seconds:.1f} s)"


@dataclass(frozen=True, slots=True)
class ProcessSupervisor:
    """Worker processes."""

    processes: Sequence[subprocess.Popen[bytes]]

    @property
    def peak(self) -> float:
        """Megabytes that the largest of them had at most."""
        return max(_peak(it.pid) for it in self.processes)

    def kill_one(self) -> None:
        """Kill the processes by SIGKILL."""
        self.processes[0].kill()
        self.processes[0].wait()


class Side(Protocol):
    """One system that fans out."""

    name: str
    spreads: bool
    """Whether worker processes share the children of a parent."""

    def workers(self, number: int) -> AbstractContextManager[ProcessSupervisor]:
        """Start worker processes."""
        ...

    def begin(self, children: int, seconds: float = 0.0) -> str:
        """Begin a parent with so many children, each of which takes so long; its name."""
        ...

    def wait(self, parent: str) -> None:
        """Wait until all children of a parent are done."""
        ...

    def first(self, parent: str) -> float:
        """When the first child of a parent began that is done, in seconds of the epoch."""
        ...

    def done(self, parent: str) -> int:
        """Children of a parent that are done."""
        ...

    def close(self) -> None:
        """Close the database."""
        ...


def fan_out(side: Side, children: int) -> Rate:
    """One parent, from its beginning until all children are done."""
    return timed(children, lambda: side.wait(side.begin(children)))


@contextmanager
def supervisor(commands: Sequence[Sequence[str]]) -> Iterator[ProcessSupervisor]:
    """A process for each command line behind `python`; all of them at work, and killed after."""
    with TemporaryDirectory() as folder, ExitStack() as left:
        hired = [
            _hired(command, Path(folder, f"worker-{number}.log"), left)
            for number, command in enumerate(commands)
        ]
        for _, log in hired:
            wait_until(lambda at=log: READY in at.read_text(), START_BOUND, log)  # type: ignore[misc]
        yield ProcessSupervisor([process for process, _ in hired])


def _hired(
    command: Sequence[str], log: Path, left: ExitStack
) -> tuple[subprocess.Popen[bytes], Path]:
    with log.open("wb") as opened:
        process = subprocess.Popen([sys.executable, *command], stdout=opened, stderr=opened)
    left.callback(process.wait)
    left.callback(process.kill)
    return process, log


def timed(children: int, work: Callable[[], object]) -> Rate:
    """Measure the rate."""
    started = perf_counter()
    work()
    return Rate(children, perf_counter() - started)


def wait_until(holds: Callable[[], bool], bound: float, log: Path | None = None) -> float:
    """Wait for a condition; the seconds that took."""
    started = monotonic()
    while not holds():
        if monotonic() - started > bound:
            output = log.read_text()[-2_000:] if log is not None else ""
            raise TimeoutError(f"not reached within {bound:g} s. {output}")
        sleep(LOOK_EVERY)
    return monotonic() - started


def _peak(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0
