"""Bounds what clients have at the same time, so that one does not use up what all share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidegate.errors import TidegateError


class ConcurrencyLimit:
    """At most `most` of one kind at the same time for one client, and `total` for all clients."""

    def __init__(
        self, most: int, refuse: Callable[[int], TidegateError], total: int | None = None
    ) -> None:
        self._most = most
        self._total = total
        self._refuse = refuse
        self._now: Counter[str] = Counter()

    @contextmanager
    def acquire(self, client: str) -> Iterator[None]:
        """Count one until the end of the block; raises the refusal with the bound reached."""
        if self._now[client] >= self._most:
            raise self._refuse(self._most)
        if self._total is not None and self._now.total() >= self._total:
            raise self._refuse(self._total)
        self._now[client] += 1
        try:
            yield
        finally:
            self._now -= Counter((client,))  # a count of zero is removed
