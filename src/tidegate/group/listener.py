"""Where strangers come in: it stays shut for a moment when the system lets nobody in."""

from __future__ import annotations

import logging
import selectors

from tidegate.group.address import Address
from tidegate.group.connection import Connection
from tidegate.group.log_events import tell

PAUSE = 1.0
"""Seconds without accepting after the system has refused to; usually it lacks descriptors."""


class Listener:
    """The listening socket of a coordinator.

    A connection that cannot be accepted stays where it is and would be announced again at once and
    for ever. So the door is shut for a moment, while those who are inside are served.
    """

    def __init__(self, wanted: Address) -> None:
        self._listener = wanted.listen()
        self._listener.setblocking(False)
        self.address = wanted.of(self._listener)
        self._opens_at: float | None = None
        self._is_short = False

    def open(self, selector: selectors.BaseSelector) -> None:
        """Let the selector say when somebody is there."""
        selector.register(self._listener, selectors.EVENT_READ, self)
        self._opens_at = None

    def accept(self, selector: selectors.BaseSelector, now: float) -> Connection | None:
        """Whoever is there."""
        try:
            sock, where = self._listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return None  # whoever was there has gone
        except OSError as trouble:
            self._shut(selector, now, trouble)
            return None
        self._note_that_it_works()
        return Connection(sock, f"{where[0]}:{where[1]}" if where else str(self.address))

    def look(self, selector: selectors.BaseSelector, now: float) -> float | None:
        """Open again when it is time; the moment at which to look again, if there is one."""
        if self._opens_at is not None and now >= self._opens_at:
            self.open(selector)
        return self._opens_at

    def close(self) -> None:
        """For good."""
        self._listener.close()
        self.address.clear()

    def _shut(self, selector: selectors.BaseSelector, now: float, trouble: OSError) -> None:
        selector.unregister(self._listener)
        self._opens_at = now + PAUSE
        if not self._is_short:
            self._is_short = True
            tell("door.shut", logging.WARNING, address=str(self.address), why=str(trouble),
                 tries_again_every=PAUSE)  # fmt: skip

    def _note_that_it_works(self) -> None:
        if self._is_short:
            self._is_short = False
            tell("door.open", address=str(self.address))
