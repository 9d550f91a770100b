"""Files that abort a process, or stand for far more than they hold, are refused by a server.

The server is this process, and there is no Spark: a chunk that needs it fails the test.
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.integration.runtime.shop import Client, shop
from tests.unit.spark import hostile_files as hostile
from tidegate.errors import (
    ChunkDecodesTooLarge,
    ChunkNeedsMemory,
    LineTooLong,
    RunError,
    UnreadableChunk,
    ValueTooLarge,
)
from tidegate.plan import physical_plan
from tidegate.runtime.deployment import Deployment
from tidegate.runtime.ingestion.run_service import RunService
from tidegate.runtime.task_graph import build_task_graph
from tidegate.settings import Settings
from tidegate.spark import CheckerPool, Session
from tidegate.store import Database, Notifications

MOST_GROWTH = 128 << 20
"""Bytes that refusing a chunk may add to the largest size of the server's process."""
LIMITS = Settings(chunk_memory_bytes=512 << 20, chunk_decoded_bytes=64 << 20)

Make = Callable[[Path], Path]


@pytest.fixture
def client(tmp_path: Path, database: Database) -> Iterator[Client]:
    place = Deployment(database, str(tmp_path / "data"), LIMITS)
    task_graph = build_task_graph(physical_plan(shop()))
    with Notifications(database) as notifications, CheckerPool(place.settings) as checkers:
        server = RunService(place, shop(), task_graph, no_spark, notifications, checkers)
        yield Client(server, "march", tmp_path)


def no_spark() -> Session:
    raise AssertionError("a hostile chunk was given to Spark")


def aborting(folder: Path) -> Path:
    return hostile.aborting_parquet(folder / "aborting.parquet")


def value(folder: Path) -> Path:
    return hostile.large_value(folder / "value.parquet", 100 << 20)


def dictionary(folder: Path) -> Path:
    return hostile.repeated_value(folder / "dictionary.parquet", 1 << 20, 5000)


def batch(folder: Path) -> Path:
    return hostile.compressed_batch(folder / "batch.arrow", 128 << 20)


def text(folder: Path) -> Path:
    return hostile.much_text(folder / "text.csv.bz2", 1000)


def line(folder: Path) -> Path:
    return hostile.long_line(folder / "line.csv.gz", 300 << 20)


@pytest.mark.parametrize(
    ("make", "refusals"),
    [
        (aborting, UnreadableChunk),
        (value, ValueTooLarge),
        (dictionary, ChunkDecodesTooLarge),
        (batch, (ChunkDecodesTooLarge, ChunkNeedsMemory)),
        (text, ChunkDecodesTooLarge),
        (line, LineTooLong),
    ],
)
def test_a_hostile_chunk_is_refused_and_the_server_goes_on(
    make: Make, refusals: type[RunError], client: Client, tmp_path: Path
) -> None:
    file = make(tmp_path)
    before = _largest()
    with pytest.raises(refusals):
        client.deliver("items", 1, file)
    assert _largest() - before < MOST_GROWTH
    assert [it for it in (tmp_path / "data").rglob("*") if it.is_file()] == []
    assert client.items(1, (1, "tea"))


def test_a_limit_may_be_raised(tmp_path: Path, database: Database) -> None:
    generous = replace(LIMITS, chunk_value_bytes=64 << 20, chunk_decoded_bytes=256 << 20)
    place = Deployment(database, str(tmp_path / "data"), generous)
    with Notifications(database) as notifications, CheckerPool(generous) as checkers:
        server = RunService(
            place,
            shop(),
            build_task_graph(physical_plan(shop())),
            no_spark,
            notifications,
            checkers,
        )
        client = Client(server, "march", tmp_path)
        assert client.deliver("items", 1, hostile.large_value(tmp_path / "1.parquet", 20 << 20))


def _largest() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
