"""Who waits for a run hears what became of it, also when its name is in use again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tidegate.dataflow import Batch
from tidegate.errors import RunCancelled, RunTimeout
from tidegate.runtime.deployment import Deployment
from tidegate.runtime.ingestion.run_service import RunService
from tidegate.store import Notifications, SinkPublication, StepCommit, acquire, commit_step

MARCH = Batch(("batches/march.parquet",), 3, 10)


def meanwhile(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]) -> None:
    """Let something happen when a client has begun to wait and has not looked yet."""
    subscribe = Notifications.subscribe

    def late(self: Notifications, topic: str, wake: Callable[[], None]) -> Callable[[], None]:
        happens()
        return subscribe(self, topic, wake)

    monkeypatch.setattr(Notifications, "subscribe", late)


def test_results_come_although_the_name_was_begun_again(
    place: Deployment, counter: RunService, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = counter.begin("march")
    lease = place.database.transact(lambda c: acquire(c, "task", "shop/collect", "ann", 3600))
    assert lease is not None
    results = (SinkPublication(run.id, "best", [MARCH], MARCH.rows),)
    step = StepCommit(lease, published=results, ended_runs=(run.id,))

    def end_and_begin_again() -> None:
        place.database.transact(lambda c: commit_step(c, step))
        counter.begin("march")

    meanwhile(monkeypatch, end_and_begin_again)
    assert counter.wait("march", 10) == {"best": [MARCH]}


def test_a_cancelled_run_is_reported_although_its_name_is_reused(
    counter: RunService, monkeypatch: pytest.MonkeyPatch
) -> None:
    counter.begin("march")
    meanwhile(monkeypatch, lambda: counter.cancel("march") and counter.begin("march"))
    with pytest.raises(RunCancelled):
        counter.wait("march", 10)


def test_a_later_wait_is_for_the_run_that_has_the_name_then(
    counter: RunService,
) -> None:
    counter.begin("march")
    counter.cancel("march")
    counter.begin("march")
    with pytest.raises(RunTimeout):
        counter.wait("march", 0.01)
