"""Checkpoint barriers on their way: from a coordinator through sources, operators and fan-ins.

Each operator is a thread that takes from its channel, changes events and forwards the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import count, pairwise
from threading import Lock, Thread

from tests.waiting import LONG, wait_until
from tidegate.dataflow import (
    Aligner,
    Barrier,
    BarrierEmitter,
    BarrierInjector,
    Bell,
    Channel,
    CheckpointBarrier,
    Edge,
    Event,
    InjectorHandle,
    StreamMessage,
)
from tidegate.errors import BarrierInjectionFailed, ChannelClosed

RUN = "march"


class Source:
    """A read loop: a batch, then the barrier that is due, until its channels are closed."""

    def __init__(
        self, name: str, channels: Sequence[Channel], request: Callable[[], None] | None = None
    ) -> None:
        self.injector = BarrierInjector(name, request, interval=0.02, look_every=1)
        self.handle = self.injector.handle()
        self.emitter = BarrierEmitter(RUN, channels, self.injector, on_failure=lambda failure: None)
        self.channels = channels
        self.sent = 0
        self._thread = Thread(target=self._read, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        for channel in self.channels:
            channel.close()
        self._thread.join(LONG)
        assert not self._thread.is_alive()

    def send(self, payload: object) -> None:
        self.emitter.send(Event(payload, RUN), LONG)
        self.sent += 1

    def _read(self) -> None:
        with suppress(ChannelClosed, BarrierInjectionFailed):
            while True:
                self.send((self.injector.source, self.sent))


class Stage:
    """An operator on a thread; it records what it had seen when a barrier passed."""

    def __init__(self, taken: Channel, forward: Sequence[Channel]) -> None:
        self.seen: list[object] = []
        self.snapshots: dict[CheckpointBarrier, int] = {}
        self._from, self._to = taken, forward
        self.thread = Thread(target=self._work, daemon=True)
        self.thread.start()

    def _work(self) -> None:
        try:
            while True:
                self._forward(self._from.take(LONG))
        except ChannelClosed:
            for channel in self._to:
                channel.close()

    def _forward(self, message: StreamMessage) -> None:
        if isinstance(message, Event):
            self.seen.append(message.payload)
        if isinstance(message, Barrier) and message.checkpoint is not None:
            self.snapshots[message.checkpoint] = len(self.seen)
        for channel in self._to:
            channel.put(message.map(lambda payload: payload), LONG)


class Coordinator:
    """Assigns numbers on request, one checkpoint at a time, and injects it at every source."""

    def __init__(self) -> None:
        self.handles: list[InjectorHandle] = []
        self._numbers = count(1)
        self._lock = Lock()

    def begin(self) -> None:
        with self._lock:
            number = next(self._numbers)
            for handle in self.handles:
                handle.inject(number, number)


def drain(channel: Channel) -> list[StreamMessage]:
    taken = []
    while (message := channel.poll()) is not None:
        taken.append(message)
    return taken


def chain(length: int) -> tuple[list[Channel], list[Stage]]:
    channels = [Channel(f"channel{number}") for number in range(length + 1)]
    stages = [Stage(before, [after]) for before, after in pairwise(channels)]
    return channels, stages


def barrier(id: int) -> Barrier:
    return Barrier.of_checkpoint(CheckpointBarrier(id, id), RUN)


def send_three_around_a_barrier(source: Source) -> None:
    source.send(1)
    source.handle.inject(1, 1)
    source.send(2)
    source.send(3)


def test_a_barrier_flows_through_an_operator() -> None:
    (first, last), (stage,) = chain(1)
    source = Source("sales", [first])
    source.handle.inject(1, 1)
    source.emitter.turn()
    assert last.take(LONG) == barrier(1)
    assert stage.snapshots == {CheckpointBarrier(1, 1): 0}
    first.close()
    stage.thread.join(LONG)


def test_a_barrier_flows_through_a_chain_and_every_operator_has_seen_the_same() -> None:
    channels, stages = chain(4)
    source = Source("sales", [channels[0]])
    send_three_around_a_barrier(source)
    channels[0].close()
    for stage in stages:
        stage.thread.join(LONG)
    assert [stage.snapshots for stage in stages] == [{CheckpointBarrier(1, 1): 2}] * 4
    assert [stage.seen for stage in stages] == [[1, 2, 3]] * 4


def test_a_barrier_fans_out_to_every_channel() -> None:
    into, one, other = Channel("into"), Channel("one"), Channel("other")
    stage = Stage(into, [one, other])
    send_three_around_a_barrier(Source("sales", [into]))
    into.close()
    stage.thread.join(LONG)
    assert drain(one) == drain(other)


def test_events_before_and_after_a_barrier_stay_before_and_after_it() -> None:
    (first, last), (stage,) = chain(1)
    send_three_around_a_barrier(Source("sales", [first]))
    first.close()
    stage.thread.join(LONG)
    events: list[StreamMessage] = [Event(number, RUN) for number in (1, 2, 3)]
    assert drain(last) == [*events[:2], barrier(1), events[2]]


def test_a_coordinator_triggers_a_checkpoint_over_two_sources_that_a_fan_in_aligns() -> None:
    bell = Bell()
    channels = [Channel(f"channel{number}", arrivals=bell) for number in range(2)]
    sources = [Source(name, [channel]) for name, channel in zip("ab", channels, strict=True)]
    coordinator = Coordinator()
    coordinator.handles += [source.handle for source in sources]
    for source in sources:
        source.start()
    forwarded = align_until(channels, bell, begin=coordinator.begin, barriers=5)
    for source in sources:
        source.stop()
    check_checkpoint(forwarded, [source.injector.source for source in sources])


def test_periodic_sources_under_load_share_numbers_that_only_grow() -> None:
    bell = Bell()
    channels = [Channel(f"channel{number}", arrivals=bell) for number in range(2)]
    coordinator = Coordinator()
    requests: list[str] = []
    sources = [
        Source(name, [channel], request=partial(requests.append, name))
        for name, channel in zip("ab", channels, strict=True)
    ]
    coordinator.handles += [source.handle for source in sources]
    for source in sources:
        source.start()

    def begin_when_asked() -> None:
        wait_until(lambda: bool(requests))
        requests.clear()
        coordinator.begin()

    forwarded = align_until(channels, bell, begin=begin_when_asked, barriers=5, in_background=True)
    for source in sources:
        source.stop()
    check_checkpoint(forwarded, [source.injector.source for source in sources])
    assert sum(source.injector.requests for source in sources) >= 5


def align_until(
    channels: Sequence[Channel],
    bell: Bell,
    begin: Callable[[], None],
    barriers: int,
    in_background: bool = False,
) -> list[StreamMessage]:
    """What a fan-in forwards, up to so many barriers; the next is begun when one has passed."""
    edges = [Edge(index, channel.name) for index, channel in enumerate(channels)]
    aligner = Aligner(edges, RUN)
    forwarded: list[StreamMessage] = []
    passed = 0

    def start() -> None:
        if in_background:
            Thread(target=begin, daemon=True).start()
        else:
            begin()

    start()
    while passed < barriers:
        bell.sleep_unless(lambda: any(channel.depth for channel in channels), LONG)
        for edge, channel in zip(edges, channels, strict=True):
            if aligner.space(edge) == 0 or (message := channel.poll()) is None:
                continue
            out = [delivery.message for delivery in aligner.accept(edge, message)]
            forwarded += out
            if any(message.is_barrier for message in out):
                passed += 1
                if passed < barriers:
                    start()
    return forwarded


def check_checkpoint(forwarded: Sequence[StreamMessage], sources: Sequence[str]) -> None:
    """Numbers only grow, and before each barrier is a prefix of what every source sent."""
    ids = [message.id for message in forwarded if isinstance(message, Barrier)]
    assert len(ids) == 5
    assert ids == sorted(set(ids))
    seen: dict[object, int] = dict.fromkeys(sources, 0)
    for message in forwarded:
        if isinstance(message, Event):
            assert isinstance(message.payload, tuple)
            name, number = message.payload
            assert number == seen[name]
            seen[name] += 1
    assert all(seen.values())
