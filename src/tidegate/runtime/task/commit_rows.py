"""Commit: the rows that one step of a task writes.

Message ids are derived from what caused them, so a step that is repeated after a crash gives the
same ones. What follows in one run never depends on which other runs were in the step.

Files named by a checkpoint are recorded with their size and SHA-256, which a restore compares
before it changes anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from tidegate.dataflow import Barrier, Batch, Event, SinkResult
from tidegate.runtime.task.processor import Snapshot
from tidegate.store import (
    Acknowledgement,
    OutgoingMessage,
    RunFailure,
    StateEntry,
    StateUpdate,
    message_id,
)

if TYPE_CHECKING:
    from uuid import UUID

    from tidegate.dataflow import Payload, StreamMessage
    from tidegate.runtime.task.processor import StepOutput
    from tidegate.runtime.task.task_channels import OpenRun, OutputChannel
    from tidegate.store import CursorAdvance, FileChecksum

ChecksumFiles: TypeAlias = "Callable[[Sequence[str]], Sequence[FileChecksum]]"
"""Computes the checksums of files of the deployment, in their order."""


def sent(
    runs: Mapping[str, OpenRun], messages: Sequence[StreamMessage]
) -> Iterator[OutgoingMessage]:
    """Every message once for each channel that carries it.

    Messages are numbered within each run: what else is in the step must not change an id.
    """
    numbers: Counter[str] = Counter()
    for message in messages:
        state = runs[message.run]
        for channel in state.outputs:
            if channel.carries(message):
                yield OutgoingMessage(
                    channel.id, _id(state, channel, numbers[message.run]), message
                )
        numbers[message.run] += 1


def _id(state: OpenRun, channel: OutputChannel, number: int) -> UUID:
    run, name = state.run, channel.name
    way = (name.from_task, name.to_task, name.input)
    return message_id(run.pipeline, run.key, *way, state.position, number)


def failed(runs: Mapping[str, OpenRun], output: StepOutput) -> Iterator[RunFailure]:
    """The runs that the step closes, each with its cause."""
    for run, cause in output.failed.items():
        yield RunFailure(runs[run].run.id, str(cause))


def ended(runs: Mapping[str, OpenRun], messages: Iterable[StreamMessage]) -> Iterator[int]:
    """The runs whose END leaves the result collector, which has no channels out of it."""
    for end in ends(messages):
        state = runs[end.run]
        if not state.outputs:
            yield state.run.id


def receivers(runs: Mapping[str, OpenRun], messages: Iterable[StreamMessage]) -> set[str]:
    """The tasks that have something to read after the step."""
    concerned = {message.run for message in messages}
    return {channel.name.to_task for run in concerned for channel in runs[run].outputs}


def acknowledged(
    runs: Mapping[str, OpenRun], task: str, output: StepOutput, checksum: ChecksumFiles
) -> Iterator[Acknowledgement]:
    """For every checkpoint barrier that leaves the task, its snapshot."""
    for barrier in checkpoints(output.messages):
        if barrier.run in runs:
            snapshot = output.snapshots.get(barrier.run, Snapshot())
            yield Acknowledgement(
                run=runs[barrier.run].run.id,
                number=barrier.id,
                task=task,
                state=_entries(snapshot.state, checksum),
                compacted=snapshot.compacted,
                outputs=_entries(((0, payload) for payload in snapshot.outputs), checksum),
                waited=snapshot.waited,
                last=snapshot.last,
            )


def state_updates(
    runs: Mapping[str, OpenRun],
    task: str,
    output: StepOutput,
    advances: Iterable[CursorAdvance],
    checksum: ChecksumFiles,
) -> Iterator[StateUpdate]:
    """What is added to the task's state without a barrier, with the move over its messages."""
    moves = {advance.channel: advance for advance in advances}
    for run, state in output.state.items():
        moved = [each.id for each in runs[run].inputs if each.id in moves] if state else []
        for channel in moved[:1]:
            entries = _entries(state, checksum)
            yield StateUpdate(runs[run].run.id, task, channel, moves[channel].origin, entries)


def _entries(
    state: Iterable[tuple[int, Payload]], checksum: ChecksumFiles
) -> tuple[StateEntry, ...]:
    return tuple(
        StateEntry(port, payload, tuple(checksum(_files(payload)))) for port, payload in state
    )


def files_in(message: StreamMessage) -> Sequence[str]:
    """The files that a message names."""
    return _files(message.payload) if isinstance(message, Event) else ()


def _files(payload: object) -> Sequence[str]:
    batch = payload.batch if isinstance(payload, SinkResult) else payload
    return batch.files if isinstance(batch, Batch) else ()


def ends(messages: Iterable[StreamMessage]) -> Iterator[Barrier]:
    """The ENDs of runs among messages."""
    return (each for each in messages if isinstance(each, Barrier) and each.is_end)


def checkpoints(messages: Iterable[StreamMessage]) -> Iterator[Barrier]:
    """The checkpoint barriers among messages."""
    return (each for each in messages if isinstance(each, Barrier) and each.is_checkpoint)
