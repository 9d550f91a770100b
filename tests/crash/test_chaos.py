"""The quick part of the crash kit; `make chaos` does all of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.conftest import temporary_folder
from tidegate.errors import ChaosFailed
from tidegate.testing import QUICK, Subject, chaos, compare, generated


@pytest.fixture
def folder() -> Iterator[Path]:
    with temporary_folder() as folder:
        yield folder


@pytest.mark.timeout(1500)
def test_coffee_gives_the_same_results_whatever_is_killed(folder: Path) -> None:
    data = generated("coffee", folder / "data", seed=3)
    trials = list(chaos(Subject("coffee", data, folder), 3, QUICK, random_kills=1))
    assert len(trials) == 1 + len(QUICK) + 2
    died = [trial.fault for trial in trials if trial.deaths]
    assert [fault for fault in died if fault.startswith("crash at")] == [
        trial.fault for trial in trials if trial.fault.startswith("crash at")
    ]


def test_a_result_that_differs_by_one_byte_is_told(folder: Path) -> None:
    (folder / "out").mkdir()
    (folder / "out" / "q1.csv").write_bytes(b"1\n")
    with pytest.raises(ChaosFailed) as told:
        compare("a fault", {"q1": b"2\n"}, folder)
    assert "q1" in told.value.reason
