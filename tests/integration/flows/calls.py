"""What handlers in tests leave behind, and how quickly they are tried again."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

from tests.integration.flows.conftest import Works
from tidegate.flows import Backoff

Start = Callable[..., Works]
QUICKLY = Backoff(first=0.01, longest=0.05)


class Calls:
    """Counts what happened, on any thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self.made: list[object] = []

    def note(self, call: object) -> int:
        with self._lock:
            self.made.append(call)
            return self.made.count(call)
