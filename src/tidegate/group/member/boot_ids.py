"""Boot ids: which process a member is, and which of its attempts to join.

    12 random bytes of the process, u32: twice the number of the attempt, plus 1 for a rejoin

A process that has lost its membership rejoins by itself. A rejoin must not replace a process that
was started under the same name meanwhile, while a newly started process does replace the old one.
"""

from __future__ import annotations

import os
from struct import Struct

_BOOT = Struct("<12sI")
_WRAP = 1 << 31


class BootIds:
    """Generates the boot ids of one process."""

    def __init__(self) -> None:
        self._process = os.urandom(12)
        self._attempts = 0

    def next(self, *, is_rejoin: bool) -> bytes:
        """The id of an attempt to join; `is_rejoin` if this process was a member before."""
        self._attempts += 1
        return _BOOT.pack(self._process, self._attempts % _WRAP * 2 + is_rejoin)


def is_superseded(boot: bytes, present: bytes) -> bool:
    """Whether a process that rejoins finds another process under its name.

    >>> old, new = BootIds(), BootIds()
    >>> is_superseded(old.next(is_rejoin=True), new.next(is_rejoin=False))
    True
    >>> is_superseded(old.next(is_rejoin=True), old.next(is_rejoin=True))
    False
    """
    process, number = _BOOT.unpack(boot)
    return bool(number % 2) and process != _BOOT.unpack(present)[0]
