"""Commits the outcomes of tasks in batches (group commit).

While one transaction runs, the next batch collects, so the batch size follows the load and a single
outcome does not wait.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING

from tidegate.errors import ClaimLost, TidegateError
from tidegate.faults import crash_point
from tidegate.flows.worker.executor import (
    TaskFailed,
    TaskOutcome,
    TaskReturned,
    TaskSucceeded,
    render_error,
)
from tidegate.store.flows import tasks as flow_tasks
from tidegate.store.flows.sql_errors import is_value_refused

if TYPE_CHECKING:
    from tidegate.store import Connection, Database

log = logging.getLogger(__name__)

MAX_BATCH = 1000
"""Outcomes in one transaction."""


class ResultCommitter:
    """Commits outcomes on a thread of its own, then calls `on_settled` with them."""

    def __init__(
        self,
        database: Database,
        on_settled: Callable[[Sequence[TaskOutcome]], None],
        on_failure: Callable[[Collection[str], Exception], None],
    ) -> None:
        self._database = database
        self._on_settled = on_settled
        self._on_failure = on_failure
        self._queue: SimpleQueue[TaskOutcome | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name="tidegate-results", daemon=True)
        self._thread.start()

    def add(self, outcome: TaskOutcome) -> None:
        """Commit this outcome soon."""
        self._queue.put(outcome)

    def close(self, bound: float) -> None:
        """Commit what is there, and stop."""
        self._queue.put(None)
        self._thread.join(bound)

    def _run(self) -> None:
        is_open = True
        while is_open:
            batch = self._gather()
            is_open = None not in batch
            outcomes = [it for it in batch if it is not None]
            try:
                self._commit(outcomes)
            except Exception as error:  # whatever it is, other workers redo these tasks
                is_unknown = not isinstance(error, TidegateError)
                log.warning(
                    "could not commit %d outcomes: %s", len(outcomes), error, exc_info=is_unknown
                )
                self._on_failure({outcome.claim.owner for outcome in outcomes}, error)
            self._on_settled(outcomes)

    def _gather(self) -> list[TaskOutcome | None]:
        batch = [self._queue.get()]
        try:
            while len(batch) < MAX_BATCH and batch[-1] is not None:
                batch.append(self._queue.get_nowait())
        except Empty:
            pass
        return batch

    def _commit(self, outcomes: Sequence[TaskOutcome]) -> None:
        for owner in {it.claim.owner for it in outcomes}:
            ours = [it for it in outcomes if it.claim.owner == owner]
            self._complete(owner, [it for it in ours if isinstance(it, TaskSucceeded)])
            returned = [it.claim for it in ours if isinstance(it, TaskReturned)]
            if returned:
                self._database.transact(
                    lambda c, o=owner, claims=returned: flow_tasks.put_back(c, o, claims)  # type: ignore[misc]
                )
        for it in outcomes:
            if isinstance(it, TaskFailed):
                self._fail(it)

    def _complete(self, owner: str, done: Sequence[TaskSucceeded]) -> None:
        if not done:
            return

        def complete(connection: Connection) -> list[ClaimLost]:
            refused = flow_tasks.complete(connection, owner, [(it.claim, it.json) for it in done])
            crash_point("flow.complete.before_commit")
            return refused

        try:
            refused = self._database.transact(complete)
        except Exception as error:
            if not is_value_refused(error):
                raise  # not the fault of a task; it may pass later
            self._complete_alone(owner, done, error)
            return
        crash_point("flow.complete.after_commit")
        for lost in refused:
            log.warning("%s", lost)

    def _complete_alone(self, owner: str, done: Sequence[TaskSucceeded], error: Exception) -> None:
        """Commit one by one, so that a value which PostgreSQL refuses fails only its own task."""
        if len(done) == 1:
            self._fail(TaskFailed(done[0].claim, render_error(error), 0.0, is_final=True))
            return
        for it in done:
            self._complete(owner, [it])

    def _fail(self, it: TaskFailed) -> None:
        try:
            self._database.transact(
                lambda c: flow_tasks.fail(c, it.claim, it.error, it.pause, is_final=it.is_final)
            )
        except ClaimLost as lost:
            log.warning("%s", lost)
