"""A pipeline served durably: clients deliver, the monitor releases, results appear at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.runtime.shop import BOUND, Client, files_of, rows, shop
from tests.waiting import wait_until
from tidegate.errors import (
    ChunkConflict,
    RunCancelled,
    RunEnded,
    RunFailed,
    RunTimeout,
    SourceEnded,
    UnknownSource,
)
from tidegate.runtime.deployment import Deployment
from tidegate.runtime.file_storage import FileStorage
from tidegate.runtime.monitor.sweeper import sweep
from tidegate.runtime.service import PipelineService, serve
from tidegate.spark import Session
from tidegate.store import RunState


@pytest.fixture
def service(place: Deployment, spark: Session) -> Iterator[PipelineService]:
    with serve(place, shop(), spark) as service:
        yield service


def test_an_item_that_sells_in_several_shards_beats_one_that_sells_more_in_one(
    service: PipelineService, place: Deployment, spark: Session, tmp_path: Path
) -> None:
    client = Client(service.server, "march", tmp_path)
    client.sales(1, (1, 5), (2, 6))
    client.sales(2, (1, 5), (3, 200))
    client.items(1, (1, "tea"), (2, "coffee"), (3, "beans"))
    client.end()
    results = service.server.wait("march", BOUND)
    assert rows(spark, place, results["best"]) == [("beans", 200_000)]
    assert rows(spark, place, results["bulk"]) == [(3, 200)]


def test_many_clients_at_once_each_get_their_own_results(
    service: PipelineService, place: Deployment, spark: Session, tmp_path: Path
) -> None:
    clients = [Client(service.server, f"client {number}", tmp_path) for number in range(6)]
    for number, client in enumerate(clients):
        client.items(1, (1, f"tea of {number}"))
        for chunk in range(1, number + 1):
            client.sales(chunk, (1, chunk))
            assert not client.sales(chunk, (1, chunk))  # again
        client.end()
    for number, client in enumerate(clients):
        results = service.server.wait(client.run, BOUND)
        sold = 1000 * number * (number + 1) // 2
        expected = [(f"tea of {number}", sold)] if number else []
        assert rows(spark, place, results["best"]) == expected
        assert results["bulk"] == []


def test_a_side_table_may_come_last_and_chunks_in_any_order(
    service: PipelineService, place: Deployment, spark: Session, tmp_path: Path
) -> None:
    client = Client(service.server, "march", tmp_path)
    service.server.end("march", "sales", chunks=3)
    client.sales(3, (1, 3))
    client.sales(1, (1, 1))
    with pytest.raises(RunTimeout):
        service.server.wait("march", 1.0)
    client.sales(2, (1, 2))
    with pytest.raises(RunTimeout):
        service.server.wait("march", 1.0)
    client.items(1, (1, "tea"))
    service.server.end("march", "items")
    assert rows(spark, place, service.server.wait("march", BOUND)["best"]) == [("tea", 6000)]


def test_what_cannot_be_taken_is_refused_and_says_why(
    service: PipelineService, tmp_path: Path
) -> None:
    client = Client(service.server, "march", tmp_path)
    client.sales(1, (1, 1))
    with pytest.raises(ChunkConflict):
        client.sales(1, (1, 2))
    with pytest.raises(UnknownSource):
        service.server.deliver("march", "sails", 1, str(tmp_path / "march" / "sales-1.csv"))
    service.server.end("march", "sales", chunks=1)
    with pytest.raises(SourceEnded):
        client.sales(2, (1, 2))
    assert service.server.cancel("march")
    assert not service.server.cancel("march")
    with pytest.raises(RunEnded):
        client.sales(1, (1, 1))
    with pytest.raises(RunCancelled):
        service.server.wait("march", BOUND)


def test_only_the_guilty_run_fails_with_sparks_own_cause(
    service: PipelineService, place: Deployment, spark: Session, tmp_path: Path
) -> None:
    clients = {name: Client(service.server, name, tmp_path) for name in ("good", "bad", "better")}
    for name, client in clients.items():
        client.items(1, (1, "tea"))
        client.sales(1, (1, 2_000_000_000 if name == "bad" else 7))
        client.end()
    with pytest.raises(RunFailed) as failed:
        service.server.wait("bad", BOUND)
    assert "OVERFLOW" in failed.value.cause.upper()
    for name in ("good", "better"):
        results = service.server.wait(name, BOUND)
        assert rows(spark, place, results["best"]) == [("tea", 7000)]


def test_a_cancelled_run_leaves_nothing_and_its_name_can_be_used_again(
    service: PipelineService, place: Deployment, spark: Session, tmp_path: Path
) -> None:
    client = Client(service.server, "march", tmp_path)
    client.sales(1, (1, 1))
    first = service.server.known("march")
    wait_until(lambda: files_of(place, first.id) != [])
    service.server.cancel("march")
    wait_until(lambda: _swept(place, first.id))
    again = Client(service.server, "march", tmp_path / "again")
    again.sales(1, (2, 2))
    again.items(1, (2, "milk"))
    again.end()
    results = service.server.wait("march", BOUND)
    assert rows(spark, place, results["best"]) == [("milk", 2000)]
    assert service.server.known("march").state is RunState.ENDED


def test_of_a_complete_run_only_results_stay(
    service: PipelineService, place: Deployment, spark: Session, tmp_path: Path
) -> None:
    client = Client(service.server, "march", tmp_path)
    client.sales(1, (1, 1))
    client.items(1, (1, "tea"))
    client.end()
    results = service.server.wait("march", BOUND)
    named = {file for batches in results.values() for batch in batches for file in batch.files}
    run = service.server.known("march").id
    sweep(place.database, FileStorage(place.root))
    wait_until(lambda: set(files_of(place, run)) == named)
    assert rows(spark, place, service.server.results("march")["best"]) == [("tea", 1000)]


def _swept(place: Deployment, run: int) -> bool:
    sweep(place.database, FileStorage(place.root))
    return files_of(place, run) == []
