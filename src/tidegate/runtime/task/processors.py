"""The two kinds of processors that every pipeline is made of.

Operators do the work and know nothing of alignment. Barrier nodes align and do no work.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from time import monotonic

from tidegate.dataflow import (
    WHOLE_PIPELINE,
    Aligner,
    Barrier,
    Carrier,
    Delivery,
    Edge,
    Event,
    Instant,
    InstantKind,
    Pending,
    StreamMessage,
)
from tidegate.dataflow.aligner import DEFAULT_HOLD
from tidegate.errors import InputClosed, UnfinishedAlignment
from tidegate.runtime.task.task_loop import Outcome, Snapshot, Step, blame
from tidegate.store import RestoredEntry, Withdrawn

NOTHING = Withdrawn()


class Operator:
    """A processor that works on events. Override `on_event`, and `flush` when it keeps state.

    What is not an event is forwarded as it came. Before a barrier goes forward, `flush` says
    what has to go first.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._withdrawn: dict[str, Withdrawn] = {}

    @property
    def name(self) -> str:
        """Its place in the plan."""
        return self._name

    @property
    def holding(self) -> int:
        """An operator's state is not messages."""
        return 0

    def room(self, edge: Edge) -> int:
        """An operator takes whatever there is."""
        return sys.maxsize

    def is_waiting(self, edge: Edge, run: str) -> bool:
        """An operator waits for nothing but messages."""
        return False

    def unsettled(self, edge: Edge, run: str) -> int:
        """How many of the last messages of a channel it keeps in memory; see `DurableProcessor`."""
        return 0

    def recall(self, run: str, watermarks: Mapping[Edge, int], forwarded: int | None) -> None:
        """An operator passes watermarks on and need not know them again."""

    def restore(self, run: str, state: Sequence[RestoredEntry]) -> None:
        """Have again what was kept at the last checkpoint; by default nothing is kept."""

    def withdraw(self, run: str, checkpoints: Withdrawn) -> None:
        """Barriers of these need no answer; see `is_void`."""
        self._withdrawn[run] = checkpoints

    def is_void(self, barrier: Barrier) -> bool:
        """Whether this is the barrier of a checkpoint that was withdrawn."""
        return barrier.is_checkpoint and barrier.id in self._withdrawn.get(barrier.run, NOTHING)

    @property
    def share(self) -> int:
        """It takes whatever there is of each run."""
        return sys.maxsize

    @property
    def is_patient(self) -> bool:
        """It takes what there is at once."""
        return False

    def forget(self, run: str) -> None:
        """A run was closed; nothing of it arrives any more."""
        self._withdrawn.pop(run, None)
        self.on_cancel(run)

    def attend(self, work_done: Callable[[], None]) -> None:
        """All its work is done within a step."""

    def finished(self) -> Sequence[tuple[Step, Outcome]]:
        """All its work is done within a step."""
        return ()

    def on_event(self, event: Event[object]) -> Iterable[Event[object]]:
        """What follows from an event; by default the event itself."""
        return (event,)

    def flush(self, barrier: Barrier) -> Iterable[Event[object]]:
        """What has to go forward before this barrier; by default nothing."""
        return ()

    def on_cancel(self, run: str) -> None:
        """Forget a run; its data does not arrive any more."""

    def handle(self, step: Step) -> Outcome:
        """Handle message by message, so that a failure names the one that caused it."""
        outcome = Outcome()
        for message in step.messages:
            try:
                outcome.add(step.carrier, self._follow(message))
            except (Exception, SystemExit) as cause:
                raise blame(self.name, (message,), cause) from cause
        return outcome

    def _follow(self, message: StreamMessage) -> Iterable[StreamMessage]:
        if isinstance(message, Event):
            return self.on_event(message)
        if isinstance(message, Barrier):
            return (*self.flush(message), message)
        if isinstance(message, Instant) and message.kind is InstantKind.CANCEL:
            self.on_cancel(message.run)
        return (message,)


