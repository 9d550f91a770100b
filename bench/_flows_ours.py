"""The flows benchmark, our side: a generator whose items are the children."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from time import sleep, time

from bench._flows_side import ProcessSupervisor, supervisor
from tidegate.flows import Context, Flow
from tidegate.flows.client import FlowRun, start_flow
from tidegate.store import Database, Notifications
from tidegate.store.flows.runs import flow_progress

BOUND = 3600.0


@dataclass(frozen=True)
class Fan:
    """How many children, and how long each takes."""

    children: int
    seconds: float


fan = Flow("fan")


@fan.generator
def spread(_context: Context, asked: Fan) -> Iterator[float]:
    """An item is the duration of its child in seconds."""
    for _ in range(asked.children):
        yield asked.seconds


@spread.handler
def child(_context: Context, seconds: float) -> float:
    """Gives when it began."""
    began = time()
    if seconds:
        sleep(seconds)
    return began


class Ours:
    """Runs of the flow, and workers for it."""

    name = "Tidegate items"
    spreads = True

    def __init__(self, url: str, folder: Path, lease: float) -> None:
        self._folder = folder
        self._lease = lease
        self._database = Database(url).open()
        self._notifications = Notifications(self._database)

    def close(self) -> None:
        """Close the database."""
        self._notifications.close()
        self._database.close()

    def workers(self, number: int) -> AbstractContextManager[ProcessSupervisor]:
        """As the command line starts them."""
        command = ["-m", "tidegate", "flow", "worker", "bench._flows_ours:fan"]
        command += ["--deployment", str(self._folder), "--database", self._database.url]
        return supervisor([[*command, "--lease", str(self._lease)]] * number)

    def begin(self, children: int, seconds: float = 0.0) -> str:
        """A run."""
        return str(start_flow(self._database, fan, Fan(children, seconds)).id)

    def wait(self, parent: str) -> None:
        """Wait for the completion of the run."""
        self._run(parent).wait(BOUND, self._notifications)

    def first(self, parent: str) -> float:
        """By the results."""
        return float(min(self._run(parent).result(spread)))

    def done(self, parent: str) -> int:
        """By the counters of the run."""
        (step,) = self._database.transact(lambda c: flow_progress(c, int(parent)))
        return step.succeeded

    def _run(self, parent: str) -> FlowRun:
        return FlowRun(int(parent), fan, self._database)
