"""The state of the demo: polls all runs until a condition is reached."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

import tidegate as tg
from tidegate_examples.coffee.demo.progress import progress

if TYPE_CHECKING:
    from tidegate_examples.coffee.demo.clients import Client
    from tidegate_examples.coffee.demo.workers import WorkerProcess
    from tidegate_examples.demo_output import DemoOutput

POLL_INTERVAL = 0.25
"""Seconds between two polls."""
BOUND = 300.0
"""Seconds that may pass without any progress, also on slow machines."""


@dataclass
class DemoState:
    """The parts of the demo, and the last known facts of all runs."""

    deployment: tg.Deployment
    output: DemoOutput
    clients: Sequence[Client]
    runs: Mapping[str, tg.Run]
    """The run of each client, by its name."""
    facts: dict[str, tg.RunFacts] = field(default_factory=dict)
    """The latest facts of each client's run."""
    facts_with_channels: dict[str, tg.RunFacts] = field(default_factory=dict)
    """The latest facts with messages: those of a complete run are removed after some seconds."""

    @property
    def open_runs(self) -> list[tg.RunFacts]:
        """The runs that are not complete."""
        return [facts for facts in self.facts.values() if facts.run.state is tg.RunState.OPEN]

    @property
    def messages(self) -> int:
        """The total number of processed messages."""
        return sum(progress(facts).messages for facts in self.facts_with_channels.values())

    def follow(
        self,
        is_reached: Callable[[], bool],
        helpers: Iterable[Future[Any]],
        worker: WorkerProcess | None = None,
    ) -> None:
        """Poll until a condition on the facts is met; a failed worker or helper ends the demo."""
        line, since = "", monotonic()
        while not self._observe(is_reached):
            if worker is not None:
                worker.check_alive()
            for helper in helpers:
                if helper.done():
                    helper.result()
            if self.progress_line() != line:
                line, since = self.progress_line(), monotonic()
            if monotonic() - since > BOUND:
                raise SystemExit(f"no progress for {BOUND:g} s. {line}")
            self.output.progress(line)
            sleep(POLL_INTERVAL)

    def progress_line(self) -> str:
        """One line with the progress of all runs."""
        done = ", ".join(map(_run_progress, self.facts.values()))
        return f"tasks done: {done}; {self.messages} messages"

    def _observe(self, is_reached: Callable[[], bool]) -> bool:
        for name, run in self.runs.items():
            facts = run.status()
            self.facts[name] = facts
            if facts.channels:
                self.facts_with_channels[name] = facts
        return is_reached()


def _run_progress(facts: tg.RunFacts) -> str:
    if facts.run.state is not tg.RunState.OPEN:
        return f"{facts.run.name} all"
    done = progress(facts)
    return f"{facts.run.name} {done.done}/{done.tasks}"
