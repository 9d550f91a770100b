"""Measures the loops of `bench.injector` in this process and prints the figures as JSON.

`compiled` as argument measures the loops that are compiled with the package; without it they are
interpreted, over whichever form of the package this process finds.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from importlib import import_module
from statistics import quantiles
from time import process_time
from typing import Any

from tidegate.dataflow import (
    Barrier,
    BarrierInjector,
    Channel,
    CheckpointBarrier,
    Event,
    InstantKind,
    StreamMessage,
    Watermark,
)

ROUNDS = 9
POLLS = 5_000_000
FORGETTING = 20
"""How many times fewer turns interpreted loops make: they are that much slower."""

BARRIER = Barrier.of_checkpoint(CheckpointBarrier.aligned(7, 3), "march")
Loop = Callable[[int], object]


def never() -> None:
    """Asked when a checkpoint is due, which is after an hour here."""


def periodic(look_every: int) -> BarrierInjector:
    return BarrierInjector("bench", never, interval=3600.0, look_every=look_every)


class Numbers:
    """Gives each round numbers above those of the last one."""

    def __init__(self) -> None:
        self._next = 1

    def take(self, count: int) -> int:
        first, self._next = self._next, self._next + count
        return first


def filled(name: str) -> Channel:
    channel = Channel(name)
    channel.offer(BARRIER)
    return channel


def loops_of(loops: Any) -> dict[str, Loop]:
    """Every loop by its name; each is called with a number of turns."""
    injector, numbers = BarrierInjector("bench"), Numbers()
    handle, unpolled = injector.handle(), BarrierInjector("bench").handle()
    empty, one, other = Channel("bench"), filled("one"), Channel("other")
    untimed, timed, timed_each = BarrierInjector("bench"), periodic(32), periodic(1)
    turns = loops.Turns()
    return {
        "floor": lambda count: loops.turn_in_vain(turns, count),
        "empty poll": lambda count: loops.poll(untimed, count),
        "empty poll, timed": lambda count: loops.poll(timed, count),
        "empty poll, clock": lambda count: loops.poll(timed_each, count),
        "inject": lambda count: loops.inject_only(unpolled, 1, count),
        "inject and poll": lambda count: loops.inject_and_poll(
            injector, handle, numbers.take(count), count
        ),
        "push and pop": lambda count: loops.push_and_pop(empty, BARRIER, count),
        "receive and forward": lambda count: loops.receive_and_forward(one, other, count),
    }


def measure(loops: Any, count: int) -> dict[str, list[float]]:
    """Nanoseconds per turn of each loop, in turns: first quartile, median, third quartile.

    Every round has objects of its own: where one happens to lie can make it ten times slower.
    """
    settings = [loops_of(loops) for _ in range(ROUNDS)]
    for loop in settings[0].values():
        loop(count // 10)
    rounds = [
        {name: nanoseconds(loop, count) for name, loop in setting.items()} for setting in settings
    ]
    return {name: quantiles([times[name] for times in rounds], n=4) for name in settings[0]}


def nanoseconds(loop: Loop, count: int) -> float:
    """Processor time: independent of other processes, as the loop never waits."""
    started = process_time()
    loop(count)
    return (process_time() - started) / count * 1e9


def sizes() -> dict[str, int]:
    """Bytes of a message and of the checkpoint barrier it carries.

    Not counted: the payload, the name of the run and the kind, which are shared; and numbers,
    which are objects of their own (28 to 36 bytes) in the plain form only.
    """
    messages: list[StreamMessage] = [
        Event("payload", "march"),
        Watermark(1_000, "march"),
        BARRIER,
        InstantKind.CANCEL.with_id(1, "march"),
    ]
    return {type(message).__name__: size(message) for message in messages}


def size(message: StreamMessage) -> int:
    carried = message.checkpoint if isinstance(message, Barrier) else None
    return sys.getsizeof(message) + (0 if carried is None else sys.getsizeof(carried))


def allocations(loops: Any) -> dict[str, int]:
    """How many allocations so many empty polls make."""
    counter = import_module("allocations")
    allocated = {}
    for name, injector in {"empty poll": BarrierInjector("bench"), "timed": periodic(32)}.items():
        loops.poll(injector, POLLS // 10)
        counter.start()
        loops.poll(injector, POLLS)
        allocated[name] = counter.stop()
    return allocated


def main() -> None:
    is_compiled = "compiled" in sys.argv[1:]
    loops = import_module("_injector_loops" if is_compiled else "bench._injector_loops")
    count = POLLS if is_compiled else POLLS // FORGETTING
    figures = {
        "compiled": str(loops.__file__).endswith(".so"),
        "nanoseconds": measure(loops, count),
        "sizes": sizes(),
        "allocations": allocations(loops) if is_compiled else {},
    }
    json.dump(figures, sys.stdout)


if __name__ == "__main__":
    main()
