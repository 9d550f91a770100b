"""The role of a flow worker process; see `tidegate.runtime.cluster.roles`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.errors import WorkerGaveUp

if TYPE_CHECKING:
    from tidegate.flows.worker.worker import FlowWorker


@dataclass
class FlowWorkerRole:
    """Performs tasks of flows."""

    worker: FlowWorker
    role: str = "flow worker"

    def check(self) -> None:
        """Raise if it performs nothing any more."""
        if self.worker.error is not None:
            raise WorkerGaveUp(self.worker.name, str(self.worker.error)) from self.worker.error

    def hand_over(self, bound: float) -> bool:
        """Finish what is at work and leave the rest to others."""
        return self.worker.drain(bound)

    def did(self) -> dict[str, int]:
        """How many tasks."""
        return {"tasks": self.worker.done}

    @property
    def warning(self) -> str:
        """There is none."""
        return ""
