"""A failure counts when the runs that a task failed on have not advanced since the last one."""

from __future__ import annotations

import pytest

from tidegate.runtime.task import task_attempt
from tidegate.runtime.task.task_attempt import FailureCounter, TaskAttempt


def attempt(*steps: str, committed: int = 0, deferred: str = "") -> TaskAttempt:
    """Starts these steps, of runs with names of one letter, and commits the first few."""
    made = TaskAttempt()
    for number, runs in enumerate(steps):
        made.started(runs)
        if number < committed:
            finished = set(runs) - set(deferred)
            made.committed(finished, finished)
    return made


def test_repeated_failures_on_a_run_are_counted_however_long_an_attempt_lasts() -> None:
    failures = FailureCounter(stable=0.0)
    assert [failures.count(attempt("a")) for _ in range(4)] == [1, 2, 3, 4]


def test_a_run_that_advanced_in_between_counts_from_the_start() -> None:
    failures = FailureCounter()
    assert [failures.count(attempt("a", "a", committed=1)) for _ in range(4)] == [1, 1, 1, 1]


def test_other_runs_that_advance_do_not_hide_the_one_that_does_not() -> None:
    failures = FailureCounter()
    assert [failures.count(attempt("b", "a", committed=1)) for _ in range(4)] == [1, 2, 3, 4]


def test_a_run_whose_job_is_in_progress_has_not_advanced() -> None:
    failures = FailureCounter()
    counts = [failures.count(attempt("ab", committed=1, deferred="a")) for _ in range(3)]
    assert counts == [1, 2, 3]


def test_what_is_committed_without_progress_is_no_longer_in_progress() -> None:
    made = TaskAttempt()
    made.started({"a"})
    made.committed({"a"}, ())
    assert (made.advanced, made.in_progress) == (set(), set())


def test_failures_outside_of_steps_count_until_a_run_advanced_or_an_attempt_lasted_long() -> None:
    failures = FailureCounter()
    assert [failures.count(attempt()) for _ in range(3)] == [1, 2, 3]
    assert failures.count(attempt("b", committed=1)) == 1
    assert failures.count(attempt()) == 2
    always_long = FailureCounter(stable=0.0)
    assert [always_long.count(attempt()) for _ in range(3)] == [1, 1, 1]


def test_single_message_mode_reads_message_by_message_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert TaskAttempt().limit(100) == 100
    assert TaskAttempt(single_message=True).limit(100) == 1
    monkeypatch.setattr(task_attempt, "SINGLE_MESSAGE_SECONDS", 0.0)
    assert TaskAttempt(single_message=True).limit(100) == 100
