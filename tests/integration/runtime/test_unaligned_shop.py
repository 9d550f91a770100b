"""Unaligned checkpoints of the shop on Spark, without workers and under load."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.runtime.shop import BOUND, Client, rows, shop
from tests.waiting import wait_until
from tidegate.checkpoint import Checkpoints, CheckpointState
from tidegate.errors import CheckpointDamaged
from tidegate.runtime.deployment import Deployment
from tidegate.runtime.file_storage import FileStorage
from tidegate.runtime.monitor.sweeper import sweep
from tidegate.runtime.service import PipelineService, serve, serve_frontend
from tidegate.spark import Session
from tidegate.store.checkpoints import checkpoints as checkpoint_store

SOON = Checkpoints(every=0.1, pause=0.1, unaligned_after=0.5, tolerated=0)
AT_ONCE = Checkpoints(every=0.1, pause=0.1, unaligned_after=0.0, retained=1000)


def test_a_checkpoint_of_a_run_without_workers_contains_all_messages_in_flight(
    place: Deployment, spark: Session, tmp_path: Path
) -> None:
    """It was to be aligned, and has waited long enough; its files are checked like all others."""
    with serve_frontend(place, shop(), spark) as front:
        client = Client(front.server, "march", tmp_path)
        client.items(1, (1, "tea"), (2, "rice"))
        client.sales(1, (1, 7), (2, 200))
        run = front.server.known("march")
        place.database.transact(lambda c: checkpoint_store.set_checkpoints(c, run, SOON))
        wait_until(lambda: bool(front.server.checkpoints.all("march")), BOUND)
        front.server.checkpoints.taken("march", 1, BOUND)
        (first, *_) = front.server.checkpoints.all("march")
        assert (first.is_aligned, first.is_published) == (False, False)
        assert first.seconds >= 0.5
        sweep(place.database, FileStorage(place.root))

        (chunk, *_) = [file for file in Path(place.root).rglob("*.parquet") if "sales" in str(file)]
        content = chunk.read_bytes()
        chunk.write_bytes(content[:-1] + b"?")
        with pytest.raises(CheckpointDamaged) as refused:
            front.server.restore("march", 1)
        assert chunk.name in refused.value.files
        chunk.write_bytes(content)
        front.server.restore("march", 1)
        client.sales(2, (1, 300))
    with serve(place, shop(), spark) as service:
        service.server.end("march")
        final = service.server.wait("march", BOUND)
    assert rows(spark, place, final["best"]) == [("tea", 307_000)]
    assert sorted(rows(spark, place, final["bulk"])) == [(1, 300), (2, 200)]


def test_a_run_with_unaligned_checkpoints_only_can_be_restored_to_any_of_them(
    common: PipelineService, common_place: Deployment, spark: Session, tmp_path: Path
) -> None:
    client = Client(common.server, "never-waiting", tmp_path, AT_ONCE)
    client.items(1, (1, "tea"), (2, "rice"))
    for number in range(1, 9):
        client.sales(number, (1, 101), (2, 100))

    def taken() -> list[int]:
        every = common.server.checkpoints.all(client.run)
        return [it.number for it in every if it.state is CheckpointState.COMMITTED]

    wait_until(lambda: len(taken()) >= 12, BOUND)
    numbers = taken()
    common.server.restore(client.run, numbers[len(numbers) // 2])
    client.sales(9, (1, 200))
    common.server.restore(client.run, numbers[1])
    client.end()
    final = client.wait()
    assert rows(spark, common_place, final["best"]) == [("tea", 1_008_000)]
    assert sorted(rows(spark, common_place, final["bulk"])) == [*[(1, 101)] * 8, (1, 200)]
