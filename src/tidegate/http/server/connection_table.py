"""The open connections of a server, and which one is closed when there are too many.

Pure: it decides, and closes nothing.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Admitted(Generic[T]):
    """A connection is accepted; `instead_of` is closed for it."""

    instead_of: T | None = None


@dataclass(frozen=True, slots=True)
class Rejected:
    """All connections that it could replace have a running request."""

    most: int


class ConnectionTable(Generic[T]):
    """Open connections by address. Idle ones are replaced by new ones, the oldest first."""

    def __init__(self, most: int, per_address: int) -> None:
        self._most = most
        self._per_address = per_address
        self._address_of: dict[T, str] = {}
        self._counts: Counter[str] = Counter()
        self._waiting: dict[str, dict[T, None]] = {}
        """By address, the idle connections, the longest idle first."""

    def __len__(self) -> int:
        return len(self._address_of)

    def admit(self, connection: T, address: str) -> Admitted[T] | Rejected:
        """Decide on a connection from an address; an admitted one is idle until its request."""
        is_crowded, is_full = self._counts[address] >= self._per_address, len(self) >= self._most
        victim = self._victim(address if is_crowded else None) if is_crowded or is_full else None
        if victim is None and (is_crowded or is_full):
            return Rejected(self._per_address if is_crowded else self._most)
        if victim is not None:
            self.remove(victim)
        self._address_of[connection] = address
        self._counts[address] += 1
        self.wait(connection)
        return Admitted(victim)

    def work(self, connection: T) -> None:
        """A connection has received a whole request head."""
        if (address := self._address_of.get(connection)) is not None:
            self._forget_waiting(connection, address)

    def wait(self, connection: T) -> None:
        """A connection is idle again, behind those that already are."""
        if (address := self._address_of.get(connection)) is not None:
            self._waiting.setdefault(address, {}).setdefault(connection)

    def remove(self, connection: T) -> None:
        """A connection is closed; idempotent."""
        address = self._address_of.pop(connection, None)
        if address is not None:
            self._forget_waiting(connection, address)
            self._counts -= Counter((address,))  # a count of zero is removed

    def _victim(self, address: str | None) -> T | None:
        """The longest idle connection of an address, or of the one with the most connections."""
        if address is None:
            address = max(self._waiting, key=self._counts.__getitem__, default=None)
        return next(iter(self._waiting.get(address, ())), None) if address is not None else None

    def _forget_waiting(self, connection: T, address: str) -> None:
        waiting = self._waiting.get(address, {})
        waiting.pop(connection, None)
        if not waiting:
            self._waiting.pop(address, None)
