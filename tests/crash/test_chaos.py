"""The quick part of the crash kit; `make chaos` does all of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.conftest import temporary_folder
from tidegate.errors import ChaosFailed
from tidegate.store import (
    Connection,
    Lease,
    SinkPublication,
    StepCommit,
    acquire,
    begin_run,
    commit_step,
    open_database,
)
from tidegate.testing import (
    QUICK_POINTS,
    ChaosCluster,
    Client,
    Subject,
    cluster_trials,
    compare,
    generate_data,
    run_trials,
)
from tidegate.testing.cluster_chaos import FAULTS


@pytest.fixture
def folder() -> Iterator[Path]:
    with temporary_folder() as folder:
        yield folder


@pytest.mark.timeout(1500)
@pytest.mark.parametrize(
    ("points", "random_kills", "database_losses"),
    [(QUICK_POINTS[:2], 0, 0), (QUICK_POINTS[2:], 1, 1)],
    ids=["crash points of a step", "crash points of a run, a random kill, PostgreSQL"],
)
def test_coffee_gives_the_same_results_whatever_is_killed(
    points: tuple[str, ...], random_kills: int, database_losses: int, folder: Path
) -> None:
    """In two parts, which may run at the same time."""
    data = generate_data("coffee", folder / "data", seed=3)
    subject = Subject("coffee", data, folder)
    trials = list(run_trials(subject, 3, points, random_kills, database_losses))
    assert len(trials) == 1 + len(points) + random_kills + database_losses
    killed = [trial.fault for trial in trials if trial.kills]
    assert [fault for fault in killed if fault.startswith("crash at")] == [
        trial.fault for trial in trials if trial.fault.startswith("crash at")
    ]


@pytest.mark.timeout(1500)
def test_coffee_gives_the_same_results_whichever_process_is_killed_or_frozen(folder: Path) -> None:
    clients = [Client("client-1", generate_data("coffee", folder / "data", seed=3))]
    trials = list(cluster_trials(ChaosCluster("coffee", folder), clients, seed=3))

    hit = [fault for trial in trials[1:] for fault in trial.fault.split(", ")]
    assert sorted(set(hit) - {"none"}) == sorted(FAULTS)


def test_a_result_that_differs_by_one_byte_is_reported(folder: Path) -> None:
    (folder / "out").mkdir()
    (folder / "out" / "q1.csv").write_bytes(b"1\n")
    with pytest.raises(ChaosFailed) as raised:
        compare("a fault", {"q1": b"2\n"}, folder)
    assert "q1" in raised.value.reason


def lease_of_the_end(connection: Connection) -> Lease:
    lease = acquire(connection, "task", "sales/collect", "ann", 3600)
    assert lease is not None
    return lease


def publish(connection: Connection, lease: Lease) -> None:
    """Begin another incarnation of the run, and end it with a result of one sink."""
    run = begin_run(connection, "sales", "chaos", [])
    results = (SinkPublication(run.id, "q1", [], 0),)
    commit_step(connection, StepCommit(lease, published=results, ended_runs=(run.id,)))


def test_results_must_have_been_published_once_over_all_incarnations(folder: Path) -> None:
    (folder / "out").mkdir()
    (folder / "out" / "q1.csv").write_bytes(b"1\n")
    expected = {"q1": b"1\n"}
    with open_database(None, folder / "deployment") as database:
        with pytest.raises(ChaosFailed) as never:
            compare("a fault", expected, folder)
        lease = database.transact(lease_of_the_end)
        database.transact(lambda connection: publish(connection, lease))
        compare("a fault", expected, folder)
        database.transact(lambda connection: publish(connection, lease))
        with pytest.raises(ChaosFailed) as twice:
            compare("a fault", expected, folder)
    assert never.value.reason == "nothing was published"
    assert "q1 was published 2 times" in twice.value.reason
