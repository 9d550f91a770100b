"""Crash points: named places where a test or `tidegate chaos` kills the process.

    TIDEGATE_CRASH_AT=step.before_commit tidegate run …     killed when the point is first reached
    TIDEGATE_CRASH_AT=step.before_commit:3 tidegate run …   killed the third time

The process gets SIGKILL: no handler, no `finally`, no flush. Only committed work survives. While
the variable is not set, a crash point costs the check of a module global.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from threading import Lock

from tidegate.errors import UnknownCrashPoint

VARIABLE = "TIDEGATE_CRASH_AT"

CRASH_POINTS: dict[str, str] = {
    "files.before_write": "a step was read and its Spark job has written nothing",
    "files.after_write": "the Spark job of a step has written its files, which are not committed",
    "migration.before_commit": "a migration or the creation of functions is not committed",
    "chunk.before_write": "a chunk has arrived and nothing of it is stored",
    "chunk.after_write": "a chunk is stored as a file and not recorded",
    "chunk.before_commit": "a chunk, or the number of chunks, is written and not committed",
    "chunk.after_commit": "a chunk is committed and its client has no answer",
    "cutover.apply.before_write": "changes of a table are read and not yet in an index",
    "cutover.apply.after_write": "changes of a table are in an index and not acknowledged",
    "cutover.switch.before_commit": "an alias is switched to another index, not committed",
    "cutover.switch.after_commit": "an alias is switched to another index and not reported",
    "checkpoint.trigger.before_commit": "a checkpoint has a number and that is not committed",
    "checkpoint.inject.before_commit": "a barrier is on the channels of a source and not committed",
    "checkpoint.acknowledge.before_commit": "a task has forwarded a barrier, not committed",
    "checkpoint.unalign.before_commit": "a checkpoint became unaligned and that is not committed",
    "checkpoint.commit.before_commit": "a checkpoint is written and not committed",
    "checkpoint.commit.after_commit": "a checkpoint is committed and that is not reported",
    "checkpoint.abort.before_commit": "a checkpoint is aborted and that is not committed",
    "flow.claim.after_commit": "a worker has claimed tasks of a flow and started none of them",
    "flow.complete.before_commit": "results of a flow's tasks are written and not committed",
    "flow.complete.after_commit": "results of a flow's tasks are committed and not reported",
    "flow.finish.before_commit": "a generator has yielded its last item and that is not committed",
    "flow.spawn.before_commit": "items of a generator are written and not committed",
    "flow.spawn.after_commit": "items of a generator are committed and it does not know",
    "flow.submit.before_commit": "a task of a flow has started a run, not committed",
    "flow.submit.after_commit": "a task of a flow has started a run and delivered nothing",
    "flow.submit.before_suspend": "a task of a flow has delivered everything, not suspended yet",
    "release.before_commit": "a run is released at a shard and that is not committed",
    "release.after_commit": "releases are committed and not reported",
    "publish.before_commit": "the results of a run are written and not committed",
    "publish.after_commit": "the results of a run are committed and not reported",
    "restore.before_commit": "a run is restored to a checkpoint and that is not committed",
    "results.before_write": "a run is complete and none of its results is written out",
    "results.after_write": "a complete run's results are written out and not reported",
    "step.before_commit": "a step is written and not committed",
    "step.after_commit": "a step is committed and that is not reported",
}
"""Every crash point, and what has happened when it is reached."""


class _ArmedPoint:
    """The point at which this process is killed."""

    def __init__(self, name: str, nth: int) -> None:
        self._name = name
        self._remaining = nth
        self._lock = Lock()

    def reach(self, name: str) -> None:
        if name != self._name:
            return
        with self._lock:
            self._remaining -= 1
            if self._remaining == 0:
                os.kill(os.getpid(), signal.SIGKILL)


def crash_point(name: str) -> None:
    """Kill the process here if the environment names this point."""
    if _armed is not None:
        _armed.reach(name)


def _arm(environment: Mapping[str, str]) -> _ArmedPoint | None:
    """Refuses unknown names: a test with a misspelt point would prove nothing."""
    given = environment.get(VARIABLE, "")
    if not given:
        return None
    name, _, nth = given.partition(":")
    if name not in CRASH_POINTS or not (nth or "1").isdecimal() or nth == "0":
        raise UnknownCrashPoint(wanted=given, known=", ".join(CRASH_POINTS))
    return _ArmedPoint(name, int(nth or 1))


_armed = _arm(os.environ)
