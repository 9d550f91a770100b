"""A pool of daemon threads, for work that an interrupt may abandon.

It is like a pool of `concurrent.futures`, except that an interrupt drops queued work and waits only
briefly for running work, and that the interpreter does not wait for its threads.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, wait
from queue import SimpleQueue
from threading import Thread
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

INTERRUPT_BOUND = 2.0
"""Seconds that an interrupted thread waits for running work."""

P = ParamSpec("P")
T = TypeVar("T")


class DaemonPool:
    """Leaving its context waits for all work, or after an interrupt only briefly."""

    def __init__(self, number: int, name: str) -> None:
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._submitted: set[Future[Any]] = set()
        """Work that is queued or running."""
        self._threads = [
            Thread(target=self._run, name=f"{name}-{each}", daemon=True) for each in range(number)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call `work` on one of the threads."""
        outcome: Future[T] = Future()
        self._submitted.add(outcome)
        outcome.add_done_callback(self._submitted.discard)

        def call() -> None:
            if not outcome.set_running_or_notify_cancel():
                return
            try:
                outcome.set_result(work(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001  it is raised where the result is read
                outcome.set_exception(error)

        self._queue.put(call)
        return outcome

    def _run(self) -> None:
        while call := self._queue.get():
            call()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _: object, __: TracebackType | None
    ) -> None:
        is_interrupted = kind is not None and not issubclass(kind, Exception)
        if is_interrupted:
            self.close(INTERRUPT_BOUND)
        else:
            wait([*self._submitted])
            self.close(0.0)

    def close(self, bound: float) -> bool:
        """Drop queued work and wait for running work; whether that ended in time."""
        submitted = [*self._submitted]
        for outcome in submitted:
            outcome.cancel()
        unfinished = wait(submitted, bound).not_done
        for _thread in self._threads:
            self._queue.put(None)
        return not unfinished
