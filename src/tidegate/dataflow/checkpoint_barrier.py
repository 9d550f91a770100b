"""Checkpoint barriers as compact numbers, and their packed form.

A coordinator commands the sources of its run to inject a barrier (`InjectBarrier`); each source's
channel then carries it (`CheckpointBarrier`). Both are plain numbers that fit into a few machine
words: 64 bits of id, 48 of epoch and two flags. A value that does not fit is refused, never
truncated.
"""

from __future__ import annotations

from struct import Struct
from typing import ClassVar, Final, final

from mypy_extensions import i64, mypyc_attr

from tidegate.dataflow.value import Value
from tidegate.errors import InvalidCheckpointBarrier, MalformedBarrier

ID_BITS: Final = 64
EPOCH_BITS: Final = 48
UNALIGNED: Final = 1
"""A flag: messages that the barrier overtakes are part of the snapshot."""
UNPUBLISHED: Final = 2
"""A flag: state is stored and nothing is published."""
_FLAGS: Final = UNALIGNED | UNPUBLISHED

PACKED_BARRIER: Final = 24
PACKED_COMMAND: Final = 16
EMPTY_COMMAND: Final = bytes(PACKED_COMMAND)
"""The packed form of "nothing to inject"; no id is 0, so no command has it."""

_ONE_WORD: Final = 2**62 - 1
_EPOCHS: Final = 2**48
_BARRIER: Final = Struct("<QQQ")


@final
@mypyc_attr(acyclic=True, free_list_len=1)
class CheckpointBarrier(Value):
    """One checkpoint's barrier, the same on every channel: number, epoch and flags.

    >>> CheckpointBarrier.unaligned(7, epoch=3)
    CheckpointBarrier(checkpoint_id=7, epoch=3, flags=1)
    """

    __slots__ = ("checkpoint_id", "epoch", "flags")
    __match_args__: ClassVar[tuple[str, ...]] = ("checkpoint_id", "epoch", "flags")

    checkpoint_id: int
    epoch: i64
    flags: i64

    def __init__(self, checkpoint_id: int, epoch: int, flags: int = 0) -> None:
        # Numbers beyond one word are legal and rare: only they need the exact comparison.
        if not (0 < checkpoint_id <= _ONE_WORD and 0 <= epoch < _EPOCHS and 0 <= flags <= _FLAGS):
            _check(checkpoint_id, epoch, flags)
        object.__setattr__(self, "checkpoint_id", checkpoint_id)
        object.__setattr__(self, "epoch", epoch)
        object.__setattr__(self, "flags", flags)

    @staticmethod
    def aligned(checkpoint_id: int, epoch: int) -> CheckpointBarrier:
        """A barrier that waits at each fan-in for all upstreams."""
        return CheckpointBarrier(checkpoint_id, epoch, 0)

    @staticmethod
    def unaligned(checkpoint_id: int, epoch: int) -> CheckpointBarrier:
        """A barrier that overtakes queued messages; they become part of the snapshot."""
        return CheckpointBarrier(checkpoint_id, epoch, UNALIGNED)

    @property
    def is_unaligned(self) -> bool:
        """Whether it overtakes queued messages."""
        return self.flags & UNALIGNED != 0

    @property
    def is_aligned(self) -> bool:
        """Whether it waits at each fan-in for all upstreams."""
        return self.flags & UNALIGNED == 0

    @property
    def is_unpublished(self) -> bool:
        """Whether only state is stored, and sinks publish nothing."""
        return self.flags & UNPUBLISHED != 0

    def pack(self) -> bytes:
        """Id, epoch and flags as three little-endian words: exactly 24 bytes."""
        return _BARRIER.pack(self.checkpoint_id, self.epoch, self.flags)

    @staticmethod
    def unpack(data: bytes) -> CheckpointBarrier:
        """The barrier that was packed into these bytes."""
        if len(data) != PACKED_BARRIER:
            raise _malformed("checkpoint barrier", data, f"it has {PACKED_BARRIER} bytes")
        checkpoint_id, epoch, flags = _BARRIER.unpack(data)
        try:
            return CheckpointBarrier(checkpoint_id, epoch, flags)
        except InvalidCheckpointBarrier as invalid:
            raise _malformed("checkpoint barrier", data, invalid.reason, invalid) from invalid

    def _fields(self) -> tuple[object, ...]:
        return self.checkpoint_id, self.epoch, self.flags

    def __str__(self) -> str:
        how = "unaligned checkpoint" if self.is_unaligned else "checkpoint"
        return f"{how} {self.checkpoint_id} of epoch {self.epoch}"


