"""A chain of four processors: every message goes from thread to thread to thread to thread."""

from __future__ import annotations

from bench._measure import Case, main
from bench._queues import QueueChain
from tidegate.runtime import Link, LivePipeline, Operator

NAMES = ("first", "second", "third", "fourth")
LINKS = tuple(map(Link, NAMES, NAMES[1:]))


def through_processors(count: int) -> None:
    with LivePipeline("chain", [Operator(name) for name in NAMES], LINKS) as live:
        live.begin("march")
        for number in range(count):
            live.send("first", number, "march")
        live.end("march").wait()


def through_queues(count: int) -> None:
    chain = QueueChain(len(NAMES))
    for number in range(count):
        chain.put(number)
    chain.end()


CASES = (Case("chain of four processors", "messages", 20_000, through_processors, through_queues),)

if __name__ == "__main__":
    main(CASES)
