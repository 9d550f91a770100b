"""The two kinds of processors that every pipeline is made of.

Operators do the work and know nothing of alignment. Barrier nodes align and do no work.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from tidegate.errors import LaneClosed, ProcessorFailed, UnfinishedAlignment
from tidegate.run.step import Outcome, Step
from tidegate.signals import (
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
from tidegate.signals.aligner import DEFAULT_HOLD


class Operator:
    """A processor that works on events. Override `on_event`, and `flush` when it keeps state.

    What is not an event is forwarded as it came. Before a barrier goes forward, `flush` says
    what has to go first.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def name(self) -> str:
        """Its place in the plan."""
        return self._name

    def room(self, edge: Edge) -> int:
        """An operator takes whatever there is."""
        return sys.maxsize

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
                for out in self._follow(message):
                    outcome.add(step.carrier, out)
            except Exception as cause:
                reason = f"{type(cause).__name__}: {cause}"
                raise ProcessorFailed(self.name, str(message), reason) from cause
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
        self._aligners = {
            (carrier, WHOLE_PIPELINE): Aligner(edges, WHOLE_PIPELINE, hold) for carrier in Carrier
        }
        self._last_instant = dict.fromkeys(Carrier, 0)
        self._ended_by: set[Edge] = set()

    @property
    def name(self) -> str:
        """Its place in the plan."""
        return self._name

    @property
    def pending(self) -> tuple[Pending, ...]:
        """The barriers that wait here, over all runs and both channels."""
        waiting = (aligner.pending for aligner in tuple(self._aligners.values()))
        return tuple(pending for pending in waiting if pending is not None)

    def room(self, edge: Edge) -> int:
        """How much of this upstream the aligners would still hold."""
        return min(
            aligner.room(edge)
            for (carrier, _), aligner in self._aligners.items()
            if carrier is Carrier.DATA
        )

    def handle(self, step: Step) -> Outcome:
        """Align each message of the step."""
        outcome = Outcome()
        for message in step.messages:
            if isinstance(message, Instant):
                self._pass_instant(step.carrier, message, outcome)
            else:
                self._align(step.carrier, step.edge, message, outcome)
        return outcome

    def _align(
        self, carrier: Carrier, edge: Edge, message: StreamMessage, outcome: Outcome
    ) -> None:
        if edge in self._ended_by and carrier is Carrier.DATA:
            raise LaneClosed(upstream=str(edge), message=str(message), run=message.run)
        whole = self._aligners[carrier, WHOLE_PIPELINE]
        released = whole.accept(edge, message)
        if isinstance(message, Barrier) and message.is_terminal and carrier is Carrier.DATA:
            self._ended_by.add(edge)
        self._release(carrier, released, outcome)

    def _release(self, carrier: Carrier, released: list[Delivery], outcome: Outcome) -> None:
        """Lead what the whole-pipeline aligner let through to the aligners of the runs."""
        for delivery in released:
            if delivery.message.run == WHOLE_PIPELINE:
                self._forward(carrier, [delivery], outcome)
            else:
                self._align_run(carrier, delivery, outcome)

    def _align_run(self, carrier: Carrier, delivery: Delivery, outcome: Outcome) -> None:
        key = (carrier, delivery.message.run)
        aligner = self._aligners.get(key)
        if aligner is None:
            aligner = self._aligners[key] = Aligner(self._edges, key[1], self._hold)
        self._forward(carrier, aligner.accept(delivery.edge, delivery.message), outcome)

    def _forward(self, carrier: Carrier, released: list[Delivery], outcome: Outcome) -> None:
        for delivery in released:
            message = delivery.message
            if isinstance(message, Barrier):
                self._leave(carrier, message)
            elif isinstance(message, Event):
                message = message.arriving_by(delivery.edge.index)
            outcome.add(carrier, message)

    def _leave(self, carrier: Carrier, barrier: Barrier) -> None:
        """A barrier goes forward: forget what it ends, and see that it leaves nothing behind."""
        if barrier.is_terminal and carrier is Carrier.DATA:
            self._check_nothing_held(barrier)
        if barrier.is_end:
            del self._aligners[Carrier.DATA, barrier.run]
        self._forget_idle_control(barrier.run)

    def _check_nothing_held(self, terminal: Barrier) -> None:
        for (carrier, _), aligner in self._aligners.items():
            if carrier is Carrier.DATA and (pending := aligner.pending) is not None:
                raise UnfinishedAlignment(
                    terminal=str(terminal),
                    pending=str(pending.barrier),
                    missing=", ".join(str(edge) for edge in pending.missing),
                )

    def _forget_idle_control(self, run: str) -> None:
        """A run's control aligner lives as long as its data aligner or its pending barrier."""
        aligner = self._aligners.get((Carrier.CONTROL, run))
        if aligner is None or aligner.pending or (Carrier.DATA, run) in self._aligners:
            return
        del self._aligners[Carrier.CONTROL, run]

    def _pass_instant(self, carrier: Carrier, instant: Instant, outcome: Outcome) -> None:
        """Act on the first copy and forward it; the copies of the other upstreams end here."""
        if instant.id <= self._last_instant[carrier]:
            return
        self._last_instant[carrier] = instant.id
        outcome.add(carrier, instant)
        if instant.kind is InstantKind.ABORT:
            self._abort(instant, outcome)
        elif instant.kind is InstantKind.CANCEL:
            self._cancel(instant.run, outcome)

    def _abort(self, instant: Instant, outcome: Outcome) -> None:
        for carrier in Carrier:
            aligner = self._aligner_for_abort(carrier, instant)
            released = aligner.abort(instant.target)
            if instant.run == WHOLE_PIPELINE:
                self._release(carrier, released, outcome)
            else:
                self._forward(carrier, released, outcome)

    def _aligner_for_abort(self, carrier: Carrier, instant: Instant) -> Aligner:
        key = (carrier, instant.run)
        if key not in self._aligners:
            # The abort overtook the barrier; its copies are still to come and must not count.
            self._aligners[key] = Aligner(self._edges, instant.run, self._hold)
        return self._aligners[key]

    def _cancel(self, run: str, outcome: Outcome) -> None:
        aligner = self._aligners.get((Carrier.DATA, run))
        if aligner is not None:
            self._forward(Carrier.DATA, aligner.discard(), outcome)
        self._aligners.pop((Carrier.CONTROL, run), None)
