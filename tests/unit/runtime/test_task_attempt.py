"""A death counts when the runs that a task died with have come no further since the last one."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from tidegate.dataflow import Carrier, Edge, Event
from tidegate.runtime.task.processors import Operator
from tidegate.runtime.task.task_loop import Outcome, Step
from tidegate.runtime.worker import task_attempt
from tidegate.runtime.worker.task_attempt import FailureCounter, TaskAttempt

EDGE = Edge(0, "before")


class Keeper(Operator):
    """Keeps everything of the run called `kept`."""

    def unsettled(self, edge: Edge, run: str) -> int:
        return int(run == "kept")


class Scripted:
    """Channels that give these steps, as far as there is room."""

    is_settled = True
    is_closed = False

    def __init__(self, *steps: Iterable[str]) -> None:
        self._steps = [list(step) for step in steps]

    def read(self, room: Callable[[Edge], int]) -> Step | None:
        if not self._steps:
            return None
        runs = self._steps[0][: room(EDGE)]
        del self._steps[0][: len(runs)]
        self._steps = [step for step in self._steps if step]
        return Step(Carrier.DATA, EDGE, tuple(Event(0, run) for run in runs))

    def commit(self, step: Step, outcome: Outcome) -> None:
        pass

    def wait(self, room: Callable[[Edge], int], timeout: float) -> None:
        pass

    def discard(self) -> int:
        return 0


def a_life(
    *steps: str, committed: int = 0, later: str = "", is_careful: bool = False
) -> TaskAttempt:
    """One that reads these steps, of runs with names of a letter, and commits the first few."""
    life = TaskAttempt(Scripted(*steps), Keeper("op"), is_careful=is_careful)
    for number in range(len(steps)):
        step = life.read(lambda _: 100)
        assert step is not None
        if number < committed:
            life.commit(step, Outcome(later=set(later)))
    return life


def test_a_task_that_dies_with_a_run_again_and_again_is_counted_however_long_it_lives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(task_attempt, "LONG", 0.0)
    deaths = FailureCounter()
    assert [deaths.count(a_life("a")) for _ in range(4)] == [1, 2, 3, 4]


def test_a_run_that_has_come_further_in_between_counts_from_the_start() -> None:
    deaths = FailureCounter()
    assert [deaths.count(a_life("a", "a", committed=1)) for _ in range(4)] == [1, 1, 1, 1]


def test_other_runs_that_come_further_do_not_hide_the_one_that_does_not() -> None:
    deaths = FailureCounter()
    assert [deaths.count(a_life("b", "a", committed=1)) for _ in range(4)] == [1, 2, 3, 4]


def test_a_run_whose_job_goes_on_behind_its_step_has_not_come_further() -> None:
    deaths = FailureCounter()
    died = [deaths.count(a_life("ab", committed=1, later="a")) for _ in range(3)]
    assert died == [1, 2, 3]


def test_what_is_only_kept_is_neither_progress_nor_at_work() -> None:
    life = TaskAttempt(Scripted(["kept"]), Keeper("op"))
    step = life.read(lambda _: 100)
    assert step is not None
    life.commit(step, Outcome())
    assert (life.moved, life.at_work) == (set(), set())


def test_deaths_with_nobody_at_work_count_until_anybody_came_further_or_it_lived_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deaths = FailureCounter()
    assert [deaths.count(a_life()) for _ in range(3)] == [1, 2, 3]
    assert deaths.count(a_life("b", committed=1)) == 1
    assert deaths.count(a_life()) == 2
    monkeypatch.setattr(task_attempt, "LONG", 0.0)
    assert deaths.count(a_life()) == 1


def test_a_careful_life_reads_message_by_message() -> None:
    careful = TaskAttempt(Scripted("abc"), Keeper("op"), is_careful=True)
    step = careful.read(lambda _: 100)
    assert step is not None
    assert [message.run for message in step.messages] == ["a"]
    none = TaskAttempt(Scripted("abc"), Keeper("op"), is_careful=True).read(lambda _: 0)
    assert none is not None
    assert none.messages == ()
