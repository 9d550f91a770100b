"""A worker whose tasks cannot live says so instead of trying for ever."""

from __future__ import annotations

import pytest

from tests.integration.run.shop import shop
from tests.waiting import wait_until
from tidegate.errors import WorkerGaveUp
from tidegate.run import worker as workers
from tidegate.run.deployment import Deployment
from tidegate.run.durable import DurableLanes
from tidegate.run.service import serving
from tidegate.spark import Session


def test_a_worker_whose_tasks_die_again_and_again_gives_up_and_says_why(
    place: Deployment, spark: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ConnectionError("Spark is gone")

    monkeypatch.setattr(workers, "REBUILD_PAUSE", 0.01)
    monkeypatch.setattr(DurableLanes, "read", broken)
    with serving(place, shop(), spark) as service:
        wait_until(lambda: service.worker.error is not None)
        with pytest.raises(WorkerGaveUp) as told:
            service.check()
    assert "Spark is gone" in told.value.reason
