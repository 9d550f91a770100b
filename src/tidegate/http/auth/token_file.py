"""A file of tokens that is read again when it changes: no restart to add or withdraw a token.

If the file cannot be read, or has an invalid line, the previous tokens stay valid and the reason is
logged. A file without clients withdraws all tokens.
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
"""Least seconds between two checks of the file."""
FRESH = 2_000_000_000
"""Nanoseconds within which two changes of a file may give the same timestamps."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Identifies one state of a file."""

    changed: int
    """When it was written or replaced last, in nanoseconds."""
    inode: tuple[int, int]
    size: int

    @classmethod
    def of(cls, file: Path) -> Mark | None:
        """None if the file does not exist."""
        try:
            found = file.stat()
        except OSError:
            return None
        changed = max(found.st_mtime_ns, found.st_ctime_ns)
        return cls(changed, (found.st_dev, found.st_ino), found.st_size)

    def may_hide_a_change(self, now: int) -> bool:
        """Whether the file may have been written again with the same timestamp."""
        return now - self.changed < FRESH


class TokenFile:
    """Finds clients by the tokens in a file, at most a second out of date."""

    def __init__(self, file: Path, clock: Callable[[], float] = monotonic) -> None:
        """Raises `InvalidTokens`."""
        self._file = file
        self._clock = clock
        self._mark = Mark.of(file)
        self._is_settled = False
        self._refusal = ""
        """Why the file cannot be used; logged once."""
        self._tokens = read_tokens(file)
        self._check_at = clock() + LOOK

    def client_of(self, authorization: str | None) -> str:
        """The client with this Authorization header; raises `UnknownToken`."""
        if self._clock() >= self._check_at:
            self._check_at = self._clock() + LOOK
            self._check()
        return self._tokens.client_of(authorization)

    def _check(self) -> None:
        mark = Mark.of(self._file)  # before reading: a write meanwhile is seen by the next check
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
            log.warning("keeping the previous tokens: %s", refusal)
        self._refusal = refusal

    def _take(self, tokens: Tokens, *, is_changed: bool) -> None:
        if is_changed:
            log.info("reloaded %s: %s", self._file, counted(len(tokens.clients), "token"))
        self._tokens, self._refusal = tokens, ""
