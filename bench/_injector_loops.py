"""The loops that `bench.injector` measures. They are compiled together with the package.

Each makes `count` turns. Whatever a turn gives is looked at, so that nothing can be left out.
"""

from __future__ import annotations

from mypy_extensions import i64

from tidegate.dataflow.bell import Bell
from tidegate.dataflow.channel import Channel
from tidegate.dataflow.checkpoint_barrier import CheckpointBarrier
from tidegate.dataflow.control import Barrier
from tidegate.dataflow.injector import BarrierInjector, InjectorHandle


class Turns:
    """Does nothing, in a way that the C compiler cannot foresee."""

    def __init__(self) -> None:
        self.made: i64 = 0

    def turn(self) -> Bell | None:
        """What an empty read loop does."""
        self.made += 1
        return None


def turn_in_vain(turns: Turns, count: i64) -> int:
    """The floor: one call per turn."""
    found: i64 = 0
    turn: i64 = 0
    while turn < count:
        if turns.turn() is not None:
            found += 1
        turn += 1
    return found


def poll(injector: BarrierInjector, count: i64) -> int:
    """Poll when nothing is pending."""
    found: i64 = 0
    turn: i64 = 0
    while turn < count:
        if injector.poll_barrier() is not None:
            found += 1
        turn += 1
    return found


def inject_only(handle: InjectorHandle, first: i64, count: i64) -> int:
    """Publish repeatedly without a poll."""
    turn: i64 = 0
    while turn < count:
        handle.inject(first + turn, first + turn)
        turn += 1
    return turn


def inject_and_poll(
    injector: BarrierInjector, handle: InjectorHandle, first: i64, count: i64
) -> int:
    """Publish a barrier and take it."""
    found: i64 = 0
    turn: i64 = 0
    while turn < count:
        handle.inject(first + turn, first + turn)
        if injector.poll_barrier() is not None:
            found += 1
        turn += 1
    return found


def push_and_pop(channel: Channel, barrier: Barrier, count: i64) -> int:
    """Put a barrier into a channel and take it out."""
    found: i64 = 0
    turn: i64 = 0
    while turn < count:
        channel.offer(barrier)
        if channel.poll() is not None:
            found += 1
        turn += 1
    return found


def receive_and_forward(one: Channel, other: Channel, count: i64) -> int:
    """Take a barrier from one channel, recognise it, and put it into the other; and back."""
    found: i64 = 0
    turn: i64 = 0
    while turn < count:
        message = one.poll()
        if isinstance(message, Barrier) and other.offer(message):
            found += 1
        one, other = other, one
        turn += 1
    return found


def publish_until(injector: BarrierInjector, handle: InjectorHandle, seen: int) -> int:
    """Publish without a pause until the other thread has taken so many; how many it took."""
    number: i64 = 0
    while injector.barriers_injected < seen:
        number += 1
        handle.inject(number, number * 3, number % 2 == 1)
    return number


def poll_until(injector: BarrierInjector, seen: int) -> tuple[int, list[CheckpointBarrier]]:
    """Poll without a pause until so many barriers were taken; how many polls, and which."""
    taken: list[CheckpointBarrier] = []
    polls: i64 = 0
    while len(taken) < seen:
        polls += 1
        barrier = injector.poll_barrier()
        if barrier is not None:
            taken.append(barrier)
    return polls, taken
