"""The time at work is what the clock shows, less what was spent waiting."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidegate.flows.worker.stopwatch import Stopwatch


class Clock:
    """Stands still unless a test moves it."""

    def __init__(self) -> None:
        self.at = 1000

    def __call__(self) -> float:
        return float(self.at)


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100))))
def test_only_time_at_work_counts(spans: list[tuple[int, int]]) -> None:
    clock = Clock()
    watch = Stopwatch(clock)
    watch.start()
    for working, waiting in spans:
        clock.at += working
        with watch.resting():
            assert not watch.is_running
            clock.at += waiting
        assert watch.is_running
    assert watch.seconds == sum(working for working, _ in spans)


def test_nothing_counts_before_the_start() -> None:
    clock = Clock()
    watch = Stopwatch(clock)
    clock.at += 60
    assert (watch.seconds, watch.is_running) == (0.0, False)
