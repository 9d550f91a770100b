"""Flow workers in separate processes, for demos that kill some of them."""

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
    from tidegate_examples.demo_output import DemoOutput

BOUND = 300.0
LEASE = 3.0
POLL_INTERVAL = 0.1


@dataclass
class FlowWorkers:
    """Starts worker processes and waits for the progress of their flow runs."""

    database: Database
    folder: Path
    output: DemoOutput
    stack: ExitStack

    def start_worker(self, declared: str, name: str = "worker") -> subprocess.Popen[bytes]:
        """Start a worker for flows declared as `module:attribute`; it stops with the stack."""
        command = [sys.executable, "-m", "tidegate", "flow", "worker", declared]
        command += ["--deployment", str(self.folder), "--lease", str(LEASE), "--name", name]
        with (self.folder / "workers.log").open("ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)  # noqa: S603  our own
        self.stack.callback(process.wait)
        self.stack.callback(process.terminate)
        return process

    def wait_until(
        self, what: str, is_reached: Callable[[], bool], detail: Callable[[], str] = lambda: ""
    ) -> None:
        """Wait for a condition, and show the progress."""
        deadline = monotonic() + BOUND
        with self.output.live():
            while not is_reached():
                if monotonic() > deadline:
                    raise SystemExit(f"{what}: not within {BOUND:g} s")
                self.output.progress(f"{what}{detail()}")
                Event().wait(POLL_INTERVAL)

    def step(self, run: FlowRun, name: str) -> StepProgress:
        """The progress of a step of a run."""
        return next(step for step in run.inspect().steps if step.name == name)

    def is_complete(self, run: FlowRun) -> bool:
        """Whether a run is completed; a failed one ends the demo."""
        status = run.status()
        if status.state in {FlowState.FAILED, FlowState.CANCELED}:
            raise SystemExit(
                f"run {run.id} of {status.flow} is {status.state.value}: {status.cause}"
            )
        return status.state is FlowState.COMPLETED
