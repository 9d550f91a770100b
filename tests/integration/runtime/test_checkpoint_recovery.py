"""A run that was given up is not lost: what its cuts need stays, whoever sweeps."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.runtime.shop import BOUND, Client, files_of, rows
from tidegate.runtime.deployment import Deployment
from tidegate.runtime.file_storage import FileStorage
from tidegate.runtime.monitor.sweeper import sweep
from tidegate.runtime.service import PipelineService
from tidegate.spark import Session
from tidegate.store import RunState, close_run, remove_closed_runs


@pytest.mark.parametrize("how", [RunState.CANCELLED, RunState.FAILED])
def test_a_run_that_was_given_up_goes_on_at_its_cut_after_everything_was_swept(
    how: RunState, common: PipelineService, common_place: Deployment, spark: Session, tmp_path: Path
) -> None:
    server, database = common.server, common_place.database
    client = Client(server, f"run-{how.value}", tmp_path)
    client.items(1, (1, "tea"), (2, "rice"))
    client.sales(1, (1, 7), (2, 200))
    number = server.checkpoints.begin(client.run)
    server.checkpoints.wait(client.run, number, BOUND)
    client.sales(2, (1, 300))
    earlier = server.known(client.run)
    database.transact(lambda c: close_run(c, earlier, how, "somebody has enough of it"))
    sweep(database, FileStorage(common_place.root))
    assert files_of(common_place, earlier.id)

    server.restore(client.run)
    while database.transact(lambda c: remove_closed_runs(c, 0)):
        pass
    sweep(database, FileStorage(common_place.root))
    client.sales(3, (2, 400))
    client.end()
    final = client.wait()
    assert rows(spark, common_place, final["best"]) == [("rice", 600_000)]
    assert sorted(rows(spark, common_place, final["bulk"])) == [(1, 300), (2, 200), (2, 400)]
