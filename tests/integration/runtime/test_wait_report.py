"""A call that waits for a run says what the run waits for."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from tests.integration.runtime.shop import BOUND, shop
from tests.waiting import wait_until
from tidegate.errors import RunCancelled
from tidegate.runtime.deployment import Deployment
from tidegate.runtime.ingestion.run_service import RunService
from tidegate.runtime.task_graph import TaskGraph
from tidegate.settings import Settings
from tidegate.spark import Session
from tidegate.store import Notifications


def no_session() -> Session:
    raise AssertionError("no chunk is delivered")


def test_waiting_without_a_bound_logs_what_the_run_waits_for(
    place: Deployment, task_graph: TaskGraph, caplog: pytest.LogCaptureFixture
) -> None:
    talkative = replace(place, settings=Settings(wait_report_seconds=0.01))
    with Notifications(place.database) as notifications, ThreadPoolExecutor(1) as pool:
        server = RunService(talkative, shop(), task_graph, no_session, notifications)
        server.begin("march")
        waiting = pool.submit(server.wait, "march")
        try:
            wait_until(lambda: len(caplog.messages) > 0, BOUND)
        finally:
            server.cancel("march")
        with pytest.raises(RunCancelled):
            waiting.result(BOUND)
    first = caplog.messages[0]
    assert re.match(r"waited \d+ s for run 'march': waiting: source items is not", first)
