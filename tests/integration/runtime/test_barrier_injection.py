"""Sources that cannot inject: they keep no other from it, and are named."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial

import psycopg
import pytest

import tidegate as tg
from tests.integration.runtime.names import Bench
from tidegate.checkpoint import CheckpointState
from tidegate.dataflow import CheckpointBarrier
from tidegate.plan import physical_plan
from tidegate.runtime.ingestion.barrier_injection import MOST_FAILURES, BarrierInjection
from tidegate.store import ChannelName, Database, EmbeddedPostgres, Notifications, RunInfo
from tidegate.store.checkpoints import checkpoints as checkpoint_store

COLUMNS = "k bigint, v bigint"


@pytest.fixture
def bench(
    template: str, new_database: Callable[[str], str], server: EmbeddedPostgres
) -> Iterator[Bench]:
    declared = tg.Pipeline("injecting", shards=1)
    a, b = declared.source("a", COLUMNS), declared.source("b", COLUMNS)
    a.union(b).sink("all")
    with (
        Database(new_database(template), revive=server.ensure_running).open() as database,
        Notifications(database) as notifications,
    ):
        yield Bench(database, notifications, physical_plan(declared))


@pytest.fixture
def injection(bench: Bench) -> BarrierInjection:
    readers = bench.task_graph.sources

    def channels(source: str) -> list[ChannelName]:
        return [ChannelName("head", task) for tasks in readers[source] for task in tasks]

    return BarrierInjection(bench.database, bench.plan.pipeline, bench.notifications, channels)


def broken_for(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    inject = checkpoint_store.inject

    def refuse(
        connection: psycopg.Connection,
        run: RunInfo,
        source: str,
        barrier: CheckpointBarrier,
        channels: list[ChannelName],
        *,
        broken: str,
    ) -> bool:
        if source == broken:
            raise OSError("the disk is full")
        return inject(connection, run, source, barrier, channels)

    monkeypatch.setattr(checkpoint_store, "inject", partial(refuse, broken=source))


def test_one_that_cannot_inject_keeps_no_other_from_it_and_is_named(
    bench: Bench,
    injection: BarrierInjection,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    number = bench.trigger()
    assert number is not None
    broken_for("a", monkeypatch)
    with caplog.at_level(logging.WARNING):
        for _ in range(MOST_FAILURES - 1):
            injection.inject_due()
    assert "source 'a' could not inject" in caplog.text
    owing = bench.database.transact(
        lambda c: checkpoint_store.pending_barriers(c, bench.plan.pipeline)
    )
    assert [it.source for it in owing] == ["a"]
    injection.inject_due()
    (it,) = bench.checkpoints.all(bench.run.name)
    assert (it.state, it.offender) == (CheckpointState.ABORTED, "source a")
    assert it.reason == "the disk is full"


def test_one_that_can_again_is_not_blamed(
    bench: Bench, injection: BarrierInjection, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = bench.trigger()
    broken_for("b", monkeypatch)
    for _ in range(MOST_FAILURES - 1):
        injection.inject_due()
    monkeypatch.undo()
    injection.inject_due()
    bench.settle()
    assert bench.committed == [number]
