"""The coordinator's listening socket; accepting pauses while the system refuses connections."""

from __future__ import annotations

import logging
import selectors

from tidegate.group.address import Address
from tidegate.group.coordinator.connection import Connection
from tidegate.group.log_events import log_event

ACCEPT_PAUSE = 1.0
"""Seconds without accepting after accept has failed, usually for lack of file descriptors."""


class Listener:
    """The listening socket of a coordinator.

    A connection that cannot be accepted stays in the queue and would wake the selector again at
    once, in a busy loop. So accepting pauses after a failure, while members are served.
    """

    def __init__(self, address: Address) -> None:
        self._listener = address.listen()
        self._listener.setblocking(False)
        self.address = address.of(self._listener)
        self._reopen_at: float | None = None
        self._is_failing = False

    def open(self, selector: selectors.BaseSelector) -> None:
        """Register with the selector."""
        selector.register(self._listener, selectors.EVENT_READ, self)
        self._reopen_at = None

    def accept(self, selector: selectors.BaseSelector, now: float) -> Connection | None:
        """The next waiting connection, if there is one."""
        try:
            sock, peer = self._listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return None  # the peer has disconnected
        except OSError as error:
            self._pause(selector, now, error)
            return None
        self._log_recovery()
        return Connection(sock, f"{peer[0]}:{peer[1]}" if peer else str(self.address))

    def reopen_if_due(self, selector: selectors.BaseSelector, now: float) -> float | None:
        """Resume accepting when the pause is over; the time of the next check, if one is needed."""
        if self._reopen_at is not None and now >= self._reopen_at:
            self.open(selector)
        return self._reopen_at

    def close(self) -> None:
        """Close the socket and remove its file."""
        self._listener.close()
        self.address.clear()

    def _pause(self, selector: selectors.BaseSelector, now: float, error: OSError) -> None:
        selector.unregister(self._listener)
        self._reopen_at = now + ACCEPT_PAUSE
        if not self._is_failing:
            self._is_failing = True
            log_event("listener.paused", logging.WARNING, address=str(self.address),
                      why=str(error), retry_seconds=ACCEPT_PAUSE)  # fmt: skip

    def _log_recovery(self) -> None:
        if self._is_failing:
            self._is_failing = False
            log_event("listener.resumed", address=str(self.address))
