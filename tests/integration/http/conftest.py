"""The shop, served by HTTP, and clients that speak it by hand."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from tests.integration.runtime.shop import shop
from tidegate.http import HttpAddress, HttpLimits, Tokens, serve_http
from tidegate.http.auth.tokens import digest_of
from tidegate.runtime.deployment import Deployment
from tidegate.runtime.service import PipelineService, serve
from tidegate.spark import Session
from tidegate.store import Database, EmbeddedPostgres

ANN, BEN = "ann's secret", "ben's secret"
TOKENS = Tokens((("ann", digest_of(ANN)), ("ben", digest_of(BEN))))
MOST = 64 << 10


@dataclass(frozen=True)
class Answer:
    status: int
    body: bytes
    headers: dict[str, str]

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def refusal(self) -> tuple[int, str]:
        return self.status, self.json["condition"]


@dataclass(frozen=True)
class Asking:
    """A client of the shop that says by itself what it sends."""

    at: HttpAddress
    token: str | None = ANN

    def __call__(
        self, method: str, path: str, body: bytes | object = None, **headers: str
    ) -> Answer:
        connection = HTTPConnection(self.at.host, self.at.port, timeout=60)
        sent = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        given = {"authorization": f"Bearer {self.token}"} if self.token else {}
        try:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, sent, {**given, **named})
            answer = connection.getresponse()
            return Answer(answer.status, answer.read(), dict(answer.getheaders()))
        finally:
            connection.close()

    def run(self, name: str) -> RunAsking:
        begun = self("POST", "/pipelines/shop/runs", {"run": name})
        assert begun.status == 201, begun.body
        return RunAsking(self, name)


@dataclass(frozen=True)
class RunAsking:
    """What a client asks about one run."""

    asking: Asking
    name: str

    def get(self, path: str = "", **headers: str) -> Answer:
        return self.asking("GET", f"/pipelines/shop/runs/{self.name}{path}", **headers)

    def post(self, path: str, body: object = None) -> Answer:
        return self.asking("POST", f"/pipelines/shop/runs/{self.name}{path}", body)

    def put(self, source: str, number: int | str, body: bytes, form: str = "csv") -> Answer:
        path = f"/pipelines/shop/runs/{self.name}/sources/{source}/chunks/{number}?format={form}"
        return self.asking("PUT", path, body)

    def sell(self, name: str = "tea", quantity: int = 7) -> None:
        """A whole run that sells one thing."""
        assert self.put("items", 1, f'item_id,item_name\n1,"{name}"\n'.encode()).status == 201
        assert self.put("sales", 1, f"item_id,quantity\n1,{quantity}\n".encode()).status == 201
        for source in ("items", "sales"):
            assert self.post(f"/sources/{source}/end", {"chunks": 1}).status == 200


@pytest.fixture(scope="module")
def place(
    template: str,
    new_database: Callable[[str], str],
    server: EmbeddedPostgres,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Deployment]:
    """A deployment for all tests of a file; every test has runs of its own."""
    root = str(tmp_path_factory.mktemp("data"))
    with Database(new_database(template), revive=server.ensure_running).open() as database:
        yield Deployment(database, root)


@pytest.fixture(scope="module")
def service(place: Deployment, spark: Session) -> Iterator[PipelineService]:
    with serve(place, shop(), spark) as service:
        yield service


@pytest.fixture(scope="module")
def listening(service: PipelineService, place: Deployment) -> Iterator[HttpAddress]:
    with serve_http(service, place, "127.0.0.1:0", TOKENS, HttpLimits(MOST)) as listening:
        yield listening


@pytest.fixture
def ann(listening: HttpAddress) -> Asking:
    return Asking(listening, ANN)


@pytest.fixture
def ben(listening: HttpAddress) -> Asking:
    return Asking(listening, BEN)


def spooled(place: Deployment) -> list[Path]:
    """What is in the spool."""
    return [it for it in Path(place.root, "uploads").glob("*/**/*") if it.is_file()]
