"""Jobs run side by side, except for those of suspects."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from threading import Event, Thread

from tests.waiting import wait_until
from tidegate.runtime.worker.isolated_trials import SharedExclusiveLock


class Job(Thread):
    """Runs until it is let go."""

    def __init__(self, turn: AbstractContextManager[None]) -> None:
        super().__init__(daemon=True)
        self._turn = turn
        self.is_at_work = Event()
        self._goes_on = Event()
        self.start()

    def run(self) -> None:
        with self._turn:
            self.is_at_work.set()
            self._goes_on.wait(30)

    def end(self) -> None:
        self._goes_on.set()
        self.join(30)


def begun(job: Job) -> bool:
    return job.is_at_work.wait(30)


def held(job: Job) -> bool:
    return not job.is_at_work.wait(0.05)


def started(turn: Callable[[], AbstractContextManager[None]], number: int) -> list[Job]:
    return [Job(turn()) for _ in range(number)]


def test_jobs_of_other_runs_run_concurrently() -> None:
    turns = SharedExclusiveLock()
    jobs = started(turns.together, 3)
    assert all(map(begun, jobs))
    for job in jobs:
        job.end()


def test_a_job_that_runs_alone_waits_for_the_others_and_holds_later_ones_back() -> None:
    turns = SharedExclusiveLock()
    (first,) = started(turns.together, 1)
    assert begun(first)
    alone = Job(turns.alone())
    assert held(alone)
    (later,) = started(turns.together, 1)
    assert held(later)
    first.end()
    assert begun(alone)
    assert held(later)
    alone.end()
    assert begun(later)
    later.end()


def test_two_suspects_never_run_at_once() -> None:
    turns = SharedExclusiveLock()
    first, second = Job(turns.alone()), Job(turns.alone())
    wait_until(lambda: first.is_at_work.is_set() or second.is_at_work.is_set())
    one, other = (first, second) if first.is_at_work.is_set() else (second, first)
    assert held(other)
    one.end()
    assert begun(other)
    other.end()


def test_a_suspect_with_patience_lets_other_jobs_begin_before_it() -> None:
    turns = SharedExclusiveLock()
    (first,) = started(turns.together, 1)
    assert begun(first)
    alone = Job(turns.alone(patience=30))
    (later,) = started(turns.together, 1)
    assert begun(later)
    first.end()
    assert held(alone)
    later.end()
    assert begun(alone)
    alone.end()


def test_patience_ends() -> None:
    turns = SharedExclusiveLock()
    (first,) = started(turns.together, 1)
    assert begun(first)
    alone = Job(turns.alone(patience=0.01))
    assert held(alone)
    (later,) = started(turns.together, 1)
    assert held(later)
    first.end()
    assert begun(alone)
    alone.end()
    assert begun(later)
    later.end()
