"""The role of a flow worker process; see `tidegate.runtime.cluster.roles`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.errors import WorkerGaveUp

if TYPE_CHECKING:
    from tidegate.flows.worker.worker import FlowWorker


@dataclass
class FlowWorkerRole:
    """Executes tasks of flows."""

    worker: FlowWorker
    role: str = "flow worker"

    def check(self) -> None:
        """Raise if the worker has stopped."""
        if self.worker.error is not None:
            raise WorkerGaveUp(self.worker.name, str(self.worker.error)) from self.worker.error

    def hand_over(self, bound: float) -> bool:
        """Finish tasks in flight and return the others."""
        return self.worker.drain(bound)

    def did(self) -> dict[str, int]:
        """Tasks done."""
        return {"tasks": self.worker.done}

    @property
    def warning(self) -> str:
        """None."""
        return ""
