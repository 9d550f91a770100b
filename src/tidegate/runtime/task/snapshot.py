"""What a task says when a checkpoint's barrier leaves it, and what it is told when it begins again.

Files are sealed as they are remembered: their sizes and SHA-256 are what a restore compares them
with, before it changes anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from tidegate.dataflow import Barrier, Event
from tidegate.runtime.task.stage_processor import SinkResult
from tidegate.runtime.task.task_loop import Snapshot
from tidegate.spark import Batch
from tidegate.store import Acknowledged, FileChecksum, StateEntry, StateUpdate, number_of

if TYPE_CHECKING:
    from tidegate.dataflow import StreamMessage
    from tidegate.runtime.task.output import OpenRun
    from tidegate.runtime.task.task_loop import Outcome
    from tidegate.store import Advance

Checksum = Callable[[Sequence[str]], Sequence[FileChecksum]]
"""How files of the deployment are sealed, in their order."""


def checkpoints(messages: Iterable[StreamMessage]) -> Iterator[Barrier]:
    """The barriers of checkpoints among messages."""
    return (it for it in messages if isinstance(it, Barrier) and it.is_checkpoint)


def acknowledged(
    runs: Mapping[str, OpenRun], task: str, outcome: Outcome, checksum: Checksum
) -> Iterator[Acknowledged]:
    """For every checkpoint whose barrier goes forward, what the task has at that point."""
    for barrier in checkpoints(outcome.data):
        if barrier.run in runs:
            said = outcome.snapshots.get(barrier.run, Snapshot())
            yield Acknowledged(
                run=number_of(barrier.run),
                number=barrier.id,
                task=task,
                kept=tuple(_kept(port, payload, checksum) for port, payload in said.kept),
                compacted=said.compacted,
                outputs=tuple(_kept(0, payload, checksum) for payload in said.outputs),
                waited=said.waited,
                last=said.last,
            )


def settled(
    runs: Mapping[str, OpenRun],
    task: str,
    outcome: Outcome,
    advances: Sequence[Advance],
    checksum: Checksum,
) -> Iterator[StateUpdate]:
    """What becomes part of the task's state without a barrier, with the move over its messages."""
    moves = {advance.channel: advance for advance in advances}
    for run, kept in outcome.settled.items():
        channels = [inbox.id for inbox in runs[run].inboxes if inbox.id in moves] if kept else []
        for channel in channels[:1]:
            files = tuple(_kept(port, payload, checksum) for port, payload in kept)
            yield StateUpdate(number_of(run), task, channel, moves[channel].origin, files)


def _kept(port: int, payload: object, checksum: Checksum) -> StateEntry:
    return StateEntry(port, payload, tuple(checksum(_files(payload))))


def files_in(message: StreamMessage) -> Sequence[str]:
    """The files that a message names."""
    return _files(message.payload) if isinstance(message, Event) else ()


def _files(payload: object) -> Sequence[str]:
    batch = payload.batch if isinstance(payload, SinkResult) else payload
    return batch.files if isinstance(batch, Batch) else ()
