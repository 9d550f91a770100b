"""The tokens in a file, which is read again when it changes: no restart to add or withdraw one.

A file that cannot be read, or has an invalid line, leaves the tokens as they were and is logged. A
file without clients withdraws all tokens.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, time_ns

from tidegate.errors import InvalidTokens, counted
from tidegate.http.auth.tokens import Tokens, read_tokens

log = logging.getLogger(__name__)

LOOK = 1.0
"""Seconds between two looks at a file, at least."""
FRESH = 2_000_000_000
"""Nanoseconds within which a file may be changed twice and look the same."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Identifies one state of a file."""

    changed: int
    """When it was written or replaced last, in nanoseconds."""
    inode: tuple[int, int]
    size: int

    @classmethod
    def of(cls, file: Path) -> Mark | None:
        """None for a file that is not there."""
        try:
            found = file.stat()
        except OSError:
            return None
        changed = max(found.st_mtime_ns, found.st_ctime_ns)
        return cls(changed, (found.st_dev, found.st_ino), found.st_size)

    def may_hide_a_change(self, now: int) -> bool:
        """Whether the file may have been written again since, in the same tick of its clock."""
        return now - self.changed < FRESH


class TokenFile:
    """Finds clients by the tokens that are in a file now, or were within the last second."""

    def __init__(self, file: Path, clock: Callable[[], float] = monotonic) -> None:
        """Raises `InvalidTokens`."""
        self._file = file
        self._clock = clock
        self._mark = Mark.of(file)
        self._is_settled = False
        self._refusal = ""
        """Why the file cannot be used as it is, which is logged once."""
        self._tokens = read_tokens(file)
        self._look_at = clock() + LOOK

    def client_of(self, authorization: str | None) -> str:
        """The client that sends this header; raises `UnknownToken`."""
        if self._clock() >= self._look_at:
            self._look_at = self._clock() + LOOK
            self._look()
        return self._tokens.client_of(authorization)

    def _look(self) -> None:
        mark = Mark.of(self._file)  # before reading: what is written meanwhile shows next time
        if mark == self._mark and self._is_settled:
            return
        is_changed, self._mark = mark != self._mark, mark
        self._is_settled = mark is None or not mark.may_hide_a_change(time_ns())
        try:
            tokens = read_tokens(self._file, may_be_empty=True)
        except InvalidTokens as error:
            self._keep(str(error))
        else:
            self._take(tokens, is_changed=is_changed)

    def _keep(self, refusal: str) -> None:
        if refusal != self._refusal:
            log.warning("the tokens stay as they were: %s", refusal)
        self._refusal = refusal

    def _take(self, tokens: Tokens, *, is_changed: bool) -> None:
        if is_changed:
            log.info("%s was read again: %s", self._file, counted(len(tokens.clients), "token"))
        self._tokens, self._refusal = tokens, ""
