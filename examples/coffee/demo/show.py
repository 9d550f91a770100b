"""The demo's view of things: looks at all runs again and again until something has happened."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

from tidegate.store import RunFacts, RunState, run_facts
from tidegate_examples.coffee.demo.progress import progress

if TYPE_CHECKING:
    from tidegate.runtime.deployment import Deployment
    from tidegate.runtime.ingestion.run_service import RunService
    from tidegate.runtime.task_graph import TaskGraph
    from tidegate.spark import Session
    from tidegate_examples.coffee.demo.clients import Client
    from tidegate_examples.coffee.demo.workers import WorkerProcess
    from tidegate_examples.demo_output import DemoOutput

GLANCE = 0.25
"""Seconds between two looks."""
BOUND = 300.0
"""Seconds that may pass without any progress, on the slowest of machines."""


@dataclass
class Show:
    """Everything that takes part, and what was seen of it last."""

    session: Session
    place: Deployment
    task_graph: TaskGraph
    server: RunService
    output: DemoOutput
    clients: Sequence[Client]
    facts: dict[str, RunFacts] = field(default_factory=dict)
    """The run of each client that has begun, as it was seen last."""
    traces: dict[str, RunFacts] = field(default_factory=dict)
    """The same while there were messages: of a complete run they are removed after some seconds."""

    @property
    def open_runs(self) -> list[RunFacts]:
        """The runs that are not complete."""
        return [facts for facts in self.facts.values() if facts.run.state is RunState.OPEN]

    @property
    def messages(self) -> int:
        """How many were processed in all."""
        return sum(progress(facts).messages for facts in self.traces.values())

    def follow(
        self,
        is_reached: Callable[[], bool],
        helpers: Iterable[Future[Any]],
        worker: WorkerProcess | None = None,
    ) -> None:
        """Look until a condition on the facts is met. Whoever fails meanwhile ends the demo."""
        seen, since = "", monotonic()
        while not self._observe(is_reached):
            if worker is not None:
                worker.check_alive()
            for helper in helpers:
                if helper.done():
                    helper.result()
            if self.how_far() != seen:
                seen, since = self.how_far(), monotonic()
            if monotonic() - since > BOUND:
                raise SystemExit(f"nothing has happened for {BOUND:g} s. {seen}")
            self.output.progress(seen)
            sleep(GLANCE)

    def how_far(self) -> str:
        """One line about all runs."""
        seen = [self.facts[it.name] for it in self.clients if it.name in self.facts]
        so_far = ", ".join(map(_how_far, seen)) or "none"
        return f"tasks done: {so_far}; {self.messages} messages"

    def _observe(self, is_reached: Callable[[], bool]) -> bool:
        for client in self.clients:
            run = self.server.find(client.name)
            if run is not None:
                facts = self.place.database.transact(partial(run_facts, run=run))
                self.facts[client.name] = facts
                if facts.channels:
                    self.traces[client.name] = facts
        return is_reached()


def _how_far(facts: RunFacts) -> str:
    if facts.run.state is not RunState.OPEN:
        return f"{facts.run.name} all"
    so_far = progress(facts)
    return f"{facts.run.name} {so_far.done}/{so_far.tasks}"
