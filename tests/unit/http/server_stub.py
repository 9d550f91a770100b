"""A served shop without Spark or PostgreSQL, whose deliveries do what a test wants."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.client import HTTPConnection
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from pyspark.sql.types import StructType

from tidegate.http import HttpAddress, HttpLimits, Tokens, serve_http
from tidegate.http.auth.tokens import digest_of
from tidegate.runtime.deployment import Deployment
from tidegate.runtime.service import PipelineFrontend
from tidegate.settings import Settings
from tidegate.store import Database, RunInfo, RunState

CLIENTS = ("ann", "ben")
TOKENS = Tokens(tuple((it, digest_of(it)) for it in CLIENTS))
"""A client's token is its name."""


@dataclass
class StubServer:
    """Knows every run; delivering calls `on_chunk` with the run's name and the file."""

    on_chunk: Callable[[str, Path], None] = lambda run, file: None

    def known(self, run: str) -> RunInfo:
        return RunInfo(1, "shop", run, 1, RunState.OPEN)

    def deliver(self, run: str, source: str, number: int, file: str) -> bool:
        self.on_chunk(run, Path(file))
        return True


@dataclass
class StubDatabase:
    """Answers every transaction with what it was given."""

    answer: Any = 0
    asked: list[object] = field(default_factory=list)

    def transact(self, work: object, bound: float | None = None) -> Any:
        self.asked.append(work)
        return self.answer() if callable(self.answer) else self.answer

    def check(self, bound: float) -> None:
        """It is there."""


def front(server: object = None, check: Callable[[], None] = lambda: None) -> PipelineFrontend:
    """A service with one source, `sales`, and no sink."""
    task_graph = SimpleNamespace(name="shop", sources={"sales": [["scan/0"]]})
    checked = SimpleNamespace(stages={})
    served = SimpleNamespace(
        server=server or StubServer(),
        task_graph=task_graph,
        checked=checked,
        check=check,
        schema_of=lambda sink: StructType(),
    )
    return cast("PipelineFrontend", served)


def place_in(root: Path, database: object = None, **settings: float) -> Deployment:
    wanted = replace(Settings(), **cast("dict[str, Any]", settings))
    return Deployment(cast("Database", database or StubDatabase()), str(root), wanted)


@contextmanager
def shop_at(
    root: Path, server: object = None, limits: HttpLimits | None = None, **settings: float
) -> Iterator[HttpAddress]:
    """The shop by HTTP, for clients with tokens."""
    place = place_in(root, **settings)
    with serve_http(front(server), place, "127.0.0.1:0", TOKENS, limits) as listening:
        yield listening


@dataclass(frozen=True)
class Answered:
    status: int
    body: bytes
    headers: dict[str, str]

    @property
    def condition(self) -> str:
        return str(json.loads(self.body)["condition"])


def ask(
    at: HttpAddress,
    method: str,
    path: str,
    body: bytes | None = None,
    client: str = "ann",
    timeout: float = 60.0,
) -> Answered:
    connection = HTTPConnection(at.host, at.port, timeout=timeout)
    try:
        connection.request(method, path, body, {"authorization": f"Bearer {client}"})
        answer = connection.getresponse()
        return Answered(answer.status, answer.read(), dict(answer.getheaders()))
    finally:
        connection.close()


def put_chunk(
    at: HttpAddress,
    client: str,
    body: bytes = b"a,b\n1,2\n",
    number: int = 1,
    timeout: float = 60.0,
) -> Answered:
    path = f"/pipelines/shop/runs/march/sources/sales/chunks/{number}?format=csv"
    return ask(at, "PUT", path, body, client, timeout)
