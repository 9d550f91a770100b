"""The shop by HTTP without Spark: CSV is checked and recorded, and nothing works on it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import cast

from tests.integration.http.conftest import TOKENS
from tests.integration.runtime.shop import shop
from tidegate.http import HttpAddress, serve_http
from tidegate.plan import physical_plan
from tidegate.runtime.deployment import Deployment
from tidegate.runtime.ingestion.run_service import RunService
from tidegate.runtime.service import PipelineFrontend
from tidegate.runtime.task_graph import build_task_graph
from tidegate.spark import Session
from tidegate.store import Notifications


def _no_spark() -> Session:
    raise AssertionError("nothing here needs Spark")


@contextmanager
def shop_without_spark(place: Deployment) -> Iterator[HttpAddress]:
    task_graph = build_task_graph(physical_plan(shop()))
    with Notifications(place.database) as notifications:
        server = RunService(place, shop(), task_graph, _no_spark, notifications)
        front = SimpleNamespace(
            server=server,
            task_graph=task_graph,
            checked=SimpleNamespace(stages={}),
            check=lambda: None,
        )
        with serve_http(cast("PipelineFrontend", front), place, "127.0.0.1:0", TOKENS) as listening:
            yield listening
