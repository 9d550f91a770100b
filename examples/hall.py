"""Workers of flows in processes of their own, for demos that kill some of them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from time import monotonic
from typing import TYPE_CHECKING

from tidegate.flows import FlowState

if TYPE_CHECKING:
    from tidegate.flows import FlowRun
    from tidegate.store import Database
    from tidegate.store.flows.runs import StepProgress
    from tidegate_examples.telling import Teller

BOUND = 300.0
LEASE = 3.0
LOOK_EVERY = 0.1


@dataclass
class Hall:
    """Workers, and what they do."""

    database: Database
    folder: Path
    teller: Teller
    left: ExitStack

    def hire(self, declared: str, name: str = "worker") -> subprocess.Popen[bytes]:
        """A worker for what is declared as `module:attribute`."""
        command = [sys.executable, "-m", "tidegate", "flow", "worker", declared]
        command += ["--deployment", str(self.folder), "--lease", str(LEASE), "--name", name]
        with (self.folder / "workers.log").open("ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)  # noqa: S603  our own
        self.left.callback(process.wait)
        self.left.callback(process.terminate)
        return process

    def until(
        self, what: str, is_so: Callable[[], bool], far: Callable[[], str] = lambda: ""
    ) -> None:
        """Wait, and show how far it is."""
        deadline = monotonic() + BOUND
        with self.teller.in_motion():
            while not is_so():
                if monotonic() > deadline:
                    raise SystemExit(f"{what}: not within {BOUND:g} s")
                self.teller.progress(f"{what}{far()}")
                Event().wait(LOOK_EVERY)

    def step(self, run: FlowRun, name: str) -> StepProgress:
        """How far a step of a run is."""
        return next(step for step in run.inspect().steps if step.name == name)

    def is_over(self, run: FlowRun) -> bool:
        """Whether a run is completed; one that failed ends the demo."""
        found = run.status()
        if found.state in {FlowState.FAILED, FlowState.CANCELED}:
            raise SystemExit(f"run {run.id} of {found.flow} is {found.state.value}: {found.cause}")
        return found.state is FlowState.COMPLETED
