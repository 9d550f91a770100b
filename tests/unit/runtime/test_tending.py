"""Whoever tends something goes on after any trouble, and lays down what it holds after many."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event

import pytest

from tests.waiting import wait_until
from tidegate.runtime import periodic
from tidegate.runtime.periodic import MOST_TROUBLES, PeriodicTask

QUICK = 0.001


def failing(times: int, trouble: BaseException) -> tuple[Callable[[], None], list[int]]:
    """A turn that goes wrong so often, and the turns that were taken."""
    taken: list[int] = []

    def turn() -> None:
        taken.append(len(taken) + 1)
        if len(taken) <= times:
            raise trouble

    return turn, taken


@pytest.mark.parametrize("trouble", [OSError("no space"), ValueError("?"), MemoryError()])
def test_no_trouble_is_the_end(trouble: Exception) -> None:
    turn, taken = failing(2, trouble)
    it = PeriodicTask("test", turn, QUICK)
    wait_until(lambda: len(taken) > 5)
    assert it.is_alive
    it.close()
    assert it.error is None


def test_who_is_closed_is_not_alive() -> None:
    it = PeriodicTask("test", lambda: None, QUICK)
    it.close()
    assert not it.is_alive


def test_what_is_held_is_laid_down_after_several_troubles_in_a_row() -> None:
    laid_down: list[int] = []
    turn, taken = failing(MOST_TROUBLES + 1, OSError("no space"))
    it = PeriodicTask("test", turn, QUICK, on_repeated_failure=lambda: laid_down.append(len(taken)))
    wait_until(lambda: len(taken) > MOST_TROUBLES + 3)
    it.close()
    assert laid_down == [MOST_TROUBLES, MOST_TROUBLES + 1]


def test_it_goes_on_although_nothing_can_be_laid_down() -> None:
    def on_repeated_failure() -> None:
        raise OSError("nobody answers")

    turn, taken = failing(MOST_TROUBLES, OSError("no space"))
    it = PeriodicTask("test", turn, QUICK, on_repeated_failure=on_repeated_failure)
    wait_until(lambda: len(taken) > MOST_TROUBLES + 1)
    assert it.is_alive
    it.close()


def test_a_thread_that_ends_says_so_and_lays_down_what_it_holds() -> None:
    laid_down = Event()
    turn, _ = failing(1, SystemExit("enough"))
    it = PeriodicTask("test", turn, QUICK, on_repeated_failure=laid_down.set)
    assert laid_down.wait(10)
    wait_until(lambda: not it.is_alive)
    assert isinstance(it.error, SystemExit)
    it.close()


def test_who_hurries_it_does_not_hurry_it_out_of_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(periodic, "LONGEST_PAUSE", 3600.0)
    turn, taken = failing(2, OSError("no space"))
    it = PeriodicTask("test", turn, 1800.0)
    wait_until(lambda: taken == [1])
    it.run_now()
    it.close()
    assert taken == [1]


def test_who_hurries_it_need_not_wait_for_its_time() -> None:
    turn, taken = failing(0, OSError())
    it = PeriodicTask("test", turn, 3600.0)
    for turns in (1, 2, 3):
        wait_until(lambda turns=turns: len(taken) >= turns)  # type: ignore[misc]
        it.run_now()
    it.close()


def test_the_first_turn_may_be_put_off() -> None:
    turn, taken = failing(0, OSError())
    PeriodicTask("test", turn, QUICK, first_after=3600.0).close()
    assert taken == []
