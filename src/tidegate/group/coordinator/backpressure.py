"""Backpressure: message reading stops while a member has too many undelivered bytes."""

from __future__ import annotations

from collections.abc import Iterable

from tidegate.group.coordinator.connection import Connection

MAX_BACKLOG = 8 << 20
"""Undelivered bytes of one member at which all senders wait until it has received half of them."""
MAX_BLOCKED = 10.0
"""Seconds for which one member may block all senders: far less than a sender's write timeout."""


class FlowControl:
    """Tracks the connections whose backlog blocks all senders, and since when.

    A blocked member has `bound` seconds to receive half of its backlog; slower progress does not
    extend that.
    """

    def __init__(self, bound: float) -> None:
        self._bound = bound
        self._since: dict[Connection, float] = {}

    @property
    def is_open(self) -> bool:
        """Whether no connection is blocked."""
        return not self._since

    @property
    def blocked(self) -> Iterable[Connection]:
        """The blocked connections."""
        return tuple(self._since)

    def update(self, connection: Connection, now: float) -> None:
        """Re-evaluate a connection after its backlog has changed."""
        backlog = len(connection.backlog)
        if backlog > MAX_BACKLOG:
            self._since.setdefault(connection, now)
        elif backlog < MAX_BACKLOG // 2:
            self.forget(connection)

    def forget(self, connection: Connection) -> None:
        """The connection is no longer blocked, or is closed."""
        self._since.pop(connection, None)

    def expired(self, now: float) -> Iterable[Connection]:
        """Connections that have been blocked for longer than the bound."""
        return [blocked for blocked, since in self._since.items() if now - since > self._bound]

    def reset(self, now: float) -> None:
        """Restart all bounds, after this process itself was suspended."""
        self._since = dict.fromkeys(self._since, now)
