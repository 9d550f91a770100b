"""The state of a stateful stage for one run: the batches of each input.

Permanent batches are added to the state by the next checkpoint, or without one when there are
`ENOUGH`. Batches made for one checkpoint serve that one only. When an input has `MANY` batches,
they are compacted into one in the background; the next checkpoint replaces them by it. A watermark
waits for the next output.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from tidegate.dataflow import Batch
from tidegate.runtime.task.processor import Snapshot

if TYPE_CHECKING:
    from tidegate.runtime.jobs.job_batcher import ShardOutputs
    from tidegate.store import RestoredEntry

log = logging.getLogger(__name__)

MANY = 16
"""Batches of one input that are compacted into one."""
ENOUGH = 128
"""Messages after which their batches are added to the state, if no barrier comes."""

Compact: TypeAlias = "Callable[[int, Sequence[Batch]], Future[ShardOutputs]]"
"""Compacts the batches of an input into one; into none when they have no rows."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A batch of the state, and the checkpoint that added it."""

    since: int
    batch: Batch


@dataclass(frozen=True, slots=True)
class _Compaction:
    """A job that compacts all batches of an input up to a checkpoint."""

    port: int
    up_to: int
    job: Future[ShardOutputs]


@dataclass(slots=True)
class StageState:
    """The batches of one run, each with the number of its input."""

    messages: int = 0
    """How many arrived since the state was last committed."""
    watermark: int | None = None
    """The last one that arrived."""
    forwarded: int | None = None
    """The last one that was forwarded."""
    _state: dict[int, list[_Part]] = field(default_factory=lambda: defaultdict(list))
    _added: list[tuple[int, Batch]] = field(default_factory=list)
    _versioned: dict[int, list[tuple[int, Batch]]] = field(default_factory=dict)
    """By checkpoint, the batches made for that one only."""
    _compaction: _Compaction | None = None
    _last: int = 0
    """The last checkpoint since the state is in memory; a compaction reaches up to it."""

    def add(self, port: int, batch: Batch, version: int) -> None:
        """Add a batch, permanently or for one checkpoint."""
        added = self._versioned.setdefault(version, []) if version else self._added
        added.append((port, batch))

    def restore(self, state: Sequence[RestoredEntry]) -> None:
        """Restore the state that was committed last."""
        for entry in state:
            assert isinstance(entry.payload, Batch), "the state of a stage is batches"
            self._state[entry.input].append(_Part(entry.since, entry.payload))

    def up_to(self, version: int) -> Iterator[tuple[int, Batch]]:
        """All batches at a checkpoint, or with 0 at END."""
        for port, parts in self._state.items():
            yield from ((port, part.batch) for part in parts)
        yield from self._added
        yield from self._versioned.get(version, ())

    def take_watermark(self) -> Iterator[int]:
        """The last watermark, unless it was forwarded."""
        if self.watermark is not None and self.watermark != self.forwarded:
            self.forwarded = self.watermark
            yield self.watermark

    def snapshot(self, number: int) -> Snapshot:
        """Add the new batches to the state, as part of a checkpoint."""
        replaced, compacted = self._take_compacted(number)
        self._last = number
        return Snapshot((*replaced, *self._commit_added(number)), compacted)

    @property
    def has_enough(self) -> bool:
        """Whether `commit` is due; batches made for one checkpoint have to wait for it."""
        return self.messages >= ENOUGH and not self._versioned

    def commit(self) -> tuple[tuple[int, Batch], ...]:
        """Add the new batches to the state without a checkpoint.

        They belong to all later checkpoints. Batches made for a withdrawn one are dropped.
        """
        return self._commit_added(self._last + 1)

    def _commit_added(self, since: int) -> tuple[tuple[int, Batch], ...]:
        added = tuple(self._added)
        for port, batch in added:
            self._state[port].append(_Part(since, batch))
        self._added.clear()
        self._versioned.clear()
        self.messages = 0
        return added

    def compact(self, number: int, compact: Compact) -> None:
        """Start to compact an input with many batches, unless a compaction is in progress."""
        if self._compaction is not None:
            return
        for port, parts in self._state.items():
            if len(parts) >= MANY:
                job = compact(port, [part.batch for part in parts])
                self._compaction = _Compaction(port, number, job)
                return

    def _take_compacted(
        self, number: int
    ) -> tuple[tuple[tuple[int, Batch], ...], tuple[tuple[int, int], ...]]:
        """The batch that replaces many, if its job is done."""
        compaction = self._compaction
        if compaction is None or not compaction.job.done():
            return (), ()
        self._compaction = None
        port = compaction.port
        try:
            batches = [*compaction.job.result().values()]
        except Exception as error:  # noqa: BLE001  the state is complete without it
            log.warning("could not compact input %d: %s", port, error)
            return (), ()
        rest = [part for part in self._state[port] if part.since > compaction.up_to]
        self._state[port] = [*(_Part(number, batch) for batch in batches), *rest]
        return tuple((port, batch) for batch in batches), ((port, compaction.up_to),)
