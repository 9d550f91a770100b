"""A periodic task goes on after any failure, and reports repeated ones."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event

import pytest

from tests.waiting import wait_until
from tidegate.runtime.periodic import MOST_FAILURES, PeriodicTask

QUICK = 0.001


def failing(times: int, error: BaseException) -> tuple[Callable[[], None], list[int]]:
    """A function that fails so often, and the calls that were made."""
    taken: list[int] = []

    def turn() -> None:
        taken.append(len(taken) + 1)
        if len(taken) <= times:
            raise error

    return turn, taken


@pytest.mark.parametrize("error", [OSError("no space"), ValueError("?"), MemoryError()])
def test_it_goes_on_after_any_error(error: Exception) -> None:
    turn, taken = failing(2, error)
    task = PeriodicTask("test", turn, QUICK)
    wait_until(lambda: len(taken) > 5)
    assert task.is_alive
    task.close()
    assert task.error is None


def test_a_closed_task_is_not_alive() -> None:
    task = PeriodicTask("test", lambda: None, QUICK)
    task.close()
    assert not task.is_alive


def test_repeated_failures_are_reported() -> None:
    reported: list[int] = []
    turn, taken = failing(MOST_FAILURES + 1, OSError("no space"))
    task = PeriodicTask(
        "test", turn, QUICK, on_repeated_failure=lambda: reported.append(len(taken))
    )
    wait_until(lambda: len(taken) > MOST_FAILURES + 3)
    task.close()
    assert reported == [MOST_FAILURES, MOST_FAILURES + 1]


def test_it_goes_on_although_reporting_fails() -> None:
    def on_repeated_failure() -> None:
        raise OSError("no answer")

    turn, taken = failing(MOST_FAILURES, OSError("no space"))
    task = PeriodicTask("test", turn, QUICK, on_repeated_failure=on_repeated_failure)
    wait_until(lambda: len(taken) > MOST_FAILURES + 1)
    assert task.is_alive
    task.close()


def test_a_thread_that_ends_has_an_error_and_reports_it() -> None:
    reported = Event()
    turn, _ = failing(1, SystemExit("enough"))
    task = PeriodicTask("test", turn, QUICK, on_repeated_failure=reported.set)
    assert reported.wait(10)
    wait_until(lambda: not task.is_alive)
    assert isinstance(task.error, SystemExit)
    task.close()


def test_run_now_does_not_shorten_the_pause_after_a_failure() -> None:
    turn, taken = failing(2, OSError("no space"))
    task = PeriodicTask("test", turn, 1800.0, longest_pause=3600.0)
    wait_until(lambda: taken == [1])
    task.run_now()
    task.close()
    assert taken == [1]


def test_run_now_does_not_wait_for_the_period() -> None:
    turn, taken = failing(0, OSError())
    task = PeriodicTask("test", turn, 3600.0)
    for turns in (1, 2, 3):
        wait_until(lambda turns=turns: len(taken) >= turns)  # type: ignore[misc]
        task.run_now()
    task.close()


def test_the_first_call_may_be_delayed() -> None:
    turn, taken = failing(0, OSError())
    PeriodicTask("test", turn, QUICK, first_after=3600.0).close()
    assert taken == []
