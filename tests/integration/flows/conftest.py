"""What tests of durable flows share: a flow driven by hand, as a worker or psql would."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeVar

import psycopg
import pytest

from tidegate.flows import Flow
from tidegate.flows.definition import Definition
from tidegate.store import Connection, Database, acquire
from tidegate.store import flow_tasks as tasks
from tidegate.store import flows as store
from tidegate.store.flow_tasks import FLOW_WORKER, Claim

T = TypeVar("T")
LEASE = 60.0


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
