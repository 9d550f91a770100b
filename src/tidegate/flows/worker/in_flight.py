"""The tasks that a worker has in flight, from their claim until their outcome is committed.

Every task is bounded. A task that no thread starts soon is returned. A function that exceeds its
timeout, or ignores the cancellation of its run, is abandoned: the outcome of its task is reported,
and its thread does not count until the function returns. A generator that waits for the handlers of
a paused run is returned as well, since a pause may last for days.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Condition, Lock
from time import monotonic
from typing import TYPE_CHECKING

from tidegate.errors import StepTimedOut
from tidegate.flows.worker.claim_sizing import LOOKAHEAD, START_BOUND, TaskCounts
from tidegate.flows.worker.executor import (
    TaskOutcome,
    TaskReturned,
    failed,
    retry_options_of,
)
from tidegate.runtime.daemon_pool import DaemonPool
from tidegate.store.flows import tasks as flow_tasks

if TYPE_CHECKING:
    from tidegate.flows.worker.task_context import TaskContext
    from tidegate.store import Connection, Database
    from tidegate.store.flows.tasks import Claim

log = logging.getLogger(__name__)

GENERATORS = 4
"""Generators that run in one worker at the same time."""
CHECK_AFTER = 0.5
"""Seconds in flight after which a task is checked, and between two checks."""
DRAIN_POLL = 0.25
"""Seconds between two attempts of a draining worker to return tasks."""


@dataclass
class InFlightTask:
    """A claimed task whose outcome is not committed."""

    context: TaskContext
    is_generator: bool
    claimed_at: float = field(default_factory=monotonic)
    started_at: float | None = None
    cancelled_at: float | None = None
    is_abandoned: bool = False
    """Whether its outcome was reported while its function still runs."""
    execution: Future[None] | None = None
    """Its call on a thread; cancelled if the task is returned before that starts."""
    settling: Lock = field(default_factory=Lock)
    """Taken by the first to report an outcome; what the function returns later is dropped."""

    @property
    def claim(self) -> Claim:
        """Its claim in the database."""
        return self.context.claim

    @property
    def is_settled(self) -> bool:
        """Whether its outcome was reported."""
        return self.settling.locked()

    def start(self) -> None:
        """Record that a thread starts its function."""
        self.started_at = monotonic()
        self.context.stopwatch.start()

    def took(self, now: float) -> float:
        """Seconds since its function was started."""
        return 0.0 if self.started_at is None else now - self.started_at

    def is_overdue(self, now: float) -> bool:
        """Whether no thread has started it within `START_BOUND`."""
        is_waiting = self.started_at is None and not self.is_settled
        return is_waiting and now - self.claimed_at > START_BOUND


@dataclass(frozen=True, slots=True)
class InFlightCounts:
    """The tasks and the threads of a worker, counted."""

    threads: int
    stuck: int
    """Of these threads, those at one task for longer than `LOOKAHEAD`."""
    generator_threads: int
    by_queue: Mapping[str, int]
    abandoned: Mapping[str, int]
    """By queue, abandoned tasks whose function still runs."""


class InFlightTasks:
    """The tasks in flight of a worker, and its threads.

    `execute` is called on a thread for each task; `report` receives the outcomes.
    """

    def __init__(
        self,
        database: Database,
        threads: int,
        execute: Callable[[InFlightTask], None],
        report: Callable[[TaskOutcome], None],
    ) -> None:
        self._database = database
        self._report = report
        self._tasks: dict[Claim, InFlightTask] = {}
        self._counts = TaskCounts()
        self._abandoned = TaskCounts()
        self._threads = threads
        self._generator_threads = GENERATORS
        self._execute = execute
        self._pool = DaemonPool(threads, "tidegate-flow")
        self._generators = DaemonPool(GENERATORS, "tidegate-generator")
        self._changed = Condition()
        self._checked_at = 0.0

    def __len__(self) -> int:
        with self._changed:
            return len(self._tasks)

    def counts(self) -> InFlightCounts:
        """Tasks and threads as they are now."""
        now = monotonic()
        with self._changed:
            running = [
                task for task in self._tasks.values() if not (task.is_generator or task.is_settled)
            ]
            return InFlightCounts(
                self._threads,
                sum(task.took(now) > LOOKAHEAD for task in running),
                self._generator_threads,
                dict(self._counts.by_queue),
                dict(self._abandoned.by_queue),
            )

    def start(self, tasks: Sequence[InFlightTask]) -> None:
        """Execute these as soon as threads are free."""
        with self._changed:
            for task in tasks:
                self._tasks[task.claim] = task
                self._counts.change(task.claim.queue, 1)
        for task in tasks:
            pool = self._generators if task.is_generator else self._pool
            task.execution = pool.submit(self._execute, task)

    def settle(self, task: InFlightTask, outcome: TaskOutcome) -> None:
        """Report the outcome of a task, unless one was reported."""
        if task.settling.acquire(blocking=False):
            self._report(outcome)

    def end(self, task: InFlightTask) -> None:
        """The function of a task has returned, so its thread is free."""
        with self._changed:
            if task.is_abandoned:
                self._count_abandoned(task, -1)

    def remove(self, outcomes: Iterable[TaskOutcome]) -> int:
        """These outcomes are committed; returns how many of their tasks were in flight."""
        with self._changed:
            before = len(self._tasks)
            for outcome in outcomes:
                if self._tasks.pop(outcome.claim, None) is not None:
                    self._counts.change(outcome.claim.queue, -1)
            self._changed.notify_all()
            return before - len(self._tasks)

    def cancel(self, reason: str) -> None:
        """Cancel the contexts of all tasks."""
        with self._changed:
            for task in self._tasks.values():
                task.context.cancel(reason)

    def drain(self, timeout: float) -> bool:
        """Return what can be returned and wait for the rest; whether none is left in time."""
        deadline = monotonic() + timeout
        with self._changed:
            while self._tasks and (remaining := deadline - monotonic()) > 0:
                self._return_resumable()
                self._changed.wait(min(remaining, DRAIN_POLL))
            return not self._tasks

    def close(self, bound: float) -> None:
        """Wait so long until nothing is in flight, and stop the threads."""
        with self._changed:
            self._changed.wait_for(lambda: not self._tasks, bound)
        self._pool.close(0.0)
        self._generators.close(0.0)

    def check(self, owner: str, grace: float) -> None:
        """Return tasks that cannot start, cancel those of closed runs, abandon those too late.

        Functions of cancelled runs are abandoned after `grace` seconds.
        """
        now = monotonic()
        if now - self._checked_at < CHECK_AFTER:
            return
        self._checked_at = now
        with self._changed:
            tasks = list(self._tasks.values())  # read first: settled tasks are removed afterwards
        claimed = self._database.transact(lambda c: flow_tasks.held_by(c, owner))
        self._return_unknown(owner, claimed, tasks)
        if any(task.is_overdue(now) for task in tasks):
            self._return_not_started()
        old = [
            task for task in tasks if now - task.claimed_at > CHECK_AFTER and not task.is_settled
        ]
        self._cancel_obsolete(old, {claim.name for claim in claimed}, grace, now)
        for task in old:
            self._check_timeout(task)

    def _return_unknown(
        self, owner: str, claimed: Sequence[Claim], tasks: Sequence[InFlightTask]
    ) -> None:
        """When the response to a claim was lost, only the database knows of its tasks."""
        known = {task.claim.name for task in tasks}
        unknown = [claim for claim in claimed if claim.name not in known]
        if unknown:
            log.warning("returning %d tasks whose claim was not acknowledged", len(unknown))
            self._database.transact(lambda c: flow_tasks.put_back(c, owner, unknown))

    def _return_not_started(self) -> None:
        with self._changed:
            for task in self._tasks.values():
                if task.execution is not None and task.execution.cancel():
                    self.settle(task, TaskReturned(task.claim))

    def _return_resumable(self) -> None:
        self._return_not_started()
        for task in self._tasks.values():
            if task.is_generator or retry_options_of(task.context).is_resumable:
                task.context.cancel("the worker stops")

    def _cancel_obsolete(
        self, old: Sequence[InFlightTask], claimed: Collection[object], grace: float, now: float
    ) -> None:
        """Cancel tasks of closed runs, of lost claims, and resting generators of paused runs."""
        resting = [
            task for task in old if task.is_generator and not task.context.stopwatch.is_running
        ]
        closed = self._runs_among(flow_tasks.unwanted_among, old)
        paused = self._runs_among(flow_tasks.paused_among, resting)
        for task in old:
            if task.context.run in closed:
                self._cancel_or_abandon(task, grace, now)
            elif task.claim.name not in claimed:
                task.context.cancel("another worker has claimed it")
        for task in resting:
            if task.context.run in paused:
                task.context.cancel("the run is paused")

    def _runs_among(
        self, query: Callable[[Connection, Iterable[int]], set[int]], tasks: Sequence[InFlightTask]
    ) -> set[int]:
        runs = {task.context.run for task in tasks}
        return self._database.transact(lambda c: query(c, runs)) if runs else set()

    def _cancel_or_abandon(self, task: InFlightTask, grace: float, now: float) -> None:
        task.context.cancel("its run is closed")
        task.cancelled_at = task.cancelled_at or now
        if now - task.cancelled_at > grace:
            self._abandon(task, TaskReturned(task.claim))

    def _check_timeout(self, task: InFlightTask) -> None:
        context = task.context
        timeout = retry_options_of(context).timeout
        if timeout is None or context.stopwatch.seconds <= timeout:
            return
        error = StepTimedOut(context.run, context.step, timeout)
        context.cancel(str(error))
        self._abandon(task, failed(context, error))

    def _abandon(self, task: InFlightTask, outcome: TaskOutcome) -> None:
        """Report the outcome of a task whose function still runs and keeps its thread."""
        with self._changed:
            if not task.settling.acquire(blocking=False):
                return
            if task.started_at is not None:
                task.is_abandoned = True
                self._count_abandoned(task, 1)
        self._report(outcome)

    def _count_abandoned(self, task: InFlightTask, number: int) -> None:
        self._abandoned.change(task.claim.queue, number)
        if task.is_generator:
            self._generator_threads -= number
        else:
            self._threads -= number
