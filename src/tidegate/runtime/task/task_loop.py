"""The step: read, handle, forward. One loop runs every processor.

A processor decides, channels move. The loop reads a step from the channels, lets the processor say
what follows from it, and commits both together. In memory a commit puts messages into
channels; over durable channels it is one transaction. Neither the loop nor a processor knows
which.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from tidegate.dataflow import (
    WHOLE_PIPELINE,
    Barrier,
    Carrier,
    ControlSignal,
    Edge,
    Instant,
    InstantKind,
    StreamMessage,
)
from tidegate.errors import ProcessorFailed, TidegateError, listed

IDLE_NET = 1.0
"""Seconds after which an idle loop looks again although no bell rang."""


@dataclass(frozen=True, slots=True)
class Step:
    """What is handled together: messages of one edge and channel, of each run up to a barrier."""

    carrier: Carrier
    edge: Edge
    messages: tuple[StreamMessage, ...]


@dataclass(frozen=True, slots=True)
class Result:
    """What a sink has for a complete run: batches, as the stages made them."""

    run: str
    sink: str
    rows: int
    batches: tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a task has of a run when a checkpoint's barrier leaves it; payloads name their files."""

    kept: tuple[tuple[int, object], ...] = ()
    """What was added to its state since the last one, each with the input that it came by."""
    compacted: tuple[tuple[int, int], ...] = ()
    """By input the checkpoint up to which its state is in `kept` in another form."""
    outputs: tuple[object, ...] = ()
    """The collecting end only: what sinks gave for this checkpoint alone."""
    waited: float = 0.0
    """Seconds from the first copy of the barrier to the last."""
    last: str = ""
    """Who brought the last one."""


@dataclass(slots=True)
class Outcome:
    """What a step leads to. Each list stays on its own channel; they are never mixed."""

    data: list[StreamMessage] = field(default_factory=list)
    control: list[ControlSignal] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    """What is published with this step."""
    failed: dict[str, TidegateError] = field(default_factory=dict)
    """Runs that cannot be completed, each with its cause; the others go on."""
    later: set[str] = field(default_factory=set)
    """Runs for which work goes on: what follows from their part comes with `finished`."""

    snapshots: dict[str, Snapshot] = field(default_factory=dict)
    """By run, where a checkpoint's barrier goes forward and there is something to say about it."""
    settled: dict[str, tuple[tuple[int, object], ...]] = field(default_factory=dict)
    """By run what becomes part of a task's state without a barrier, so that it can be read over."""

    @property
    def terminal(self) -> ControlSignal | None:
        """The signal after which the processor stops, if one goes forward."""
        ends = (m for m in (*self.control, *self.data[-1:]) if isinstance(m, Barrier | Instant))
        return next((signal for signal in ends if signal.is_terminal), None)

    def without(self, runs: Collection[str]) -> Outcome:
        """What it leads to for the other runs."""
        return replace(
            self,
            data=[it for it in self.data if it.run not in runs],
            results=[it for it in self.results if it.run not in runs],
            failed={run: cause for run, cause in self.failed.items() if run not in runs},
            later=self.later.difference(runs),
            snapshots={run: said for run, said in self.snapshots.items() if run not in runs},
            settled={run: kept for run, kept in self.settled.items() if run not in runs},
        )

    def add(self, carrier: Carrier, messages: Iterable[StreamMessage]) -> None:
        """Forward messages on the channel they belong to."""
        if carrier is Carrier.DATA:
            self.data.extend(messages)
            return
        for message in messages:
            assert isinstance(message, Barrier | Instant), "control channels carry signals only"
            self.control.append(message)


class Processor(Protocol):
    """What runs in a step loop."""

    @property
    def name(self) -> str:
        """Its place in the plan, such as `s3` or `s3/0` for one shard of it."""
        ...

    @property
    def holding(self) -> int:
        """How many messages it has taken and only keeps to forward them as they are."""
        ...

    def room(self, edge: Edge) -> int:
        """How many messages of this data input may be read; 0 is backpressure to it alone."""
        ...

    def handle(self, step: Step) -> Outcome:
        """Decide what follows from a step. Must not wait for other processors."""
        ...

    def finished(self) -> Sequence[tuple[Step, Outcome]]:
        """Work that went on behind its step and is done: the part of the step that it was for."""
        ...


