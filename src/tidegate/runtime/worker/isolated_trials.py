"""Isolated trials: a run that may be the cause of lost workers is processed alone.

Jobs of other runs run concurrently. A job of a suspect run waits until no other job runs in this
process, and the others wait for it. The database records the trial before it starts: if the process
is lost, that run is the cause. A suspect that has caused losses before waits for the jobs of other
runs first, for a limited time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Condition, Lock
from time import monotonic
from typing import TYPE_CHECKING

from tidegate.errors import SparkLost, TidegateError
from tidegate.store.runs.worker_losses import (
    begin_isolation,
    drop_isolations,
    end_isolation,
    report_loss,
)

if TYPE_CHECKING:
    from tidegate.store import Database

log = logging.getLogger(__name__)

WAIT_PER_LOSS = 10.0
"""Seconds that a suspect waits for other jobs, for each worker loss it has caused."""
IDLE = 1.0
"""Seconds without any other job after which it waits no longer."""
REPORT_BOUND = 5.0
"""Seconds for storing in the database why this process ends."""

Part = tuple[int, str]
"""A run, and the task in which it is processed."""


class SharedExclusiveLock:
    """Lets jobs run concurrently, or one alone."""

    def __init__(self) -> None:
        self._changed = Condition(Lock())
        self._together = 0
        """Jobs that run concurrently."""
        self._waiting = 0
        """Jobs that wait until no job runs alone."""
        self._alone_wanted = 0
        """Jobs that wait to run alone; no other job starts before them."""
        self._is_alone = False

    @contextmanager
    def together(self) -> Iterator[None]:
        """Run concurrently with others, after jobs that run alone or wait to."""
        with self._changed:
            self._waiting += 1
            self._changed.wait_for(lambda: not (self._is_alone or self._alone_wanted))
            self._waiting -= 1
            self._together += 1
        try:
            yield
        finally:
            with self._changed:
                self._together -= 1
                self._changed.notify_all()

    @contextmanager
    def alone(self, patience: float = 0.0) -> Iterator[None]:
        """Run while no other job runs; jobs that start within `patience` seconds come first."""
        with self._changed:
            self._wait_until_idle(monotonic() + patience)
            self._alone_wanted += 1
            self._changed.wait_for(lambda: not (self._is_alone or self._together))
            self._alone_wanted -= 1
            self._is_alone = True
        try:
            yield
        finally:
            with self._changed:
                self._is_alone = False
                self._changed.notify_all()

    def _wait_until_idle(self, until: float) -> None:
        """Wait for `IDLE` seconds without a job: a run has short gaps between its jobs."""
        while (left := until - monotonic()) > 0:
            if not self._changed.wait_for(lambda: self._is_busy, timeout=min(IDLE, left)):
                return
            self._changed.wait_for(lambda: not self._is_busy, timeout=left)

    @property
    def _is_busy(self) -> bool:
        return bool(self._is_alone or self._together or self._waiting or self._alone_wanted)


class Trials:
    """The suspect runs of one worker.

    `ended` returns how Spark has ended, or None; `ended_under` does so for an error that may be
    the first sign of the end.
    """

    def __init__(
        self,
        database: Database,
        ended: Callable[[], str | None],
        ended_under: Callable[[BaseException], str | None],
    ) -> None:
        self._database = database
        self._ended = ended
        self._ended_under = ended_under
        self._lost: str | None = None
        self._suspects: dict[str, dict[int, int]] = {}
        self._suspects_lock = Lock()
        self._lock = SharedExclusiveLock()
        self.worker = ""
        """The owner id under which trials are recorded."""

    def learn(self, task: str, suspects: Mapping[int, int]) -> None:
        """Set the suspect runs of a task, each with the losses it has caused."""
        with self._suspects_lock:
            self._suspects[task] = dict(suspects)

    def is_suspect(self, run: int, task: str) -> bool:
        """Whether a run is processed alone in a task.

        A run that has caused a loss in one task is processed alone in all tasks.
        """
        return run in self._suspects.get(task, ()) or self._losses(run) > 0

    def _losses(self, run: int) -> int:
        with self._suspects_lock:
            return max((known.get(run, 0) for known in self._suspects.values()), default=0)

    @contextmanager
    def job(self, parts: Sequence[Part]) -> Iterator[None]:
        """Run one Spark job, alone if it is for a suspect; raises `SparkLost`."""
        runs = {run for run, _ in parts}
        suspected = [task for run, task in parts if self.is_suspect(run, task)]
        if suspected and len(runs) == 1:
            run = runs.pop()
            lock = self._lock.alone(WAIT_PER_LOSS * self._losses(run))
            with lock, self._reporting_loss(), self._recorded(run, suspected):
                yield
        else:
            with self._lock.together(), self._reporting_loss():
                yield

    @contextmanager
    def _recorded(self, run: int, tasks: Sequence[str]) -> Iterator[None]:
        worker, began = self.worker, monotonic()
        self._database.transact(lambda c: begin_isolation(c, worker, run, tasks))
        if (reason := self._ended()) is not None:  # before the job
            self._database.transact(lambda c: drop_isolations(c, worker))
            raise SparkLost(reason)
        try:
            yield
        except Exception:
            # A job may fail with any error while Java ends: check as for a lost connection.
            if self._ended_under(ConnectionError()) is None:
                self._clear(worker, run, tasks)
            raise
        self._clear(worker, run, tasks)
        log.info(
            "run %d was processed alone in %s in %.1f s: this worker was not lost",
            run, ", ".join(tasks), monotonic() - began,
        )  # fmt: skip

    def _clear(self, worker: str, run: int, tasks: Sequence[str]) -> None:
        self._database.transact(lambda c: end_isolation(c, worker, run, tasks))
        with self._suspects_lock:
            for task in tasks:
                self._suspects.get(task, {}).pop(run, None)

    @contextmanager
    def _reporting_loss(self) -> Iterator[None]:
        """Record the end of Spark and refuse later jobs, which are not its cause."""
        if self._lost is not None:
            raise SparkLost(self._lost)
        try:
            yield
        except SparkLost:
            raise
        except Exception as error:
            reason = self._ended_under(error)
            if reason is None:
                raise
            self._lost = reason
            self._report(reason)
            raise SparkLost(reason) from error

    def _report(self, reason: str) -> None:
        worker = self.worker
        try:
            self._database.transact(lambda c: report_loss(c, worker, reason), REPORT_BOUND)
        except TidegateError as error:
            log.warning("could not store the end of Spark: %s", error)
