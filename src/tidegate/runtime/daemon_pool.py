"""A few threads that carry things for somebody who may be interrupted.

As a pool of `concurrent.futures`, except that whoever is interrupted does not wait for what lies in
the queue, and only for a moment for what is under way.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, wait
from queue import SimpleQueue
from threading import Thread
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

MOMENT = 2.0

P = ParamSpec("P")
T = TypeVar("T")


class DaemonPool:
    """Leave the context to wait for everything, or for next to nothing when interrupted."""

    def __init__(self, number: int, name: str) -> None:
        self._tasks: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._given: set[Future[Any]] = set()
        """Work that is queued or running."""
        # The interpreter waits for other threads before it ends, and nobody could hurry it.
        self._threads = [
            Thread(target=self._work, name=f"{name}-{each}", daemon=True) for each in range(number)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Let one of them do this; what comes of it is in the answer."""
        outcome: Future[T] = Future()
        self._given.add(outcome)
        outcome.add_done_callback(self._given.discard)

        def do() -> None:
            if not outcome.set_running_or_notify_cancel():
                return
            try:
                outcome.set_result(work(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001  it belongs to whoever asked
                outcome.set_exception(error)

        self._tasks.put(do)
        return outcome

    def _work(self) -> None:
        while task := self._tasks.get():
            task()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _: object, __: TracebackType | None
    ) -> None:
        is_interrupted = kind is not None and not issubclass(kind, Exception)
        if is_interrupted:
            self.close(MOMENT)
        else:
            wait([*self._given])
            self.close(0.0)

    def close(self, bound: float) -> bool:
        """Drop queued work and wait for running work; whether that ended in time."""
        given = [*self._given]
        for outcome in given:
            outcome.cancel()
        unfinished = wait(given, bound).not_done
        for _thread in self._threads:
            self._tasks.put(None)
        return not unfinished