class BarrierProcessor:
    """The node under every fan-in: aligns barriers, passes everything else on.

    One aligner per run and channel, and in front of them one per channel for barriers that are
    meant for the whole pipeline.
    """

    def __init__(self, name: str, edges: Sequence[Edge], hold: int = DEFAULT_HOLD) -> None:
        self._name = name
        self._edges = tuple(edges)
        self._hold = hold
        self._whole = {carrier: Aligner(edges, WHOLE_PIPELINE, hold) for carrier in Carrier}
        self._runs: dict[Carrier, dict[str, Aligner]] = {carrier: {} for carrier in Carrier}
        self._data = self._runs[Carrier.DATA]
        self._whole_data = self._whole[Carrier.DATA]
        self._last_instant = dict.fromkeys(Carrier, 0)
        self._ended_by: dict[Edge, Barrier] = {}
        self._first_copies: dict[str, float] = {}
        """By run when the first copy of a checkpoint's barrier came that is pending."""

    @property
    def name(self) -> str:
        """Its place in the plan."""
        return self._name

    @property
    def pending(self) -> tuple[Pending, ...]:
        """The barriers that wait here, over all runs and both channels."""
        runs = (aligner for aligners in self._runs.values() for aligner in tuple(aligners.values()))
        waiting = (aligner.pending for aligner in (*self._whole.values(), *runs))
        return tuple(pending for pending in waiting if pending is not None)

    @property
    def open_runs(self) -> tuple[str, ...]:
        """The runs that have come by and whose END has not gone forward."""
        return tuple(self._data)

    @property
    def holding(self) -> int:
        """How many messages wait here behind a pending barrier."""
        return sum(aligner.holding for aligner in (self._whole_data, *self._data.values()))

    def room(self, edge: Edge) -> int:
        """How much of this upstream the aligners would still hold."""
        return min(aligner.room(edge) for aligner in (self._whole_data, *self._data.values()))

    def is_waiting(self, edge: Edge, run: str) -> bool:
        """Whether a barrier that this channel has delivered is missing from others."""
        aligner = self._data.get(run)
        return self._whole_data.awaits(edge) or (aligner is not None and aligner.awaits(edge))

    def unsettled(self, edge: Edge, run: str) -> int:
        """The barrier it waits with: nothing behind it is read from a durable channel."""
        return int(self.is_waiting(edge, run))

    def recall(self, run: str, watermarks: Mapping[Edge, int], forwarded: int | None) -> None:
        """Know again, after a crash, the last watermark of each channel of a run."""
        self._aligner(Carrier.DATA, run).recall(watermarks, forwarded)

    def restore(self, run: str, state: Sequence[RestoredEntry]) -> None:
        """What it keeps is on its channels."""

    def withdraw(self, run: str, checkpoints: Withdrawn) -> None:
        """Nobody waits for copies of these any more, and late ones do not count.

        For durable channels, of which nothing was read behind the barrier; see `InstantKind.ABORT`.
        """
        aligner = self._aligner(Carrier.DATA, run)
        released = aligner.abort_up_to(checkpoints.up_to)
        for number in checkpoints.also:
            released += aligner.abort(number)
        if aligner.pending is None:
            self._first_copies.pop(run, None)
        assert not released, "nothing is held behind a barrier that stays on its channel"

    @property
    def share(self) -> int:
        """It only passes on what others work on."""
        return sys.maxsize

    @property
    def is_patient(self) -> bool:
        """It passes on at once."""
        return False

    def attend(self, work_done: Callable[[], None]) -> None:
        """Aligning is done within a step."""

    def finished(self) -> Sequence[tuple[Step, Outcome]]:
        """Aligning is done within a step."""
        return ()

    def forget(self, run: str) -> None:
        """A run was closed: whatever waits here of it waits in vain."""
        self._data.pop(run, None)
        self._first_copies.pop(run, None)
        self._forget_idle_control(run)

    def handle(self, step: Step) -> Outcome:
        """Align each message of the step."""
        outcome = Outcome()
        for message in step.messages:
            try:
                self._handle(step.carrier, step.edge, message, outcome)
            except Exception as cause:
                raise blame(self.name, (message,), cause) from cause
        return outcome

    def _handle(
        self, carrier: Carrier, edge: Edge, message: StreamMessage, outcome: Outcome
    ) -> None:
        if isinstance(message, Event) and self._lets_through(edge, message.run):
            outcome.data.append(message.arriving_by(edge.port))
        elif isinstance(message, Instant):
            self._pass_instant(carrier, message, outcome)
        else:
            self._align(carrier, edge, message, outcome)

    def _lets_through(self, edge: Edge, run: str) -> bool:
        """The common case: no barrier holds the channel."""
        aligner = self._data.get(run)
        if aligner is None:
            return False
        return aligner.lets_through(edge) and self._whole_data.lets_through(edge)

    def _align(
        self, carrier: Carrier, edge: Edge, message: StreamMessage, outcome: Outcome
    ) -> None:
        if edge in self._ended_by and carrier is Carrier.DATA:
            closed_by = str(self._ended_by[edge])
            raise InputClosed(upstream=str(edge), message=str(message), closed_by=closed_by)
        if isinstance(message, Barrier) and message.is_checkpoint:
            self._first_copies.setdefault(message.run, monotonic())
        released = self._whole[carrier].accept(edge, message)
        if isinstance(message, Barrier) and message.is_terminal and carrier is Carrier.DATA:
            self._ended_by[edge] = message
        self._release(carrier, released, outcome)
        aligner = self._runs[carrier].get(message.run)
        if aligner is not None and aligner.pending is None:
            self._first_copies.pop(message.run, None)  # it was a late copy of one withdrawn

    def _release(self, carrier: Carrier, released: list[Delivery], outcome: Outcome) -> None:
        """Lead what the whole-pipeline aligner let through to the aligners of the runs."""
        for delivery in released:
            if delivery.message.run == WHOLE_PIPELINE:
                self._forward(carrier, [delivery], outcome)
            else:
                aligner = self._aligner(carrier, delivery.message.run)
                self._forward(carrier, aligner.accept(delivery.edge, delivery.message), outcome)

    def _aligner(self, carrier: Carrier, run: str) -> Aligner:
        if run == WHOLE_PIPELINE:
            return self._whole[carrier]
        aligners = self._runs[carrier]
        if run not in aligners:
            aligners[run] = Aligner(self._edges, run, self._hold)
        return aligners[run]

    def _forward(self, carrier: Carrier, released: list[Delivery], outcome: Outcome) -> None:
        for delivery in released:
            message = delivery.message
            if isinstance(message, Barrier):
                self._leave(carrier, message)
                self._note_wait(delivery, outcome)
            elif isinstance(message, Event):
                message = message.arriving_by(delivery.edge.port)
            outcome.add(carrier, (message,))

    def _note_wait(self, delivery: Delivery, outcome: Outcome) -> None:
        """How long the first copy of a checkpoint's barrier waited for the last."""
        barrier = delivery.message
        if isinstance(barrier, Barrier) and barrier.is_checkpoint:
            waited = monotonic() - self._first_copies.pop(barrier.run, monotonic())
            outcome.snapshots[barrier.run] = Snapshot(waited=waited, last=delivery.edge.upstream)

    def _leave(self, carrier: Carrier, barrier: Barrier) -> None:
        """A barrier goes forward: forget what it ends, and see that it leaves nothing behind."""
        if barrier.is_terminal and carrier is Carrier.DATA:
            self._check_nothing_held(barrier)
        if barrier.is_end:
            del self._data[barrier.run]
        self._forget_idle_control(barrier.run)

    def _check_nothing_held(self, terminal: Barrier) -> None:
        for aligner in self._data.values():
            if (pending := aligner.pending) is not None:
                raise UnfinishedAlignment(
                    terminal=str(terminal),
                    pending=str(pending.barrier),
                    missing=", ".join(str(edge) for edge in pending.missing),
                )

    def _forget_idle_control(self, run: str) -> None:
        """A run's control aligner lives as long as its data aligner or its pending barrier."""
        aligner = self._runs[Carrier.CONTROL].get(run)
        if aligner is not None and aligner.pending is None and run not in self._data:
            del self._runs[Carrier.CONTROL][run]

    def _pass_instant(self, carrier: Carrier, instant: Instant, outcome: Outcome) -> None:
        """Act on the first copy and forward it; the copies of the other upstreams end here."""
        if instant.id <= self._last_instant[carrier]:
            return
        self._last_instant[carrier] = instant.id
        outcome.add(carrier, (instant,))
        if instant.kind is InstantKind.ABORT:
            self._abort(instant, outcome)
        elif instant.kind is InstantKind.CANCEL:
            self._cancel(instant.run, outcome)
        elif instant.kind is InstantKind.FORGET:
            # The run's END has left long ago: an aligner of its name was opened by a late abort.
            self.forget(instant.run)

    def _abort(self, instant: Instant, outcome: Outcome) -> None:
        """Withdraw a barrier, also one whose copies are still to come."""
        for carrier in Carrier:
            released = self._aligner(carrier, instant.run).abort(instant.target)
            if instant.run == WHOLE_PIPELINE:
                self._release(carrier, released, outcome)
            else:
                self._forward(carrier, released, outcome)

    def _cancel(self, run: str, outcome: Outcome) -> None:
        """Drop what is held of a run. On the control channel nothing waits for its data."""
        if run in self._data:
            self._forward(Carrier.DATA, self._data[run].discard(), outcome)
