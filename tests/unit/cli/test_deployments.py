"""Which run a user means by a name."""

from __future__ import annotations

import pytest

from tidegate.cli.arguments.deployments import select_run
from tidegate.errors import AmbiguousRun, UnknownRun
from tidegate.store import RunInfo, RunState


def run(id: int, name: str) -> RunInfo:
    return RunInfo(id, "coffee", name, 1, RunState.OPEN)


RUNS = [run(4, "ann/march"), run(3, "local/march"), run(2, "local/april"), run(1, "local/april")]


def test_the_latest_of_a_name_is_meant() -> None:
    assert select_run("local/april", RUNS).id == 2


def test_a_number_means_one_run_of_several_that_had_the_name() -> None:
    assert select_run("local/april#1", RUNS).id == 1


def test_the_client_is_optional_if_only_one_has_the_name() -> None:
    assert select_run("april", RUNS).id == 2


def test_the_client_is_required_if_several_have_the_name() -> None:
    with pytest.raises(AmbiguousRun) as told:
        select_run("march", RUNS)
    assert told.value.known == "ann/march, local/march"


def test_a_run_that_was_begun_without_a_server_comes_first() -> None:
    assert select_run("march", [*RUNS, run(0, "march")]).id == 0


def test_an_unknown_name_is_an_error() -> None:
    with pytest.raises(UnknownRun):
        select_run("may", RUNS)
