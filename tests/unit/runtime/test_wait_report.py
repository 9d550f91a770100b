"""A wait is reported every so many seconds, and not in between."""

from __future__ import annotations

from threading import Event

import pytest

from tidegate.errors import RunTimeout
from tidegate.runtime.ingestion.wait_report import WaitReport, wait_until_closed
from tidegate.store import RunInfo, RunState

OPEN = RunInfo(1, "shop", "march", 1, RunState.OPEN)
ENDED = RunInfo(1, "shop", "march", 1, RunState.ENDED)


def why(run: RunInfo) -> str:
    return f"why of {run.key}"


def reported(every: float, seconds: int, caplog: pytest.LogCaptureFixture) -> list[str]:
    now = 0.0
    report = WaitReport(why, every, lambda: now)
    for _ in range(seconds):
        now += 1.0
        report.look(OPEN)
    return caplog.messages


def test_a_long_wait_is_reported_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    assert reported(30, 95, caplog) == [
        f"waited {seconds} s for run 'march': why of march#1" for seconds in (30, 60, 90)
    ]


@pytest.mark.parametrize(("every", "seconds"), [(30, 29), (0, 1000)])
def test_a_short_wait_and_one_that_is_not_to_be_reported_are_not(
    every: float, seconds: int, caplog: pytest.LogCaptureFixture
) -> None:
    assert reported(every, seconds, caplog) == []


def test_a_wait_ends_with_the_run_or_with_its_bound() -> None:
    states = iter([OPEN, OPEN, ENDED])
    changed = Event()

    def look() -> RunInfo:
        changed.set()
        return next(states)

    assert wait_until_closed(look, changed, None, WaitReport(why)) == ENDED
    with pytest.raises(RunTimeout):
        wait_until_closed(lambda: OPEN, Event(), 0, WaitReport(why))
