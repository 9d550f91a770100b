"""Connections without a proof of the secret: their number is bounded, and any can be evicted.

Above the bound each new connection evicts another one, chosen at random among those of the address
that has the most. A member answers its challenge within milliseconds and is seldom hit; a flood
mostly evicts its own connections. An evicted member tries again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from random import choice

from tidegate.group.connection import Connection

MOST = 256
"""Connections that have proven nothing yet."""


class UnauthenticatedConnections:
    """At most `most` connections that have proven nothing yet."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._present: set[Connection] = set()
        self._of: Counter[str] = Counter()

    def __iter__(self) -> Iterator[Connection]:
        return iter(tuple(self._present))

    def __len__(self) -> int:
        return len(self._present)

    def add(self, connection: Connection) -> Connection | None:
        """Note a new one; the connection to close for it, if there are too many."""
        evicted = None
        if len(self._present) >= self._most:
            crowded = most_common(self._of)
            evicted = choice([it for it in self._present if it.host == crowded])  # noqa: S311
            self.discard(evicted)
        self._present.add(connection)
        self._of[connection.host] += 1
        return evicted

    def discard(self, connection: Connection) -> None:
        """Remove a connection that has sent its proof or is closed."""
        if connection in self._present:
            self._present.remove(connection)
            self._of[connection.host] -= 1
            if not self._of[connection.host]:
                del self._of[connection.host]


def most_common(numbers: Mapping[str, int]) -> str:
    """The address with the most connections.

    >>> most_common({"10.0.0.1": 1, "10.0.0.7": 200})
    '10.0.0.7'
    """
    return max(numbers, key=lambda host: numbers[host])
