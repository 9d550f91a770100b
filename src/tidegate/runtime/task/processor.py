"""What a processor has to be able to do so that its task survives the death of its process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from tidegate.dataflow import Edge
from tidegate.runtime.task.task_loop import Processor
from tidegate.store import RestoredEntry, Withdrawn


class DurableProcessor(Processor, Protocol):
    """A processor whose memory can be rebuilt from its channels."""

    def is_waiting(self, edge: Edge, run: str) -> bool:
        """Whether it could do nothing with the next message of this channel but hold it."""
        ...

    def unsettled(self, edge: Edge, run: str) -> int:
        """How many of the last messages of this channel have not had their full effect."""
        ...

    def recall(self, run: str, watermarks: Mapping[Edge, int], forwarded: int | None) -> None:
        """Know again the last watermark of each channel, and the last one that went forward."""
        ...

    def restore(self, run: str, state: Sequence[RestoredEntry]) -> None:
        """Have again what was kept at the last checkpoint."""
        ...

    def withdraw(self, run: str, checkpoints: Withdrawn) -> None:
        """Wait no longer for the copies of these checkpoints' barriers, and take no late ones."""
        ...

    def forget(self, run: str) -> None:
        """Drop what is kept of a run that was closed."""
        ...

    @property
    def share(self) -> int:
        """How many bytes of data it wants in a step, at most; runs that wait share them evenly."""
        ...

    def attend(self, work_done: Callable[[], None]) -> None:
        """Call this whenever work that went on behind its step is done, from any thread."""
        ...

    @property
    def is_patient(self) -> bool:
        """Whether it would rather let data gather than take little of it; see `Inbox.ripe_at`."""
        ...
