"""The id of a checkpoint in its manifest: a UUID of version 7, sorted by creation time.

Channels carry the compact number of a `CheckpointBarrier`; the UUID is unique across runs and
deployments, and names files and rows.
"""

from __future__ import annotations

from collections.abc import Callable
from secrets import randbits
from threading import Lock
from time import time_ns
from uuid import UUID

from tidegate.errors import InvalidCheckpointId

VERSION = 7
_TAIL_BITS = 74
_LOW_BITS = 62
_STEP_BITS = 32


class CheckpointId(UUID):
    """A UUID v7: text and bytes of later ids are greater.

    >>> CheckpointId.from_text("0190163d-8694-739b-aea5-966c26f8ad91").milliseconds
    1718360049300
    """

    __slots__ = ()

    @classmethod
    def new(cls) -> CheckpointId:
        """An id that is greater than all earlier ones of this process."""
        return _of_this_process.take()

    @classmethod
    def from_text(cls, text: str) -> CheckpointId:
        """Parse the form that `str` gives."""
        try:
            id = cls(text)
        except ValueError as cause:
            raise InvalidCheckpointId(text=text, reason="it is not a UUID") from cause
        if str(id) != text.lower():
            raise InvalidCheckpointId(text=text, reason="it is not written in groups of 8-4-4-4-12")
        return _checked(id)

    @classmethod
    def from_bytes(cls, data: bytes) -> CheckpointId:
        """Parse 16 bytes, in the order that `bytes` gives."""
        try:
            return _checked(cls(bytes=data))
        except ValueError as cause:
            raise InvalidCheckpointId(text=data.hex(), reason="an id has 16 bytes") from cause

    @property
    def milliseconds(self) -> int:
        """Creation time since 1970. Ids in quick succession may be a little ahead of the clock."""
        return self.int >> 80


class CheckpointIds:
    """Creates ids, each greater than the one before even if the clock goes back; thread-safe."""

    def __init__(self, clock: Callable[[], int] = time_ns) -> None:
        self._clock = clock
        self._lock = Lock()
        self._last = 0

    def take(self) -> CheckpointId:
        """The next id. Within one millisecond a random increment keeps ids unguessable and ordered.

        Time and random bits are one number: when a millisecond is exhausted, the next id belongs
        to the next one.
        """
        now = self._clock() // 1_000_000 << _TAIL_BITS | randbits(_TAIL_BITS - 1)
        with self._lock:
            self._last = max(now, self._last + 1 + randbits(_STEP_BITS))
            return _as_uuid(self._last)


def _checked(id: CheckpointId) -> CheckpointId:
    if id.version != VERSION:
        raise InvalidCheckpointId(text=str(id), reason=f"it is not a UUID of version {VERSION}")
    return id


def _as_uuid(number: int) -> CheckpointId:
    """Insert version and variant between time, 12 and 62 bits."""
    low = number & (1 << _LOW_BITS) - 1
    middle = number >> _LOW_BITS & 0xFFF
    time = number >> _TAIL_BITS
    return CheckpointId(int=time << 80 | VERSION << 76 | middle << 64 | 0b10 << 62 | low)


_of_this_process = CheckpointIds()
