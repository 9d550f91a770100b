"""A wait is reported every so many seconds, and not in between."""

from __future__ import annotations

import pytest

from tidegate.runtime.ingestion.wait_report import WaitReport
from tidegate.store import RunInfo, RunState

OPEN = RunInfo(1, "shop", "march", 1, RunState.OPEN)


def why(run: RunInfo) -> str:
    return f"why of {run.key}"


def reported(every: float, seconds: int, caplog: pytest.LogCaptureFixture) -> list[str]:
    now = 0.0
    report = WaitReport(why, every, lambda: now)
    for _ in range(seconds):
        now += 1.0
        report.update(OPEN)
    return caplog.messages


def test_a_long_wait_is_reported_periodically(caplog: pytest.LogCaptureFixture) -> None:
    assert reported(30, 95, caplog) == [
        f"waited {seconds} s for run 'march': why of march#1" for seconds in (30, 60, 90)
    ]


@pytest.mark.parametrize(("every", "seconds"), [(30, 29), (0, 1000)])
def test_a_short_wait_and_a_disabled_report_log_nothing(
    every: float, seconds: int, caplog: pytest.LogCaptureFixture
) -> None:
    assert reported(every, seconds, caplog) == []
