"""What a stateful stage keeps of one run, by input: the state of its last checkpoint, and the rest.

Batches that are there for good are added to the state by the next checkpoint, or when there are
enough of them and none has come. Those that were made for a checkpoint serve that one only. When an
input has very many batches, one is made of them in the background (`Compact`); the next checkpoint
puts it in their place. A watermark waits for the
next answer.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from tidegate.runtime.task.task_loop import Snapshot
from tidegate.spark import Batch

if TYPE_CHECKING:
    from tidegate.runtime.jobs.job_batcher import ShardOutputs
    from tidegate.store import RestoredEntry

log = logging.getLogger(__name__)

MANY = 16
"""Batches of one input of which one is made."""
ENOUGH = 128
"""Messages after which what they brought is settled, if no barrier comes."""

Compact: TypeAlias = "Callable[[int, Sequence[Batch]], Future[ShardOutputs]]"
"""Makes one batch of many that came by an input; the answer has none where there are no rows."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A batch of the state, and the checkpoint that added it."""

    since: int
    batch: Batch


@dataclass(frozen=True, slots=True)
class _Compacting:
    """All that an input had up to a checkpoint is becoming one batch."""

    port: int
    up_to: int
    answer: Future[ShardOutputs]


@dataclass(slots=True)
class StageState:
    """One run. Each batch comes with the number of its input."""

    messages: int = 0
    """How many came since the last checkpoint."""
    watermark: int | None = None
    """The last one that came."""
    forwarded: int | None = None
    """The last one that has gone on."""
    _state: dict[int, list[_Part]] = field(default_factory=lambda: defaultdict(list))
    _added: list[tuple[int, Batch]] = field(default_factory=list)
    _passing: dict[int, list[tuple[int, Batch]]] = field(default_factory=dict)
    """By checkpoint what is there for that one only."""
    _compacting: _Compacting | None = None
    _last: int = 0
    """The last checkpoint that was taken since it is in memory: what is condensing is up to it."""

    def add(self, port: int, batch: Batch, version: int) -> None:
        """Something came, for good or for one checkpoint."""
        its = self._passing.setdefault(version, []) if version else self._added
        its.append((port, batch))

    def restore(self, state: Sequence[RestoredEntry]) -> None:
        """Have again what was kept at the last checkpoint."""
        for held in state:
            part = _Part(held.since, msgspec.convert(held.payload, Batch))
            self._state[held.input].append(part)

    def up_to(self, version: int) -> Iterator[tuple[int, Batch]]:
        """All that there is at a checkpoint, or with 0 at the end."""
        for port, parts in self._state.items():
            yield from ((port, part.batch) for part in parts)
        yield from self._added
        yield from self._passing.get(version, ())

    def take_watermark(self) -> Iterator[int]:
        """The last watermark, if it has not gone on."""
        if self.watermark is not None and self.watermark != self.forwarded:
            self.forwarded = self.watermark
            yield self.watermark

    def snapshot(self, number: int) -> Snapshot:
        """Make what was added part of the state; what that was."""
        one, compacted = self._take_compacted(number)
        self._last = number
        return Snapshot((*one, *self._keep_added(number)), compacted)

    @property
    def has_enough(self) -> bool:
        """Whether so much has come that it is to be settled; what serves one cut cannot be."""
        return self.messages >= ENOUGH and not self._passing

    def settle(self) -> tuple[tuple[int, Batch], ...]:
        """Make what was added part of the state, though no checkpoint asks for it; what that was.

        It belongs to all checkpoints that are taken from here on. What was made for one that is
        withdrawn is of no use.
        """
        return self._keep_added(self._last + 1)

    def _keep_added(self, since: int) -> tuple[tuple[int, Batch], ...]:
        added = tuple(self._added)
        for port, batch in added:
            self._state[port].append(_Part(since, batch))
        self._added.clear()
        self._passing.clear()
        self.messages = 0
        return added

    def compact(self, number: int, compact: Compact) -> None:
        """Begin to make one batch of many, where that is worth it and nobody does."""
        if self._compacting is not None:
            return
        for port, parts in self._state.items():
            if len(parts) >= MANY:
                answer = compact(port, [part.batch for part in parts])
                self._compacting = _Compacting(port, number, answer)
                return

    def _take_compacted(
        self, number: int
    ) -> tuple[tuple[tuple[int, Batch], ...], tuple[tuple[int, int], ...]]:
        """The one batch that takes the place of many, if it is made."""
        its = self._compacting
        if its is None or not its.answer.done():
            return (), ()
        self._compacting = None
        try:
            made = [*its.answer.result().values()]
        except Exception as trouble:  # noqa: BLE001  the many serve as well
            log.warning("input %d is not condensed: %s", its.port, trouble)
            return (), ()
        rest = [part for part in self._state[its.port] if part.since > its.up_to]
        self._state[its.port] = [*(_Part(number, batch) for batch in made), *rest]
        return tuple((its.port, batch) for batch in made), ((its.port, its.up_to),)
