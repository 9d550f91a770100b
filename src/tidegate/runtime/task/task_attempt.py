"""Attempts to run a task: how far each brought its runs, and how many failed without progress.

A task that fails is restarted from the last commit. How soon it fails means little: a job may fail
after an hour. What counts is whether the runs that it failed on have advanced since.
"""

from __future__ import annotations

from collections.abc import Collection
from time import monotonic

STABLE = 600.0
"""Seconds after which a failure outside of any step says nothing about earlier ones."""
SINGLE_MESSAGE_SECONDS = 60.0
"""How long an attempt in single-message mode stays in it."""
NO_RUN = ""


class TaskAttempt:
    """One attempt to run a task. In single-message mode a failure concerns exactly one message."""

    def __init__(self, *, single_message: bool = False) -> None:
        self._started_at = monotonic()
        self._single_until = self._started_at + SINGLE_MESSAGE_SECONDS if single_message else 0.0
        self.in_progress: set[str] = set()
        """The runs with messages that were fetched and not committed."""
        self.advanced: set[str] = set()
        """The runs for which something was committed that is not repeated after a crash."""

    @property
    def seconds(self) -> float:
        """How long it has lasted."""
        return monotonic() - self._started_at

    def limit(self, messages: int) -> int:
        """How many messages a step may take."""
        return min(1, messages) if monotonic() < self._single_until else messages

    def started(self, runs: Collection[str]) -> None:
        """A step with messages of these runs was fetched."""
        self.in_progress.update(runs)

    def committed(self, runs: Collection[str], advanced: Collection[str]) -> None:
        """A step was committed for these runs; some of them have advanced."""
        self.in_progress.difference_update(runs)
        self.advanced.update(advanced)


class FailureCounter:
    """How often a task has failed on each run since that run advanced."""

    def __init__(self, stable: float = STABLE) -> None:
        self._stable = stable
        self._by_run: dict[str, int] = {}

    def count(self, attempt: TaskAttempt) -> int:
        """Count the failure that ended this attempt; the most on any run that was in progress."""
        is_reset = attempt.advanced or attempt.seconds > self._stable
        reset = attempt.advanced | ({NO_RUN} if is_reset else set())
        self._by_run = {run: times for run, times in self._by_run.items() if run not in reset}
        runs = attempt.in_progress or {NO_RUN}
        for run in runs:
            self._by_run[run] = self._by_run.get(run, 0) + 1
        return max(self._by_run[run] for run in runs)
