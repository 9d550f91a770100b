"""What tests of durable flows share: a flow driven by hand, as a worker or psql would."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeVar

import psycopg
import pytest

from tests.integration.flows.declared import numbers
from tidegate.flows import Flow, FlowRun
from tidegate.flows.client import start_flow
from tidegate.flows.model.definition import Definition
from tidegate.flows.worker.worker import FlowWorker
from tidegate.store import Connection, Database, Notifications, acquire
from tidegate.store.flows import runs as store
from tidegate.store.flows import tasks
from tidegate.store.flows.tasks import FLOW_WORKER, Claim

T = TypeVar("T")
LEASE = 60.0
GENERATOR, ITEMS = "numbers/count_up", "numbers/count_up[]"


@dataclass
class Hand:
    """Does by hand what a worker does by itself."""

    database: Database
    name: str = "hand"
    lease: float = LEASE
    keys: Iterator[int] = field(default_factory=count)

    def __post_init__(self) -> None:
        self.database.transact(lambda c: acquire(c, FLOW_WORKER, self.name, self.name, self.lease))

    def do(self, work: Callable[..., T], *given: Any, **named: Any) -> T:
        return self.database.transact(lambda c: work(c, *given, **named))

    def begin(self, flow: Flow | Definition, value: str = "null", key: str | None = None) -> int:
        found = flow.definition if isinstance(flow, Flow) else flow
        name = key if key is not None else f"run-{next(self.keys)}"
        return self.do(store.begin_flow, found.name, name, value, found.as_rows())

    def claim(self, *queues: str, room: int = 100) -> list[Claim]:
        return self.do(tasks.claim, self.name, dict.fromkeys(queues, room))

    def complete(self, claims: Sequence[Claim], result: str = "null") -> list[Any]:
        return self.do(tasks.complete, self.name, [(it, result) for it in claims])

    def spawn(self, it: Claim, positions: range) -> tuple[int, int]:
        return self.do(tasks.spawn, it, [(at, str(at)) for at in positions])

    def state(self, run: int) -> str:
        return self.do(store.flow_run, run).state.value

    def steps(self, run: int) -> dict[str, store.StepProgress]:
        return {it.name: it for it in self.do(store.flow_progress, run)}

    def ask(self, query: str, *given: object) -> list[Any]:
        def answered(connection: Connection) -> list[Any]:
            return connection.execute(query.encode(), given).fetchall()

        return self.do(answered)

    def generating(self, value: str = "5") -> tuple[int, Claim]:
        """A run of `numbers` and its generator, claimed."""
        run = self.begin(numbers, value)
        (generator,) = self.claim(GENERATOR)
        return run, generator


@pytest.fixture
def hand(database: Database, url: str) -> Hand:
    """Tests also check that no task ever moves as it may not."""
    with psycopg.connect(url) as connection:
        connection.execute(
            "CREATE TRIGGER flow_task_moves BEFORE UPDATE OF state ON tidegate.flow_task"
            " FOR EACH ROW WHEN (OLD.state <> NEW.state)"
            " EXECUTE FUNCTION tidegate.flow_check_move('task')"
        )
    return Hand(database)


@pytest.fixture
def notifications(database: Database) -> Iterator[Notifications]:
    with Notifications(database) as found:
        assert found.wait_listening(30)
        yield found


@dataclass
class Works:
    """A worker in this process, and what tests ask about its flows."""

    database: Database
    notifications: Notifications
    worker: FlowWorker

    def finish(self, flow: Flow, value: object = None) -> FlowRun:
        """Begin a run and wait until it is completed."""
        run = start_flow(self.database, flow, value)
        run.wait(60, self.notifications)
        return run

    def give(self, flow: Flow, value: object, step: str) -> Any:
        """What a step of a new run gives."""
        return self.finish(flow, value).result(step)


@pytest.fixture
def work(
    hand: Hand, database: Database, notifications: Notifications
) -> Iterator[Callable[..., Works]]:
    """Starts workers, and closes them when the test is over."""
    with ExitStack() as open_workers:

        def start(
            *flows: Flow, threads: int = 4, seconds: float = 6.0, look_every: float = 0.25
        ) -> Works:
            worker = FlowWorker(
                database, flows, notifications, threads, seconds, look_every=look_every
            )
            open_workers.enter_context(worker)
            return Works(database, notifications, worker)

        yield start
