"""Cuts of a run that goes on: all sinks at one point, whatever comes behind it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.integration.runtime.jobs import Jobs
from tests.integration.runtime.shop import BOUND, Client, Row, ask, files_of, rows, shop
from tests.waiting import wait_until
from tidegate.checkpoint import Checkpoints, CheckpointState
from tidegate.errors import (
    CheckpointAborted,
    CheckpointDamaged,
    CheckpointUnderWay,
    NothingToCheckpoint,
    UnknownCheckpoint,
)
from tidegate.runtime.checkpoints.client import CheckpointResults
from tidegate.runtime.deployment import Deployment
from tidegate.runtime.file_storage import FileStorage
from tidegate.runtime.monitor.sweeper import sweep
from tidegate.runtime.service import PipelineService, serve
from tidegate.runtime.task import stage_state
from tidegate.spark import Session
from tidegate.store.checkpoints import checkpoints as checkpoint_store
from tidegate.store.runs import retention

RICE_AND_TEA = ((1, "tea"), (2, "rice"))


def shown(spark: Session, place: Deployment, checkpoint: CheckpointResults) -> dict[str, list[Row]]:
    return {sink: sorted(rows(spark, place, its)) for sink, its in checkpoint.results.items()}


def take(service: PipelineService, client: Client) -> CheckpointResults:
    number = service.server.checkpoints.begin(client.run)
    return service.server.checkpoints.wait(client.run, number, BOUND)


def test_every_cut_shows_all_sinks_at_one_point(
    common: PipelineService, common_place: Deployment, spark: Session, tmp_path: Path
) -> None:
    client = Client(common.server, "dripping", tmp_path)
    client.items(1, *RICE_AND_TEA)
    client.sales(1, (1, 7), (2, 200))
    first = take(common, client)
    client.sales(2, (1, 300))
    second = take(common, client)
    client.sales(3, (2, 400))
    client.end()
    final = client.wait()

    assert shown(spark, common_place, first) == {"best": [("rice", 200_000)], "bulk": [(2, 200)]}
    assert shown(spark, common_place, second) == {
        "best": [("tea", 307_000)],
        "bulk": [(1, 300), (2, 200)],
    }
    assert sorted(rows(spark, common_place, final["bulk"])) == [(1, 300), (2, 200), (2, 400)]
    assert rows(spark, common_place, final["best"]) == [("rice", 600_000)]
    again = common.server.checkpoints.read(client.run, first.number)
    assert shown(spark, common_place, again) == shown(spark, common_place, first)


def test_a_run_that_is_restored_ends_with_what_it_would_have_ended_with(
    common: PipelineService, common_place: Deployment, spark: Session, tmp_path: Path
) -> None:
    client = Client(common.server, "restored", tmp_path)
    client.items(1, *RICE_AND_TEA)
    client.sales(1, (1, 7), (2, 200))
    first = take(common, client)
    client.sales(2, (1, 300))
    take(common, client)
    earlier = common.server.known(client.run)
    restored = common.server.restore(client.run, first.number)
    client.sales(3, (2, 400))
    third = take(common, client)
    client.end()
    final = client.wait()

    assert restored.incarnation == earlier.incarnation + 1
    assert third.number == 3
    assert shown(spark, common_place, third)["best"] == [("rice", 600_000)]
    assert sorted(rows(spark, common_place, final["bulk"])) == [(1, 300), (2, 200), (2, 400)]
    assert rows(spark, common_place, final["best"]) == [("rice", 600_000)]


def test_a_source_that_has_ended_counts_as_delivered_also_after_a_restore(
    common: PipelineService, common_place: Deployment, spark: Session, tmp_path: Path
) -> None:
    client = Client(common.server, "ended", tmp_path)
    client.items(1, *RICE_AND_TEA)
    common.server.end(client.run, "items")
    client.sales(1, (1, 7), (2, 200))
    first = take(common, client)
    client.sales(2, (1, 300))
    common.server.restore(client.run, first.number)
    second = take(common, client)
    client.end()
    final = client.wait()

    assert first.manifest["sources"]["items"] == {"chunks": 1, "ended": True}
    assert first.manifest["sources"]["sales"] == {"chunks": 1, "ended": False}
    assert shown(spark, common_place, first)["best"] == [("rice", 200_000)]
    assert shown(spark, common_place, second)["best"] == [("tea", 307_000)]
    assert rows(spark, common_place, final["best"]) == [("tea", 307_000)]


def test_a_run_without_open_sources_is_not_cut(common: PipelineService, tmp_path: Path) -> None:
    client = Client(common.server, "whole", tmp_path)
    client.sell()

    with pytest.raises(NothingToCheckpoint):
        common.server.checkpoints.begin(client.run)
    client.wait()


def test_a_cut_that_is_not_there_is_an_error_that_names_those_that_are(
    common: PipelineService, tmp_path: Path
) -> None:
    client = Client(common.server, "few", tmp_path)
    take(common, client)

    with pytest.raises(UnknownCheckpoint) as told:
        common.server.checkpoints.read(client.run, 9)
    assert (told.value.wanted, told.value.known) == ("published checkpoint 9", "1")
    common.server.cancel(client.run)


def test_a_run_is_cut_by_itself_and_only_the_last_cuts_are_kept(
    common: PipelineService, common_place: Deployment, spark: Session, tmp_path: Path
) -> None:
    client = Client(common.server, "periodic", tmp_path, Checkpoints(every=0.5, retained=2))
    client.items(1, *RICE_AND_TEA)
    client.sales(1, (1, 7))

    def numbers() -> list[int]:
        every = common.server.checkpoints.all(client.run)
        return [it.number for it in every if it.state is CheckpointState.COMMITTED]

    wait_until(lambda: max(numbers(), default=0) >= 4, BOUND)
    assert len(numbers()) <= 2
    latest = common.server.checkpoints.read(client.run)
    assert shown(spark, common_place, latest)["best"] == [("tea", 7000)]
    client.end()
    assert rows(spark, common_place, client.wait()["best"]) == [("tea", 7000)]


def test_a_cut_with_a_damaged_file_is_refused_and_an_intact_one_is_named(
    common: PipelineService, common_place: Deployment, tmp_path: Path
) -> None:
    client = Client(common.server, "damaged", tmp_path)
    client.items(1, *RICE_AND_TEA)
    client.sales(1, (1, 7))
    intact = take(common, client)
    client.sales(2, (2, 200))
    second = take(common, client)
    run = common.server.known(client.run)
    broken = next(file["path"] for it in second.manifest["added"] for file in it["files"])
    path = Path(common_place.root, broken)
    path.write_bytes(path.read_bytes()[:-1] + b"!")

    with pytest.raises(CheckpointDamaged) as told:
        common.server.restore(client.run)
    assert (told.value.files, told.value.intact) == (broken, f"checkpoint {intact.number}")
    assert common.server.known(client.run) == run, "nothing was changed"
    common.server.cancel(client.run)


@pytest.mark.parametrize("is_gone", [False, True])
def test_a_chunk_behind_a_cut_has_to_be_what_was_delivered(
    common: PipelineService, common_place: Deployment, tmp_path: Path, *, is_gone: bool
) -> None:
    """A later cut does not need it any more, and is named."""
    client = Client(common.server, f"damaged-chunk-{is_gone}", tmp_path)
    client.items(1, *RICE_AND_TEA)
    client.sales(1, (1, 7))
    first = take(common, client)
    client.sales(2, (2, 200))
    second = take(common, client)
    run = common.server.known(client.run)
    sql = b"SELECT files ->> 0 FROM tidegate.chunk WHERE run_id = %s AND source = %s AND number = 2"
    asked = (run.id, "sales")
    row = common_place.database.transact(lambda c: c.execute(sql, asked).fetchone())
    assert row is not None
    path = Path(common_place.root, row[0])
    content = path.read_bytes()
    path.unlink()
    if not is_gone:
        path.write_bytes(content[:-1] + b"!")

    with pytest.raises(CheckpointDamaged) as told:
        common.server.restore(client.run, first.number)
    assert (told.value.files, told.value.intact) == (row[0], f"checkpoint {second.number}")
    assert common.server.known(client.run) == run, "nothing was changed"
    common.server.cancel(client.run)


def test_a_state_survives_whoever_had_it(place: Deployment, spark: Session, tmp_path: Path) -> None:
    with serve(place, shop(), spark) as service:
        client = Client(service.server, "march", tmp_path)
        client.items(1, *RICE_AND_TEA)
        client.sales(1, (1, 7), (2, 200))
        take(service, client)
    sweep(place.database, FileStorage(place.root))
    with serve(place, shop(), spark) as service:
        client.server = service.server
        client.sales(2, (1, 300))
        second = take(service, client)
        client.end()
        final = client.wait()
        assert shown(spark, place, second) == {
            "best": [("tea", 307_000)],
            "bulk": [(1, 300), (2, 200)],
        }
        assert rows(spark, place, final["best"]) == [("tea", 307_000)]
    sweep(place.database, FileStorage(place.root))
    assert shown(spark, place, second)["best"] == [("tea", 307_000)], "a cut can still be read"
    assert len(files_of(place, client.id)) > 0


def test_a_checkpoint_that_is_held_up_is_given_up_and_the_next_one_is_right(
    place: Deployment, spark: Session, tmp_path: Path, jobs: Jobs
) -> None:
    with serve(place, shop(), spark) as service:
        client = Client(service.server, "march", tmp_path, Checkpoints(acknowledgement=1.0))
        run = service.server.known(client.run)
        client.items(1, *RICE_AND_TEA)
        jobs.goes_on.clear()
        client.sales(1, (1, 7), (2, 200))
        number = service.server.checkpoints.begin(client.run)
        with pytest.raises(CheckpointUnderWay):
            service.server.checkpoints.begin(client.run)
        with pytest.raises(CheckpointAborted) as told:
            service.server.checkpoints.wait(client.run, number, BOUND)
        assert "within 1 s" in told.value.reason
        assert set(told.value.offender.split(", ")) <= {"s1/0", "s5/0"}, "who has a job at work"
        place.database.transact(lambda c: checkpoint_store.set_checkpoints(c, run, Checkpoints()))
        jobs.goes_on.set()
        client.sales(2, (1, 300))
        second = take(service, client)
        client.end()
        final = client.wait()

    assert second.number == number + 1
    assert shown(spark, place, second) == {
        "best": [("tea", 307_000)],
        "bulk": [(1, 300), (2, 200)],
    }
    assert rows(spark, place, final["best"]) == [("tea", 307_000)]


def test_a_state_of_many_batches_becomes_one_and_earlier_cuts_stay_as_they_were(
    place: Deployment, spark: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage_state, "MANY", 3)

    def parts() -> list[Row]:
        return ask(
            place.database,
            "SELECT removed IS NULL, count(*) FROM tidegate.task_state WHERE task LIKE 's2%%'"
            " GROUP BY 1 ORDER BY 1",
        )

    with serve(place, shop(), spark) as service:
        client = Client(service.server, "march", tmp_path, Checkpoints(retained=99))
        client.items(1, *RICE_AND_TEA)
        client.sales(1, (1, 7))
        first = take(service, client)
        sold = 1
        while len(parts()) < 2:
            sold += 1
            assert sold < 20, "many batches stay many"
            client.sales(sold, (1, 1), (2, 1))
            take(service, client)
        assert int(str(parts()[0][1])) >= 3
        client.sales(sold + 1, (2, 400))
        last = take(service, client)
        assert shown(spark, place, last)["best"] == [("rice", (sold - 1 + 400) * 1000)]
        service.server.restore(client.run, first.number)
        again = take(service, client)
        assert shown(spark, place, again) == shown(spark, place, last)
        client.end()
        assert rows(spark, place, client.wait()["best"]) == [("rice", (sold - 1 + 400) * 1000)]


def test_quiet_cuts_keep_states_and_only_those_in_between_are_shown(
    common: PipelineService, common_place: Deployment, spark: Session, tmp_path: Path
) -> None:
    client = Client(common.server, "unpublished", tmp_path, Checkpoints(every=0.5, publish=3600.0))
    client.items(1, *RICE_AND_TEA)
    client.sales(1, (1, 7), (2, 200))

    def unpublished() -> list[int]:
        return [it.number for it in common.server.checkpoints.all(client.run)
                if it.state is CheckpointState.COMMITTED]  # fmt: skip

    wait_until(lambda: max(unpublished(), default=0) >= 2, BOUND)
    with pytest.raises(UnknownCheckpoint):
        common.server.checkpoints.read(client.run)
    common.server.restore(client.run)
    client.end()
    final = client.wait()
    assert rows(spark, common_place, final["best"]) == [("rice", 200_000)]
    assert rows(spark, common_place, final["bulk"]) == [(2, 200)]


def test_what_has_not_changed_is_not_computed_again(
    place: Deployment, spark: Session, tmp_path: Path, jobs: Jobs
) -> None:
    with serve(place, shop(), spark) as service:
        client = Client(service.server, "march", tmp_path)
        client.items(1, *RICE_AND_TEA)
        client.sales(1, (1, 7), (2, 200))
        first = take(service, client)
        done = jobs.tried
        second = take(service, client)
        assert jobs.tried == done
        assert shown(spark, place, second) == shown(spark, place, first)
        client.sales(2, (1, 300))
        third = take(service, client)
        assert jobs.tried > done
        assert shown(spark, place, third)["best"] == [("tea", 307_000)]
        client.end()
        assert rows(spark, place, client.wait()["best"]) == [("tea", 307_000)]


def test_a_run_that_is_cut_again_and_again_does_not_grow_by_it(
    place: Deployment, spark: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage_state, "MANY", 3)
    monkeypatch.setattr(retention.prune, "__defaults__", (0.0,))
    monkeypatch.setattr(retention.unused_files, "__defaults__", (10_000, 0.0))
    storage = FileStorage(place.root)
    with serve(place, shop(), spark) as service:
        client = Client(service.server, "march", tmp_path, Checkpoints(retained=1))
        client.items(1, *RICE_AND_TEA)
        there = []
        for number in range(1, 13):
            client.sales(number, (1, 1), (2, 200))
            take(service, client)
            sweep(place.database, storage)
            there.append(len(files_of(place, client.id)))
        latest = service.server.checkpoints.read(client.run)
        assert shown(spark, place, latest)["best"] == [("rice", 12 * 200_000)]
        for_good = 8
        """Files that the sink `bulk` got since the fourth cut."""
        assert max(there[8:]) <= max(there[:4]) + for_good + 3
        service.server.restore(client.run)
        client.end()
        final = client.wait()
        assert rows(spark, place, final["best"]) == [("rice", 12 * 200_000)]
        assert len(rows(spark, place, final["bulk"])) == 12


def test_whoever_waits_for_a_run_goes_on_waiting_when_it_is_restored(
    common: PipelineService, common_place: Deployment, spark: Session, tmp_path: Path
) -> None:
    client = Client(common.server, "awaited", tmp_path, deadline=600.0)
    client.items(1, *RICE_AND_TEA)
    client.sales(1, (1, 7))
    take(common, client)
    with ThreadPoolExecutor(1) as waiting:
        results = waiting.submit(client.wait)
        restored = common.server.restore(client.run)
        client.sales(2, (1, 1))
        client.end()
        assert rows(spark, common_place, results.result(BOUND)["best"]) == [("tea", 8000)]
    (row,) = ask(
        common_place.database,
        "SELECT count(DISTINCT deadline_at), count(deadline_at) FROM tidegate.run"
        " WHERE id IN (%s, %s)",
        client.id,
        restored.id,
    )
    assert row == (1, 2), "its deadline is what it was"
