"""Lanes in memory: the channels of one processor in one process."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from tidegate.dataflow import Barrier, Bell, Carrier, Channel, Edge, Event, StreamMessage
from tidegate.errors import CountMismatch
from tidegate.runtime.task.task_loop import Outcome, Step

STEP_MESSAGES = 256
"""How many messages one step takes at most, so that control is looked at often enough."""


@dataclass(slots=True)
class Lane:
    """One edge between two processors: a data and a control channel that never mix.

    The producer counts what it sends of each run and writes the count into END; the consumer
    counts what it takes and compares. A lost or repeated message cannot pass unnoticed.
    """

    edge: Edge
    data: Channel
    control: Channel
    shard: int | None = None
    """The consumer's shard, when the edge is an exchange; None takes every event."""
    sent: dict[str, int] = field(default_factory=dict)
    taken: dict[str, int] = field(default_factory=dict)

    def channel(self, carrier: Carrier) -> Channel:
        """Its data or its control channel."""
        return self.data if carrier is Carrier.DATA else self.control

    def wanted(self, messages: list[StreamMessage]) -> list[StreamMessage]:
        """Those that go by this lane: events to their shard, all else everywhere."""
        if self.shard is None:
            return messages
        return [message for message in messages if self._wants(message)]

    def _wants(self, message: StreamMessage) -> bool:
        return not isinstance(message, Event) or message.goes_to(self.shard)

    def offer(self, message: StreamMessage) -> bool:
        """Send on the data channel without waiting; False when there is no room."""
        run = message.run
        if isinstance(message, Barrier) and message.is_end:
            if not self.data.offer(message.counting(self.sent.get(run, 0))):
                return False
            self.sent.pop(run, None)
            return True
        if not self.data.offer(message):
            return False
        self.sent[run] = self.sent.get(run, 0) + 1
        return True

    def poll(self) -> StreamMessage | None:
        """Take from the data channel without waiting."""
        message = self.data.poll()
        if message is None:
            return None
        if isinstance(message, Barrier) and message.is_end:
            self._check_count(message)
        else:
            self.taken[message.run] = self.taken.get(message.run, 0) + 1
        return message

    def close(self) -> None:
        """Refuse further messages on both channels and wake both ends."""
        self.data.close()
        self.control.close()

    def _check_count(self, end: Barrier) -> None:
        received = self.taken.pop(end.run, 0)
        if end.count != received:
            raise CountMismatch(
                upstream=str(self.edge), run=end.run, declared=end.count or 0, received=received
            )


class Outlet:
    """One outgoing channel, and what has not found room in it yet."""

    def __init__(self, offer: Callable[[StreamMessage], bool], channel: Channel) -> None:
        self._offer = offer
        self._channel = channel
        self._waiting: deque[StreamMessage] = deque()

    @property
    def is_settled(self) -> bool:
        """Whether everything has left."""
        return not self._waiting

    @property
    def may_go_on(self) -> bool:
        """Whether something waits and would find room."""
        return bool(self._waiting) and self._channel.has_room_for(self._waiting[0])

    def send(self, messages: Iterable[StreamMessage]) -> None:
        """Send in order, behind what waits already."""
        self._waiting.extend(messages)
        self.flush()

    def flush(self) -> None:
        """Send what finds room."""
        waiting = self._waiting
        while waiting and self._offer(waiting[0]):
            waiting.popleft()

    def discard(self) -> int:
        """Drop what waits; how many messages that were."""
        dropped = len(self._waiting)
        self._waiting.clear()
        return dropped


class MemoryLanes:
    """The inputs and outputs of one processor; see `tidegate.runtime.task.task_loop.Lanes`."""

    def __init__(self, inputs: Sequence[Lane], outputs: Sequence[Lane], bell: Bell) -> None:
        self._inputs = tuple(inputs)
        self._outputs = tuple(outputs)
        self._data = tuple(Outlet(lane.offer, lane.data) for lane in outputs)
        self._control = tuple(Outlet(lane.control.offer, lane.control) for lane in outputs)
        self._bell = bell
        self._turn = 0
        self._taken: Step | None = None

    @property
    def is_settled(self) -> bool:
        """Whether everything committed has left."""
        return all(outlet.is_settled for outlet in (*self._data, *self._control))

    @property
    def is_closed(self) -> bool:
        """Whether somebody closed the lanes under the processor."""
        return any(lane.control.is_closed for lane in (*self._inputs, *self._outputs))

    def read(self, room: Callable[[Edge], int]) -> Step | None:
        """The next step: control first, then data once earlier outcomes have left.

        Data is taken before control is looked at, and kept for the next read when there is
        control: so a signal that was sent before a message is never handled after it.
        """
        for outlet in (*self._control, *self._data):
            outlet.flush()
        if self._taken is None and self.is_settled:
            self._taken = self._read_data(room)
        control = self._read_control()
        if control is not None:
            return control
        taken, self._taken = self._taken, None
        return taken

    def commit(self, step: Step, outcome: Outcome) -> None:
        """Send the outcome; what finds no room waits in its outlet.

        In memory all runs share their processors, so a run that fails takes them down.
        """
        assert not outcome.later, "work that outlives its step needs lanes that outlive it"
        for cause in outcome.failed.values():
            raise cause
        for lane, data, control in zip(self._outputs, self._data, self._control, strict=True):
            control.send(outcome.control)
            data.send(lane.wanted(outcome.data))

    def wait(self, room: Callable[[Edge], int], timeout: float) -> None:
        """Sleep until a channel of this processor has changed."""
        self._bell.sleep_unless(lambda: self._may_go_on(room), timeout)

    def discard(self) -> int:
        """Drop the data that was not handled or still waits for room; how many messages."""
        taken, self._taken = self._taken, None
        unhandled = len(taken.messages) if taken else 0
        return unhandled + sum(outlet.discard() for outlet in self._data)

    def _read_control(self) -> Step | None:
        for lane in self._inputs:
            message = lane.control.poll()
            if message is not None:
                return Step(Carrier.CONTROL, lane.edge, (message,))
        return None

    def _read_data(self, room: Callable[[Edge], int]) -> Step | None:
        """Data of the next input in turn, so that a busy upstream does not starve the others."""
        for offset in range(len(self._inputs)):
            lane = self._inputs[(self._turn + offset) % len(self._inputs)]
            messages = _up_to_a_signal(lane, min(room(lane.edge), STEP_MESSAGES))
            if messages:
                self._turn = (self._turn + offset + 1) % len(self._inputs)
                return Step(Carrier.DATA, lane.edge, tuple(messages))
        return None

    def _may_go_on(self, room: Callable[[Edge], int]) -> bool:
        if self.is_closed or any(lane.control.depth for lane in self._inputs):
            return True
        if not self.is_settled:
            return any(outlet.may_go_on for outlet in (*self._data, *self._control))
        return any(lane.data.depth and room(lane.edge) > 0 for lane in self._inputs)


def _up_to_a_signal(lane: Lane, limit: int) -> list[StreamMessage]:
    messages: list[StreamMessage] = []
    while len(messages) < limit and (message := lane.poll()) is not None:
        messages.append(message)
        if message.is_signal:
            break
    return messages
