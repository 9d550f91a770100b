"""Distributes tests over xdist's processes: longest unit first, so that none ends late and alone.

A unit is a file, because its tests share services; tests in `SEPARATE` are units of their own.
`tests/durations.txt` has the seconds of each unit; `pytest --record-durations` writes it anew.
A unit that is not listed counts as `UNKNOWN`.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest
from xdist.scheduler import LoadScopeScheduling

ROOT = Path(__file__).parents[1]
DURATIONS = ROOT / "tests" / "durations.txt"
SEPARATE = ("tests/crash/",)
UNKNOWN = 5.0
UNKNOWN_SEPARATE = 60.0
"""A long test that was renamed must not begin last."""
RECORDED_FROM = 2.0
"""Seconds; shorter units are not listed."""
QUICK = ("src/", "tests/unit/", "tests/plans/")
"""Where a unit that is not listed takes no time worth mentioning."""
OPTION = "--record-durations"


def unit_of(nodeid: str) -> str:
    """The name under which a test is distributed."""
    path, _, test = nodeid.partition("::")
    return f"{path}::{test}" if path.startswith(SEPARATE) else path


def recorded() -> dict[str, float]:
    """Seconds by unit."""
    lines = DURATIONS.read_text().splitlines() if DURATIONS.exists() else []
    split = (line.split(maxsplit=1) for line in lines)
    return {unit: float(seconds) for seconds, unit in split}


def weight_of(unit: str, durations: dict[str, float]) -> float:
    """Seconds that a unit is expected to take."""
    if unit.startswith(QUICK):
        unknown = 0.0
    else:
        unknown = UNKNOWN_SEPARATE if unit.startswith(SEPARATE) else UNKNOWN
    return durations.get(unit, unknown)


def _file_of(unit: str) -> Path:
    return ROOT / unit.partition("::")[0]


class LongestFirst(LoadScopeScheduling):  # type: ignore[misc]  # published without types
    """Hands out units in the order of collection, which `sort_longest_first` has decided."""

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)


def sort_longest_first(items: list[pytest.Item]) -> None:
    """Stable, so that tests of a unit keep their order."""
    durations = recorded()
    items.sort(key=lambda item: -weight_of(unit_of(item.nodeid), durations))


class DurationRecorder:
    """Adds up what the tests of each unit take, and writes it down."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Called for set-up, call and teardown of each test, in the controlling process."""
        self.seconds[unit_of(report.nodeid)] += report.duration

    def pytest_sessionfinish(self) -> None:
        """Write units that take long, the longest first; those that did not run stay as they were.

        A file that is no longer there is no longer listed.
        """
        known = {unit: took for unit, took in recorded().items() if _file_of(unit).exists()}
        ran = {_file_of(unit) for unit in self.seconds}
        others = {unit: took for unit, took in known.items() if _file_of(unit) not in ran}
        every = sorted((others | self.seconds).items(), key=lambda entry: (-entry[1], entry[0]))
        lines = [f"{took:.0f} {unit}\n" for unit, took in every if took >= RECORDED_FROM]
        DURATIONS.write_text("".join(lines))
