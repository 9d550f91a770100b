"""A diamond over durable channels, run by a process that may be killed at any moment.

    python -m tests.integration.runtime.diamond URL RUN

    head → split → left  → meet (a barrier node) → gather → end
                 → right →

`gather` collects events in memory and forwards them as one event before each barrier.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from threading import Thread
from time import monotonic, sleep
from uuid import uuid4

from tests.integration.runtime.operators import Operator
from tidegate.dataflow import Barrier, BarrierKind, Edge, Event, StreamMessage
from tidegate.runtime.task.input_gate import InputGate
from tidegate.runtime.task.processor import Processor
from tidegate.runtime.task.task_loop import Ownership, TaskLoop
from tidegate.runtime.task_graph import HEAD, TaskEdge, channel_names, edges_into
from tidegate.store import (
    ChannelName,
    Database,
    Lease,
    Notifications,
    RunInfo,
    RunState,
    acquire,
    begin_run,
    find_run,
    message_id,
    task_topic,
)
from tidegate.store.runs.channels import append

PIPELINE = "diamond"
EDGES = (
    TaskEdge("split", "left"),
    TaskEdge("split", "right"),
    TaskEdge("left", "meet"),
    TaskEdge("right", "meet"),
    TaskEdge("meet", "gather"),
    TaskEdge("gather", "end"),
)
LEASE = 0.3


class Tag(Operator):
    """Marks every event with its own name."""

    def on_event(self, event: Event[object]) -> Iterable[Event[object]]:
        return (Event(f"{self.name} {event.payload}", event.run),)


class Gather(Operator):
    """Collects events until a barrier arrives, then forwards them as one."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._events: dict[str, list[object]] = defaultdict(list)

    def uncommitted(self, edge: Edge, run: str) -> int:
        return len(self._events[run])

    def on_event(self, event: Event[object]) -> Iterable[Event[object]]:
        self._events[event.run].append(event.payload)
        return ()

    def flush(self, barrier: Barrier) -> Iterable[Event[object]]:
        return (Event(sorted(map(str, self._events.pop(barrier.run, []))), barrier.run),)


def processors() -> list[Processor]:
    return [
        Tag("split"),
        Tag("left"),
        Tag("right"),
        InputGate("meet", edges_into(EDGES, "meet")),
        Gather("gather"),
        Operator("end"),
    ]


def traffic(run: RunInfo) -> Iterator[StreamMessage]:
    """Two checkpoints and an END."""
    for number in range(1, 9):
        yield Event(number, run.key)
        if number in {3, 6}:
            yield BarrierKind.CHECKPOINT.with_id(number, run.key)
    yield BarrierKind.END_OF_RUN.with_id(99, run.key)


def submit(database: Database, name: str) -> RunInfo:
    """Begin a run and send all its data."""
    channels = channel_names(EDGES, ["split"])
    run = database.transact(lambda c: begin_run(c, PIPELINE, name, channels))
    inlet = ChannelName(HEAD, "split")
    for number, message in enumerate(traffic(run)):
        sent = [(message_id(run.key, number), message)]
        database.transact(partial(append, run=run, channel=inlet, messages=sent))
    return run


def own(database: Database, task: str) -> Lease:
    """Wait until the earlier lease of the task has expired."""
    owner, deadline = str(uuid4()), monotonic() + 30
    key = task_topic(PIPELINE, task)
    while monotonic() < deadline:
        lease = database.transact(lambda c: acquire(c, "task", key, owner, LEASE))
        if lease is not None:
            return lease
        sleep(0.02)
    raise TimeoutError(f"{task} is still owned by another")


@contextmanager
def running(
    database: Database, notifications: Notifications, processor: Processor
) -> Iterator[None]:
    """One task on a thread."""
    owned = Ownership(own(database, processor.name))
    loop = TaskLoop(database, PIPELINE, processor, EDGES, owned)
    notifications.subscribe(task_topic(PIPELINE, processor.name), loop.wake)
    thread = Thread(target=loop.run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        loop.close()
        thread.join(30)


def work(url: str, run_name: str) -> None:
    """Run all tasks until the run has ended."""
    with (
        Database(url).open() as database,
        Notifications(database) as notifications,
        ExitStack() as tasks,
    ):
        for processor in processors():
            tasks.enter_context(running(database, notifications, processor))
        deadline = monotonic() + 60
        while is_open(database, run_name):
            if monotonic() > deadline:
                raise TimeoutError(f"run {run_name} did not end")
            sleep(0.02)


def is_open(database: Database, run_name: str) -> bool:
    """Whether the run is there and has not ended."""
    run = database.transact(lambda c: find_run(c, PIPELINE, run_name))
    return run is not None and run.state is RunState.OPEN


if __name__ == "__main__":
    work(sys.argv[1], sys.argv[2])
