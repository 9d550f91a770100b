"""Kills an executor while it is at work, until Spark has lost a task by it."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from typing import Self

import psutil  # type: ignore[import-untyped]

from tests.integration.engines.cluster import executors_of
from tidegate.spark import Session

LOOK = 0.005
KILLS = 3
"""Less than what Spark takes for a mistake of the application."""
NOTICED = 10.0
"""Seconds in which Spark notices that an executor is gone, on any machine."""


class Killer:
    """At work during a run: waits until it is in the middle, then kills an executor in a task."""

    def __init__(self, session: Session, workers: list[int], root: Path) -> None:
        self.killed = 0
        self._tracker = session.sparkContext.statusTracker()
        self._workers = workers
        self._root = root
        self._over = Event()
        self._thread = Thread(target=self._work, name="killer")

    @property
    def lost_tasks(self) -> int:
        """How many tasks have failed so far, in any stage that Spark remembers."""
        return sum(self._stages("numFailedTasks"))

    def _work(self) -> None:
        self._wait(lambda: any(self._root.glob("batches/**/*.parquet")))
        while not self._over.is_set() and self.killed < KILLS and not self.lost_tasks:
            if self._wait(lambda: any(self._stages("numActiveTasks"))):
                self._kill_one()
                self._wait_noticed(monotonic() + NOTICED)

    def _wait_noticed(self, deadline: float) -> None:
        self._wait(lambda: self.lost_tasks > 0 or monotonic() > deadline)

    def _kill_one(self) -> None:
        for executor in executors_of(self._workers):
            with suppress(psutil.NoSuchProcess):
                executor.send_signal(signal.SIGKILL)
                self.killed += 1
                return

    def _stages(self, number: str) -> list[int]:
        jobs = self._tracker.getJobIdsForGroup(None)
        infos = [self._tracker.getJobInfo(job) for job in jobs]
        stages = {stage for info in infos if info for stage in info.stageIds}
        return [getattr(it, number) for it in map(self._tracker.getStageInfo, stages) if it]

    def _wait(self, condition: Callable[[], bool]) -> bool:
        while not condition():
            if self._over.wait(LOOK):
                return False
        return True

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
