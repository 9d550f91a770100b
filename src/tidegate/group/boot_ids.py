"""The lives of a process in its group: a boot id says which process it is, and which of its lives.

    12 random bytes of the process, u32: twice the number of the attempt, plus 1 if it comes back

A process that has lost its membership comes back by itself; it must not push out the process that
was started in its place meanwhile, while one that was just started takes the place over.
"""

from __future__ import annotations

import os
from struct import Struct

_BOOT = Struct("<12sI")
_WRAP = 1 << 31


class BootIds:
    """Makes the boot ids of one process."""

    def __init__(self) -> None:
        self._process = os.urandom(12)
        self._attempts = 0

    def next(self, *, is_again: bool) -> bytes:
        """For an attempt to join; `is_again` if this process was a member before."""
        self._attempts += 1
        return _BOOT.pack(self._process, self._attempts % _WRAP * 2 + is_again)


def gives_way(boot: bytes, present: bytes) -> bool:
    """Whether somebody who wants to come back finds another process in its place.

    >>> old, new = BootIds(), BootIds()
    >>> gives_way(old.next(is_again=True), new.next(is_again=False))
    True
    >>> gives_way(old.next(is_again=True), old.next(is_again=True))
    False
    """
    process, number = _BOOT.unpack(boot)
    return bool(number % 2) and process != _BOOT.unpack(present)[0]
