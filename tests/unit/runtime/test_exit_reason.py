"""The error that ended a process is found between what Java writes."""

from __future__ import annotations

import pytest

from tidegate.runtime.cluster.exit_reason import LONGEST, last_error

JAVA = """\
WARNING: Using incubator modules: jdk.incubator.vector
26/11/18 00:00:01 WARN NativeCodeLoader: Unable to load native-hadoop library for your platform
26/11/18 00:00:02 ERROR Executor: Exception in task 0.0 in stage 3.0 (TID 7)
java.lang.OutOfMemoryError: Java heap space
\tat java.base/java.util.Arrays.copyOf(Arrays.java:3537)
"""
LOGGED = """\
2026-11-18 00:00:01,000 INFO tidegate.cli.processes.logs: at work as worker-1; stop with Ctrl-C
2026-11-18 00:00:03,000 WARNING tidegate.runtime.worker.task_worker: restarting task s1: no luck
"""
ERROR = "error: Spark has ended in this process: Java (pid 7) ended with signal 9 (killed)\n"
TRACEBACK = """\
Traceback (most recent call last):
  File "worker.py", line 1, in <module>
    raise ValueError("two words")
ValueError: two words
"""


@pytest.mark.parametrize("before", ["", JAVA, LOGGED, TRACEBACK])
@pytest.mark.parametrize("after", ["", JAVA, LOGGED])
def test_the_error_of_a_command_is_found_before_and_behind_other_lines(
    before: str, after: str
) -> None:
    found = last_error(before + ERROR + after)
    assert found == "Spark has ended in this process: Java (pid 7) ended with signal 9 (killed)"


def test_an_error_of_several_lines_is_one_line() -> None:
    text = "error: the pipeline cannot be served on local[*]:\n  memory: required: 4 GiB.\n"
    assert last_error(text + JAVA) == (
        "the pipeline cannot be served on local[*]: memory: required: 4 GiB."
    )


@pytest.mark.parametrize("after", ["", JAVA, LOGGED])
def test_without_one_it_is_what_python_raised(after: str) -> None:
    assert last_error(LOGGED + TRACEBACK + after) == "ValueError: two words"


def test_without_either_it_is_the_last_error_that_was_logged() -> None:
    logged = LOGGED.replace("WARNING", "ERROR")
    assert last_error(logged + JAVA) == "restarting task s1: no luck"


def test_a_java_out_of_memory_is_reported_if_there_is_no_other_error() -> None:
    said = "Terminating due to java.lang.OutOfMemoryError: Java heap space"
    assert last_error(JAVA + said + "\n" + JAVA) == said


@pytest.mark.parametrize("log", ["", JAVA, LOGGED])
def test_a_log_without_an_error_has_none(log: str) -> None:
    assert not last_error(log)


def test_a_long_error_is_cut() -> None:
    assert len(last_error("error: " + "x" * 10_000)) == LONGEST
