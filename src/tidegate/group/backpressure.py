"""How far the members of a group may fall behind in taking their messages."""

from __future__ import annotations

from collections.abc import Iterable

from tidegate.group.connection import Connection

CLOGGED = 8 << 20
"""Bytes that a member has not taken at which nobody sends messages until it has taken half."""
HOLDING = 10.0
"""Seconds for which it may hold everybody up that way: far less than a sender waits."""


class FlowControl:
    """Who holds messages up, and since when.

    Taking a little now and then does not help: whoever is clogged has `bound` seconds to take half.
    """

    def __init__(self, bound: float) -> None:
        self._bound = bound
        self._since: dict[Connection, float] = {}

    @property
    def is_free(self) -> bool:
        """Whether nobody does."""
        return not self._since

    @property
    def clogged(self) -> Iterable[Connection]:
        """Those who do."""
        return tuple(self._since)

    def weigh(self, connection: Connection, now: float) -> None:
        """A member was sent something, or has taken something."""
        kept = len(connection.backlog)
        if kept > CLOGGED:
            self._since.setdefault(connection, now)
        elif kept < CLOGGED // 2:
            self.forget(connection)

    def forget(self, connection: Connection) -> None:
        """It takes its messages, or nothing any more."""
        self._since.pop(connection, None)

    def late(self, now: float) -> Iterable[Connection]:
        """Those who were given enough time."""
        return [it for it, since in self._since.items() if now - since > self._bound]

    def forgive(self, now: float) -> None:
        """It was this side that did not write."""
        self._since = dict.fromkeys(self._since, now)
