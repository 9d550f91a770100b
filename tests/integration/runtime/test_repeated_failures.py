"""A service that cannot live says so instead of trying for ever."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.integration.runtime.shop import Client, shop
from tests.waiting import wait_until
from tidegate.errors import WorkerGaveUp
from tidegate.runtime import service as services
from tidegate.runtime.deployment import Deployment
from tidegate.runtime.jobs import processor_factory as factories
from tidegate.runtime.service import serve
from tidegate.runtime.task.task_loop import TaskLoop
from tidegate.settings import Settings
from tidegate.spark import Session

QUICK = Settings(task_restart_seconds=0.01)
SLOW_JOBS = replace(QUICK, task_stable_seconds=0.0)
"""As if every job took long to fail."""


def test_a_worker_whose_tasks_fail_repeatedly_gives_up_with_the_reason(
    place: Deployment, spark: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ConnectionError("Spark is gone")

    monkeypatch.setattr(TaskLoop, "fetch", broken)
    with serve(replace(place, settings=QUICK), shop(), spark) as service:
        wait_until(lambda: service.worker.error is not None)
        with pytest.raises(WorkerGaveUp) as raised:
            service.check()
    assert "Spark is gone" in raised.value.reason


def test_a_worker_whose_jobs_fail_outside_of_spark_gives_up_with_the_reason(
    place: Deployment, spark: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise OSError("the share is gone")

    monkeypatch.setattr(factories, "run_stage_job", broken)
    with serve(replace(place, settings=SLOW_JOBS), shop(), spark) as service:
        Client(service.server, "march", tmp_path).sell()
        wait_until(lambda: service.worker.error is not None)
        with pytest.raises(WorkerGaveUp) as raised:
            service.check()
    assert "the share is gone" in raised.value.reason


def test_a_service_whose_monitor_has_ended_fails_its_check(
    place: Deployment, spark: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def deadly(*_: object) -> str:
        raise SystemExit("out of my mind")

    monkeypatch.setattr(services, "why_not_done", deadly)
    with serve(place, shop(), spark) as service:
        service.check()
        Client(service.server, "march", tmp_path, deadline=0.1)
        wait_until(lambda: not service.monitor.is_alive)
        with pytest.raises(WorkerGaveUp) as raised:
            service.check()
    assert "its monitor failed" in raised.value.reason
    assert "out of my mind" in raised.value.reason
