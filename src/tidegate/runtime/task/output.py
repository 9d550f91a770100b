"""What leaves a task with a step: messages under ids that their causes give, results, failures.

Facts in, rows for the commit out. What follows in one run never depends on which other runs were
in the step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.dataflow import Barrier, Event
from tidegate.store import Failed, Published, Sent, message_id

if TYPE_CHECKING:
    from uuid import UUID

    from tidegate.dataflow import StreamMessage
    from tidegate.errors import TidegateError
    from tidegate.runtime.task.input_channel import InputChannel
    from tidegate.runtime.task.task_loop import Result
    from tidegate.store import ChannelName, Run


@dataclass(frozen=True, slots=True)
class OutputChannel:
    """A channel out of the task, of one run."""

    id: int
    name: ChannelName
    shard: int | None

    def wants(self, message: StreamMessage) -> bool:
        """Whether a message goes by this channel."""
        return not isinstance(message, Event) or message.goes_to(self.shard)


@dataclass(frozen=True, slots=True)
class OpenRun:
    """What the task knows of one run."""

    run: Run
    inboxes: tuple[InputChannel, ...]
    outlets: tuple[OutputChannel, ...]

    @property
    def cause(self) -> str:
        """What the next outcome follows from: how far each channel was handled."""
        return " ".join(f"{inbox.edge} {inbox.handled}" for inbox in self.inboxes)


def sent(runs: Mapping[str, OpenRun], messages: Sequence[StreamMessage]) -> Iterator[Sent]:
    """Every message once for each channel that wants it.

    They are numbered within each run: what else is in the step must not change an id.
    """
    numbers: Counter[str] = Counter()
    for message in messages:
        state = runs[message.run]
        for outlet in state.outlets:
            if outlet.wants(message):
                yield Sent(outlet.id, _id(state, outlet, numbers[message.run]), message)
        numbers[message.run] += 1


def published(runs: Mapping[str, OpenRun], results: Iterable[Result]) -> Iterator[Published]:
    """The results that become visible with the step."""
    for result in results:
        yield Published(runs[result.run].run.id, result.sink, result.batches, result.rows)


def failed(runs: Mapping[str, OpenRun], causes: Mapping[str, TidegateError]) -> Iterator[Failed]:
    """The runs that are closed by the step, each with its cause."""
    for run, cause in causes.items():
        yield Failed(runs[run].run.id, str(cause))


def ended(runs: Mapping[str, OpenRun], messages: Iterable[StreamMessage]) -> Iterator[int]:
    """The collecting end has nobody behind it: an END that leaves it ends the run."""
    for end in ends(messages):
        state = runs[end.run]
        if not state.outlets:
            yield state.run.id


def receivers(runs: Mapping[str, OpenRun], messages: Iterable[StreamMessage]) -> set[str]:
    """The tasks that have something to read after the step."""
    concerned = {message.run for message in messages}
    return {outlet.name.to_task for run in concerned for outlet in runs[run].outlets}


def ends(messages: Iterable[StreamMessage]) -> Iterator[Barrier]:
    """The ENDs of runs among messages."""
    return (each for each in messages if isinstance(each, Barrier) and each.is_end)


def _id(state: OpenRun, outlet: OutputChannel, number: int) -> UUID:
    run, channel = state.run, outlet.name
    way = (channel.from_task, channel.to_task, channel.input)
    return message_id(run.pipeline, run.key, *way, state.cause, number)
