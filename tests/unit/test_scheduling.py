"""Tests are distributed by file, longest first; crash tests one by one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import scheduling
from tests.scheduling import DurationRecorder, recorded, unit_of, weight_of


@pytest.fixture(autouse=True)
def durations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "durations.txt"
    monkeypatch.setattr(scheduling, "DURATIONS", file)
    return file


def report(nodeid: str, duration: float) -> pytest.TestReport:
    return pytest.TestReport(nodeid, ("", 0, ""), {}, "passed", None, "call", duration=duration)


def test_tests_of_a_file_stay_together_and_crash_tests_do_not() -> None:
    assert unit_of("tests/unit/test_faults.py::test_a[1::2]") == "tests/unit/test_faults.py"
    crash = "tests/crash/test_flows.py::test_a_worker[x]"
    assert unit_of(crash) == crash


def test_a_unit_without_a_record_counts_by_its_folder() -> None:
    assert weight_of("tests/unit/test_x.py", {}) < weight_of("tests/integration/test_x.py", {})
    assert weight_of("tests/unit/test_x.py", {"tests/unit/test_x.py": 9.0}) == 9.0


def test_what_ran_is_recorded_longest_first_and_what_did_not_run_stays(durations: Path) -> None:
    ran, other = "tests/unit/test_faults.py", "tests/unit/test_settings.py"
    durations.write_text(f"8 {ran}\n5 {other}\n4 tests/unit/test_that_was_removed.py\n")
    recorder = DurationRecorder()
    recorder.pytest_runtest_logreport(report(f"{ran}::test_a", 2.0))
    recorder.pytest_runtest_logreport(report(f"{ran}::test_b", 1.4))
    recorder.pytest_sessionfinish()
    assert recorded() == {other: 5.0, ran: 3.0}
    assert list(recorded()) == [other, ran]
