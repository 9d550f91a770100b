"""One channel: messages put and taken, by one thread and between two."""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread

from bench._measure import Case, main
from tidegate.dataflow import Channel, Event, StreamMessage

EVENT = Event("payload", "march")


def push_and_pop_channel(count: int) -> None:
    channel = Channel("bench")
    for _ in range(count):
        channel.offer(EVENT)
        channel.poll()


def push_and_pop_queue(count: int) -> None:
    queue: SimpleQueue[StreamMessage] = SimpleQueue()
    for _ in range(count):
        queue.put_nowait(EVENT)
        queue.get_nowait()


def hand_over_by_channel(count: int) -> None:
    channel = Channel("bench")
    _take_elsewhere(count, channel.take, lambda: _repeat(count, lambda: channel.put(EVENT)))


def hand_over_by_queue(count: int) -> None:
    queue: SimpleQueue[StreamMessage] = SimpleQueue()
    _take_elsewhere(count, queue.get, lambda: _repeat(count, lambda: queue.put(EVENT)))


def _take_elsewhere(count: int, take: Callable[[], object], put_all: Callable[[], None]) -> None:
    taker = Thread(target=_repeat, args=(count, take))
    taker.start()
    put_all()
    taker.join()


def _repeat(count: int, act: Callable[[], object]) -> None:
    for _ in range(count):
        act()


CASES = (
    Case("put and take, one thread", "messages", 100_000, push_and_pop_channel, push_and_pop_queue),
    Case("put and take, two threads", "messages", 50_000, hand_over_by_channel, hand_over_by_queue),
)

if __name__ == "__main__":
    main(CASES)