@final
@mypyc_attr(acyclic=True)
class InjectBarrier(Value):
    """The command to inject a barrier, sent to a source in another process.

    Packed it is one number of 128 bits: the id in the upper 64, the epoch in the next 48, the
    unaligned flag in the next one, then the unpublished flag, and 14 reserved bits that are 0.
    """

    __slots__ = ("checkpoint_id", "epoch", "is_unaligned", "is_unpublished")
    __match_args__: ClassVar[tuple[str, ...]] = (
        "checkpoint_id",
        "epoch",
        "is_unaligned",
        "is_unpublished",
    )

    checkpoint_id: int
    epoch: i64
    is_unaligned: bool
    is_unpublished: bool

    def __init__(
        self,
        checkpoint_id: int,
        epoch: int,
        is_unaligned: bool = False,
        is_unpublished: bool = False,
    ) -> None:
        _check(checkpoint_id, epoch, 0)
        object.__setattr__(self, "checkpoint_id", checkpoint_id)
        object.__setattr__(self, "epoch", epoch)
        object.__setattr__(self, "is_unaligned", is_unaligned)
        object.__setattr__(self, "is_unpublished", is_unpublished)

    @property
    def word(self) -> int:
        """The packed command as a number."""
        epoch: int = self.epoch  # a native integer would overflow in the shift
        flags = (1 << 15 if self.is_unaligned else 0) | (1 << 14 if self.is_unpublished else 0)
        return self.checkpoint_id << 64 | epoch << 16 | flags

    def pack(self) -> bytes:
        """The packed command as 16 bytes, the lowest first."""
        return self.word.to_bytes(PACKED_COMMAND, "little")

    @staticmethod
    def unpack(data: bytes) -> InjectBarrier | None:
        """The command that was packed into these bytes; None for `EMPTY_COMMAND`."""
        if data == EMPTY_COMMAND:
            return None
        if len(data) != PACKED_COMMAND:
            raise _malformed("command to inject", data, f"it has {PACKED_COMMAND} bytes")
        word = int.from_bytes(data, "little")
        if word & 0x3FFF:
            raise _malformed("command to inject", data, "the lowest 14 bits are reserved and 0")
        epoch = (word >> 16) & (_EPOCHS - 1)
        try:
            return InjectBarrier(word >> 64, epoch, bool(word >> 15 & 1), bool(word >> 14 & 1))
        except InvalidCheckpointBarrier as invalid:
            raise _malformed("command to inject", data, invalid.reason, invalid) from invalid

    def _fields(self) -> tuple[object, ...]:
        return self.checkpoint_id, self.epoch, self.is_unaligned, self.is_unpublished


def _check(checkpoint_id: int, epoch: int, flags: int) -> None:
    if checkpoint_id < 1 or checkpoint_id >= 2**ID_BITS:
        reason = f"an id is at least 1 and has at most {ID_BITS} bits"
    elif epoch < 0 or epoch >= 2**EPOCH_BITS:
        reason = f"an epoch is at least 0 and has at most {EPOCH_BITS} bits"
    elif flags < 0 or flags > _FLAGS:
        reason = "all flags but the lowest two are reserved and 0"
    else:
        return
    raise InvalidCheckpointBarrier(
        checkpoint_id=checkpoint_id, epoch=epoch, flags=flags, reason=reason
    )


def _malformed(
    what: str, data: bytes, reason: str, cause: Exception | None = None
) -> MalformedBarrier:
    malformed = MalformedBarrier(what=what, data=data.hex(), reason=reason)
    malformed.__cause__ = cause  # compiled code drops the cause of `raise … from`
    return malformed
