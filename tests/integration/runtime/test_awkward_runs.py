"""Runs that are empty, lopsided, late or given up: each ends properly, and none hinders another."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from random import Random
from time import monotonic, sleep

import pyarrow as pa
import pyarrow.compute
import pytest
from pyarrow import parquet

from tests.integration.runtime.shop import BOUND, Client, Row, rows, shop
from tests.waiting import wait_until
from tidegate.dataflow import Batch
from tidegate.errors import RunEnded
from tidegate.runtime.deployment import Deployment
from tidegate.runtime.service import PipelineService, serve
from tidegate.spark import Session, write_csv
from tidegate.store import Database, RunState

Results = dict[str, list[Row]]


@pytest.fixture
def read(spark: Session, common_place: Deployment) -> Callable[[dict[str, list[Batch]]], Results]:
    return lambda found: {sink: rows(spark, common_place, its) for sink, its in found.items()}


Read = Callable[[dict[str, list[Batch]]], Results]


def test_a_source_without_chunks_is_an_empty_table(
    common: PipelineService, read: Read, tmp_path: Path
) -> None:
    client = Client(common.server, "no items", tmp_path)
    client.sales(1, (1, 500))
    common.server.end(client.run, "items", chunks=0)
    common.server.end(client.run, "sales", chunks=1)
    assert read(client.wait()) == {"best": [], "bulk": [(1, 500)]}


def test_a_run_of_nothing_at_all_is_published_too(
    common: PipelineService, read: Read, tmp_path: Path
) -> None:
    client = Client(common.server, "nothing", tmp_path)
    client.end()
    assert read(client.wait()) == {"best": [], "bulk": []}
    assert common.server.rows_in(client.run) == {"sales": 0, "items": 0}


def test_chunks_without_rows_and_rows_that_no_filter_lets_through_give_an_empty_result(
    common: PipelineService, read: Read, tmp_path: Path
) -> None:
    client = Client(common.server, "nothing left", tmp_path)
    client.sales(1)
    client.sales(2, (1, 1), (2, 1))
    client.items(1)
    client.items(2, (3, "not sold"))
    client.end()
    assert read(client.wait()) == {"best": [], "bulk": []}


def test_nulls_are_neither_lost_nor_sold(
    common: PipelineService, read: Read, tmp_path: Path
) -> None:
    client = Client(common.server, "nulls", tmp_path)
    client.deliver("sales", 1, client.file("sales", 1, "item_id,quantity", [",", "1,", ",200"]))
    client.items(1, (1, "tea"))
    client.end()
    assert read(client.wait()) == {"best": [], "bulk": [(None, 200)]}


# --- one client a thousand times as large as another -----------------------------------------

SMALL, HUGE_CHUNK, HUGE_CHUNKS = 5_000, 2_000_000, 20
MULTIPLE = 12
"""How much longer than alone a small run may take beside a huge one."""


def many_sales(file: Path, number: int) -> Path:
    items = pa.compute.bit_wise_and(pa.array(range(number)), 4095)
    quantities = pa.array([1] * number, pa.int32())
    parquet.write_table(pa.table({"item_id": items, "quantity": quantities}), file)
    return file


def sell_much(service: PipelineService, file: Path, name: str, chunks: int) -> Client:
    """A run of which everything is there, END included."""
    client = Client(service.server, name, file.parent)
    client.items(1, (0, "tea"))
    for number in range(1, chunks + 1):
        client.deliver("sales", number, file)
    client.end()
    return client


@pytest.mark.timeout(300)
def test_small_runs_behind_a_huge_one_take_a_small_multiple_of_their_own_time(
    common: PipelineService, read: Read, tmp_path: Path
) -> None:
    """Two of them, one after the other: the first could have come between two stages."""
    little = many_sales(tmp_path / "little.parquet", SMALL)
    much = many_sales(tmp_path / "much.parquet", HUGE_CHUNK)

    def run_small(name: str) -> float:
        started = monotonic()
        small = sell_much(common, little, name, chunks=1)
        assert read(small.wait())["best"] == [("tea", 2000)]
        return monotonic() - started

    run_small("the first")
    alone = max(run_small("alone"), run_small("alone again"))
    huge = sell_much(common, much, "huge", HUGE_CHUNKS)
    behind = run_small("behind")
    assert huge.server.known(huge.run).state is RunState.OPEN, "the huge run was complete first"
    behind = max(behind, run_small("behind as well"))
    assert behind < MULTIPLE * alone, f"{behind:.1f} s, and {alone:.1f} s when it was alone"
    assert read(huge.wait())["best"] == [("tea", HUGE_CHUNKS * 489 * 1000)]


# --- giving up -------------------------------------------------------------------------------


def sell_in_pieces(service: PipelineService, name: str, price: int, folder: Path) -> None:
    client = Client(service.server, name, folder)
    with suppress(RunEnded):  # cancelled under our hands
        client.items(1, (1, name))
        for number in range(1, 6):
            client.sales(number, (1, price))
        client.end()


def give_up(service: PipelineService, name: str, after: float) -> bool:
    """Whether it was given up before it was complete."""
    wait_until(lambda: service.server.find(name) is not None)
    sleep(after)
    return service.server.cancel(name)


@pytest.mark.parametrize("seed", [1, 2])
def test_runs_that_are_cancelled_at_any_moment_disturb_nobody_and_their_names_are_free(
    seed: int, common: PipelineService, read: Read, tmp_path: Path
) -> None:
    chance, server = Random(seed), common.server
    names = [f"{seed}: client {number}" for number in range(6)]
    given_up = names[::2]
    with ThreadPoolExecutor(9) as pool:
        sent = [pool.submit(sell_in_pieces, common, name, 1, tmp_path) for name in names]
        late = {it: pool.submit(give_up, common, it, chance.uniform(0, 2)) for it in given_up}
        for each in sent:
            each.result(BOUND)
    for name in given_up:
        is_cancelled = late[name].result(BOUND)
        assert server.known(name).state is (RunState.CANCELLED if is_cancelled else RunState.ENDED)
        sell_in_pieces(common, name, 2, tmp_path)
    for name in names:
        sold = 10_000 if name in given_up else 5_000
        assert read(server.wait(name, BOUND))["best"] == [(name, sold)]


def test_a_deployment_may_live_in_a_folder_of_any_name(
    database: Database, spark: Session, tmp_path: Path
) -> None:
    folder = tmp_path / "März [1] {a,b} 100%25 #"
    folder.mkdir()
    place = Deployment(database, str(folder))
    with serve(place, shop(), spark) as service:
        client = Client(service.server, "march", folder)
        client.sell()
        out = folder / "best.csv"
        batches = client.wait()["best"]
        write_csv(spark, place.root, batches, service.schema_of("best"), out)
        assert out.read_text() == "item_name,sold\ntea,7000\n"
