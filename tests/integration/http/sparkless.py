"""The shop by HTTP without Spark: CSV is checked and recorded, and nothing works on it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import cast

from tests.integration.http.conftest import TOKENS
from tests.integration.runtime.shop import shop
from tidegate.http import Listening, serving_http
from tidegate.plan import physical_plan
from tidegate.runtime.deployment import Deployment
from tidegate.runtime.ingestion.run_service import Server
from tidegate.runtime.service import Front
from tidegate.runtime.task_graph import assemble
from tidegate.spark import Session
from tidegate.store import Wakeups


def _no_spark() -> Session:
    raise AssertionError("nothing here needs Spark")


@contextmanager
def shop_without_spark(place: Deployment) -> Iterator[Listening]:
    assembly = assemble(physical_plan(shop()))
    with Wakeups(place.database) as wakeups:
        server = Server(place, shop(), assembly, _no_spark, wakeups)
        front = SimpleNamespace(
            server=server,
            assembly=assembly,
            checked=SimpleNamespace(stages={}),
            check=lambda: None,
        )
        with serving_http(cast("Front", front), place, "127.0.0.1:0", TOKENS) as listening:
            yield listening
