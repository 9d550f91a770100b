"""What tests put between a pipeline and Spark, to hold jobs up and to let them fail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Event
from typing import Any

from tests.integration.runtime.shop import BOUND
from tidegate.dataflow import Batch
from tidegate.errors import StageFailed
from tidegate.spark import JobInput, PreparedStage, Session, run_stage_job


def _set() -> Event:
    event = Event()
    event.set()
    return event


@dataclass
class Jobs:
    """Wraps `run_stage_job`: holds jobs until released, and fails the first ones."""

    failures: int = 0
    tried: int = 0
    goes_on: Event = field(default_factory=_set)
    reached: Event = field(default_factory=Event)
    """Whether a job has begun."""

    def __call__(
        self, session: Session, prepared: PreparedStage, shares: Sequence[JobInput], **where: Any
    ) -> list[dict[int | None, Batch]]:
        self.reached.set()
        assert self.goes_on.wait(BOUND)
        self.tried += 1
        if self.tried <= self.failures:
            raise StageFailed(prepared.stage.id, "EXECUTOR_LOST", "an executor was lost")
        return run_stage_job(session, prepared, shares, **where)
