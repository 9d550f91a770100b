"""Runs a function periodically on a daemon thread; exceptions are logged and retried with backoff.

After several failures in a row `on_repeated_failure` is called, typically to give leases back so
that another process can take over. The retries go on, because an outside cause such as a full disk
may be over at any time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Event as Flag
from threading import Thread

from tidegate.backoff import Backoff
from tidegate.errors import TidegateError

log = logging.getLogger(__name__)

LONGEST_PAUSE = 10.0
MOST_FAILURES = 3
"""Failures in a row after which `on_repeated_failure` is called."""
JOIN_BOUND = 30.0


class PeriodicTask:
    """Calls `run` every so many seconds, on its own thread, until it is closed.

    `on_repeated_failure` is called on that thread as well, possibly several times.
    """

    def __init__(
        self,
        name: str,
        run: Callable[[], None],
        every: float,
        *,
        on_repeated_failure: Callable[[], object] = lambda: None,
        first_after: float = 0.0,
        longest_pause: float = LONGEST_PAUSE,
    ) -> None:
        self._name = name
        self._run = run
        self._every = every
        self._backoff = Backoff(first=2 * every, longest=longest_pause, jitter=0.0)
        self._on_repeated_failure = on_repeated_failure
        self._first_after = first_after
        self._failures = 0
        self._closed = Flag()
        self._wake = Flag()
        self.error: BaseException | None = None
        """What ended the thread, if not `close`."""
        self._thread = Thread(target=self._loop, name=name, daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether the function will be called again."""
        return self._thread.is_alive() and not self._closed.is_set()

    def run_now(self) -> None:
        """Call the function at once; after a failure its pause is observed."""
        self._wake.set()

    def close(self, bound: float = JOIN_BOUND) -> None:
        """Stop after the present call; wait for it at most this many seconds."""
        self._closed.set()
        self._wake.set()
        self._thread.join(bound)

    def _loop(self) -> None:
        try:
            self._closed.wait(self._first_after)
            while not self._closed.is_set():
                self._wake.clear()
                self._try_to_run()
                self._pause()
        except BaseException as error:  # noqa: BLE001  a thread that ended must not seem alive
            self.error = error
            log.critical("%s has ended: %r", self._name, error)
            self._report_failures()

    def _try_to_run(self) -> None:
        try:
            self._run()
        except Exception as error:  # any error may be temporary
            self._failures += 1
            is_unexpected = not isinstance(error, TidegateError)
            log.warning("%s failed and will retry: %s", self._name, error, exc_info=is_unexpected)
            if self._failures >= MOST_FAILURES:
                self._report_failures()
        else:
            self._failures = 0

    def _report_failures(self) -> None:
        try:
            self._on_repeated_failure()
        except Exception as error:  # noqa: BLE001  a lease that is not renewed expires anyway
            log.warning("%s could not give back what it owns: %s", self._name, error)

    def _pause(self) -> None:
        if self._closed.is_set():
            return
        if self._failures:
            self._closed.wait(self._backoff.pause(self._failures))
        else:
            self._wake.wait(self._every)
