"""A flow whose handlers leave a mark for every time that they ran; workers that die import it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import sleep

from tidegate.flows import Backoff, Context, Flow


@dataclass(frozen=True)
class Job:
    """How many items there are, how long each takes, and where marks are left."""

    items: int
    seconds: float
    marks: str

    def mark(self, name: str) -> None:
        with Path(self.marks).open("a") as file:
            file.write(f"{name}\n")


@dataclass(frozen=True)
class Item:
    number: int
    job: Job


marked = Flow("marked")


@marked.generator(batch=10, flush_every=0.02, max_in_flight=60)
def produce(context: Context, job: Job) -> Iterator[Item]:
    job.mark("generator")
    for number in range(job.items):
        yield Item(number, job)


@produce.handler(retries=3, backoff=Backoff(first=0.01))
def handle(context: Context, item: Item) -> int:
    sleep(item.job.seconds)
    item.job.mark(f"item {item.number}")
    return item.number


@marked.reduce(produce)
def total(context: Context, numbers: Iterator[int]) -> int:
    return sum(numbers)
