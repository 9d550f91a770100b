"""Concurrency limits per client and in total, so that no client uses up shared resources."""

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
        self, most: int, error: Callable[[int], TidegateError], total: int | None = None
    ) -> None:
        self._most = most
        self._total = total
        self._error = error
        self._in_use: Counter[str] = Counter()

    @contextmanager
    def acquire(self, client: str) -> Iterator[None]:
        """Count one until the end of the block; raises the error with the limit reached."""
        if self._in_use[client] >= self._most:
            raise self._error(self._most)
        if self._total is not None and self._in_use.total() >= self._total:
            raise self._error(self._total)
        self._in_use[client] += 1
        try:
            yield
        finally:
            self._in_use -= Counter((client,))  # a count of zero is removed
