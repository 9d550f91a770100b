"""Committing what tasks gave: whatever has come meanwhile goes into one transaction.

While one commit is under way the next batch gathers, so batches are as large as the load makes
them, and a single result does not wait.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING

from tidegate.errors import ClaimLost, TidegateError
from tidegate.faults import crash_point
from tidegate.flows.worker.executor import Done, Failed, LetGo, Outcome, told
from tidegate.store.flows import tasks as flow_tasks
from tidegate.store.flows.sql_errors import is_value_refused

if TYPE_CHECKING:
    from tidegate.store import Connection, Database

log = logging.getLogger(__name__)

MOST = 1000
"""Results in one transaction."""


class Results:
    """Commits outcomes on a thread of its own, and then tells that they are committed."""

    def __init__(
        self,
        database: Database,
        on_settled: Callable[[Sequence[Outcome]], None],
        on_trouble: Callable[[Collection[str], Exception], None],
    ) -> None:
        self._database = database
        self._on_settled = on_settled
        self._on_trouble = on_trouble
        self._queue: SimpleQueue[Outcome | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name="tidegate-results", daemon=True)
        self._thread.start()

    def add(self, outcome: Outcome) -> None:
        """Commit this, soon."""
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
            except Exception as trouble:  # whatever it is, others do these tasks again
                is_strange = not isinstance(trouble, TidegateError)
                log.warning("%d results are lost: %s", len(outcomes), trouble, exc_info=is_strange)
                self._on_trouble({it.claim.owner for it in outcomes}, trouble)
            self._on_settled(outcomes)

    def _gather(self) -> list[Outcome | None]:
        batch = [self._queue.get()]
        try:
            while len(batch) < MOST and batch[-1] is not None:
                batch.append(self._queue.get_nowait())
        except Empty:
            pass
        return batch

    def _commit(self, outcomes: Sequence[Outcome]) -> None:
        for owner in {it.claim.owner for it in outcomes}:
            ours = [it for it in outcomes if it.claim.owner == owner]
            self._complete(owner, [it for it in ours if isinstance(it, Done)])
            let_go = [it.claim for it in ours if isinstance(it, LetGo)]
            if let_go:
                self._database.transact(
                    lambda c, o=owner, gone=let_go: flow_tasks.put_back(c, o, gone)  # type: ignore[misc]
                )
        for it in outcomes:
            if isinstance(it, Failed):
                self._fail(it)

    def _complete(self, owner: str, done: Sequence[Done]) -> None:
        if not done:
            return

        def complete(connection: Connection) -> list[ClaimLost]:
            refused = flow_tasks.complete(connection, owner, [(it.claim, it.json) for it in done])
            crash_point("flow.complete.before_commit")
            return refused

        try:
            refused = self._database.transact(complete)
        except Exception as trouble:
            if not is_value_refused(trouble):
                raise  # nobody knows whether it would pass, and no task is to blame
            self._complete_alone(owner, done, trouble)
            return
        crash_point("flow.complete.after_commit")
        for lost in refused:
            log.warning("%s", lost)

    def _complete_alone(self, owner: str, done: Sequence[Done], trouble: Exception) -> None:
        """One result that the database cannot take must not keep the others from it."""
        if len(done) == 1:
            self._fail(Failed(done[0].claim, told(trouble), 0.0, is_final=True))
            return
        for it in done:
            self._complete(owner, [it])

    def _fail(self, it: Failed) -> None:
        try:
            self._database.transact(
                lambda c: flow_tasks.fail(c, it.claim, it.error, it.pause, is_final=it.is_final)
            )
        except ClaimLost as lost:
            log.warning("%s", lost)