class TaskChannelsProtocol(Protocol):
    """Where a processor's messages come from and go to."""

    def read(self, room: Callable[[Edge], int]) -> Step | None:
        """The next step, control before data, or None. Never waits.

        Data is not read while an earlier outcome has not left; control always is.
        """
        ...

    def commit(self, step: Step, outcome: Outcome) -> None:
        """Take over the outcome of a step. Never waits; `is_settled` tells when it has left."""
        ...

    @property
    def is_settled(self) -> bool:
        """Whether everything committed has left."""
        ...

    @property
    def is_closed(self) -> bool:
        """Whether the channels were closed from outside, so that there is nothing left to do."""
        ...

    def wait(self, room: Callable[[Edge], int], timeout: float) -> None:
        """Sleep until `read` may have something, or a commit may have left."""
        ...

    def discard(self) -> int:
        """Drop what was committed and has not left; how many messages that were."""
        ...


class StepLoop:
    """Runs one processor over its channels until a terminal has been forwarded."""

    def __init__(
        self,
        processor: Processor,
        channels: TaskChannelsProtocol,
        on_forwarded: Callable[[str, Barrier], None],
    ) -> None:
        self._processor = processor
        self._channels = channels
        self._on_forwarded = on_forwarded
        self._cancelled: set[str] = set()
        self._last_instant = 0
        self.discarded = 0

    def run(self) -> ControlSignal | None:
        """Step until the end; the terminal that ended it, or None when the channels were closed."""
        try:
            return self._run()
        finally:
            self.discarded += self._channels.discard() + self._processor.holding

    def _run(self) -> ControlSignal | None:
        terminal: ControlSignal | None = None
        while not self._channels.is_closed:
            if terminal is not None and self._channels.is_settled:
                return terminal
            terminal = self._turn(terminal)
        return None

    def _turn(self, terminal: ControlSignal | None) -> ControlSignal | None:
        # After a terminal only control is looked at: a quick end may overtake a graceful one
        # that waits for room downstream.
        room = self._processor.room if terminal is None else _no_room
        for earlier, outcome in self._processor.finished():
            self._commit(earlier, outcome)
        step = self._channels.read(room)
        if step is None:
            self._channels.wait(room, IDLE_NET)
            return terminal
        outcome = self._handle(step)
        self._commit(step, outcome)
        ended = outcome.terminal
        if isinstance(ended, Instant):
            self.discarded += self._channels.discard()
        return ended or terminal

    def _commit(self, step: Step, outcome: Outcome) -> None:
        self._channels.commit(step, outcome)
        self._report(outcome)

    def _handle(self, step: Step) -> Outcome:
        if step.carrier is Carrier.CONTROL:
            self._note_instants(step)
        elif self._cancelled:
            step = self._without_cancelled(step)
        try:
            return self._processor.handle(step)
        except ProcessorFailed:
            raise
        except (Exception, SystemExit) as cause:
            raise blame(self._processor.name, step.messages, cause) from cause

    def _note_instants(self, step: Step) -> None:
        """Record cancelled runs. A copy that arrives later by another channel changes nothing."""
        for message in step.messages:
            if not isinstance(message, Instant) or message.id <= self._last_instant:
                continue
            self._last_instant = message.id
            if message.kind is InstantKind.CANCEL:
                self._cancelled.add(message.run)
            elif message.kind is InstantKind.FORGET:
                self._cancelled.discard(message.run)

    def _without_cancelled(self, step: Step) -> Step:
        """The step without the data of cancelled runs; their ENDs still pass and close them."""
        kept = tuple(message for message in step.messages if self._is_wanted(message))
        return Step(step.carrier, step.edge, kept)

    def _is_wanted(self, message: StreamMessage) -> bool:
        if message.run == WHOLE_PIPELINE or message.run not in self._cancelled:
            return True
        return isinstance(message, Instant) or (isinstance(message, Barrier) and message.is_end)

    def _report(self, outcome: Outcome) -> None:
        for message in (*outcome.data, *outcome.control):
            if isinstance(message, Barrier):
                if message.is_end:
                    self._cancelled.discard(message.run)
                self._on_forwarded(self._processor.name, message)


def _no_room(_: Edge) -> int:
    return 0


def blame(
    processor: str, messages: Sequence[StreamMessage], cause: BaseException
) -> ProcessorFailed:
    """The failure of a processor on messages that it handled together, or on the only one."""
    shown = listed([str(message) for message in messages], most=3)
    runs = tuple(dict.fromkeys(message.run for message in messages))
    return ProcessorFailed(processor, shown, f"{type(cause).__name__}: {cause}", runs)
