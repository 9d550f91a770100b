"""Tending: something is looked after now and then, and no trouble in between is the end of it.

Whatever goes wrong in a turn is logged, and the next one comes after a longer pause. After several
in a row whoever tends lays down what it holds, for others may have more luck with it; it goes on
trying all the same, because trouble such as a full disk passes without anybody telling.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Event as Flag
from threading import Thread

from tidegate.errors import TidegateError

log = logging.getLogger(__name__)

LONGEST_PAUSE = 10.0
MOST_TROUBLES = 3
"""Turns in a row that go wrong before what is held is laid down."""
JOIN_BOUND = 30.0


class PeriodicTask:
    """Takes a turn every so many seconds, on a thread of its own, until it is closed.

    `on_repeated_failure` is called there as well, and must be harmless when there is nothing to lay
    down.
    """

    def __init__(
        self,
        name: str,
        turn: Callable[[], None],
        every: float,
        *,
        on_repeated_failure: Callable[[], object] = lambda: None,
        first_after: float = 0.0,
    ) -> None:
        self._name = name
        self._turn = turn
        self._every = every
        self._lay_down = on_repeated_failure
        self._first_after = first_after
        self._troubles = 0
        self._closed = Flag()
        self._hurried = Flag()
        self.error: BaseException | None = None
        """What has ended the thread, if anything but closing did."""
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether there will be another turn."""
        return self._thread.is_alive() and not self._closed.is_set()

    def run_now(self) -> None:
        """Take the next turn at once, unless the last one went wrong."""
        self._hurried.set()

    def close(self, bound: float = JOIN_BOUND) -> None:
        """Stop after the turn at work, or stop waiting for it."""
        self._closed.set()
        self._hurried.set()
        self._thread.join(bound)

    def _run(self) -> None:
        try:
            self._closed.wait(self._first_after)
            while not self._closed.is_set():
                self._hurried.clear()
                self._try_a_turn()
                self._rest()
        except BaseException as end:  # noqa: BLE001  a dead thread must never look alive
            self.error = end
            log.critical("%s has ended: %r", self._name, end)
            self._try_to_lay_down()

    def _try_a_turn(self) -> None:
        try:
            self._turn()
        except Exception as trouble:  # whatever it is, it may pass
            self._troubles += 1
            is_strange = not isinstance(trouble, TidegateError)
            log.warning("%s goes on later: %s", self._name, trouble, exc_info=is_strange)
            if self._troubles >= MOST_TROUBLES:
                self._try_to_lay_down()
        else:
            self._troubles = 0

    def _try_to_lay_down(self) -> None:
        try:
            self._lay_down()
        except Exception as trouble:  # noqa: BLE001  a lease that is not renewed expires anyway
            log.warning("%s could not lay down what it holds: %s", self._name, trouble)

    def _rest(self) -> None:
        if self._closed.is_set():
            return
        if self._troubles:
            self._closed.wait(min(self._every * 2**self._troubles, LONGEST_PAUSE))
        else:
            self._hurried.wait(self._every)
