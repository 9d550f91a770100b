"""Bounds the number of connections that have not authenticated yet.

Above the bound each new connection evicts another one, chosen at random among those of the address
that has the most. A member answers its challenge within milliseconds and is seldom evicted; a flood
mostly evicts its own connections. An evicted member retries.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from random import choice

from tidegate.group.coordinator.connection import Connection

MAX_CONNECTIONS = 256
"""Unauthenticated connections of one coordinator."""


class UnauthenticatedConnections:
    """At most `limit` connections that have not authenticated yet."""

    def __init__(self, limit: int = MAX_CONNECTIONS) -> None:
        self._limit = limit
        self._present: set[Connection] = set()
        self._per_host: Counter[str] = Counter()

    def __iter__(self) -> Iterator[Connection]:
        return iter(tuple(self._present))

    def __len__(self) -> int:
        return len(self._present)

    def add(self, connection: Connection) -> Connection | None:
        """Add a connection; returns the one to close for it, if there are too many."""
        evicted = None
        if len(self._present) >= self._limit:
            busiest = busiest_host(self._per_host)
            evicted = choice([each for each in self._present if each.host == busiest])  # noqa: S311
            self.discard(evicted)
        self._present.add(connection)
        self._per_host[connection.host] += 1
        return evicted

    def discard(self, connection: Connection) -> None:
        """Remove a connection that has authenticated or is closed."""
        if connection in self._present:
            self._present.remove(connection)
            self._per_host[connection.host] -= 1
            if not self._per_host[connection.host]:
                del self._per_host[connection.host]


def busiest_host(counts: Mapping[str, int]) -> str:
    """The address with the most connections.

    {"10.0.0.1": 1, "10.0.0.7": 200})
    '10.0.0.7'
    """
    return max(counts, key=lambda host: counts[host])
