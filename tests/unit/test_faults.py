"""Crash points kill the process at the passage that was asked for, and cost nothing otherwise."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from timeit import repeat

import pytest

import tidegate
from tidegate.faults import CRASH_POINTS, VARIABLE, crash_point

SOURCES = Path(tidegate.__file__).parent
PASSES_THREE = (
    "from tidegate.faults import crash_point\n"
    "for n in range(3):\n"
    "    print(n, flush=True)\n"
    "    crash_point('step.after_commit')\n"
    "    crash_point('step.before_commit')\n"
)


def run_with(crash_at: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PASSES_THREE],
        env=os.environ | {VARIABLE: crash_at},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


@pytest.mark.parametrize(
    ("crash_at", "passages"),
    [("step.before_commit", 1), ("step.before_commit:1", 1), ("step.before_commit:3", 3)],
)
def test_the_process_is_killed_at_the_nth_passage(crash_at: str, passages: int) -> None:
    done = run_with(crash_at)
    assert done.returncode == -signal.SIGKILL
    assert done.stdout.split() == [str(n) for n in range(passages)]


@pytest.mark.parametrize("crash_at", ["", "step.before_commit:4", "migration.before_commit"])
def test_a_process_that_does_not_pass_the_point_often_enough_lives(crash_at: str) -> None:
    assert run_with(crash_at).returncode == 0


@pytest.mark.parametrize("crash_at", ["step.befor_commit", "step.before_commit:0", ":1", "a:b"])
def test_a_point_that_does_not_exist_is_refused(crash_at: str) -> None:
    done = run_with(crash_at)
    assert done.returncode == 1
    assert "UnknownCrashPoint" in done.stderr


def test_the_registry_names_exactly_the_points_in_the_code() -> None:
    text = "\n".join(path.read_text() for path in SOURCES.rglob("*.py"))
    assert set(re.findall(r'\bcrash_point\("([^"]+)"\)', text)) == set(CRASH_POINTS)


def test_passing_a_point_that_is_off_costs_little_more_than_calling_a_function() -> None:
    def nothing(name: str) -> None: ...

    on = min(repeat(lambda: crash_point("step.before_commit"), number=20_000, repeat=15))
    floor = min(repeat(lambda: nothing("step.before_commit"), number=20_000, repeat=15))
    assert on < 3 * floor
