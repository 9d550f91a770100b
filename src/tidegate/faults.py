"""Crash points: named places where a test or `tidegate chaos` lets the process die.

    TIDEGATE_CRASH_AT=step.before_commit tidegate run …     dies at the first passage
    TIDEGATE_CRASH_AT=step.before_commit:3 tidegate run …   dies at the third

Dying means SIGKILL: no handler, no `finally`, no flush. What survives is what was committed.
While the variable is not set, passing a point costs one look at a module global.
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
    "files.after_write": "the Spark job of a step has written its files and nobody names them",
    "migration.before_commit": "a migration has run, or functions were made, and is not committed",
    "chunk.before_write": "a chunk is at hand and nothing of it is stored",
    "chunk.after_write": "a chunk is stored as a file and not recorded",
    "chunk.before_commit": "a chunk, or how many there are, is written and not committed",
    "chunk.after_commit": "a chunk is committed and its client was not told",
    "cutover.apply.before_write": "changes of a table are read and not yet in an index",
    "cutover.apply.after_write": "changes of a table are in an index and its follower was not told",
    "cutover.switch.before_commit": "an alias stands for another index and that is not committed",
    "cutover.switch.after_commit": "an alias stands for another index and nobody was told",
    "checkpoint.trigger.before_commit": "a checkpoint has a number and that is not committed",
    "checkpoint.inject.before_commit": "a barrier is on the channels of a source and not committed",
    "checkpoint.acknowledge.before_commit": "a barrier has left a task and that is not committed",
    "checkpoint.unalign.before_commit": "a checkpoint waits no longer and that is not committed",
    "checkpoint.commit.before_commit": "a checkpoint is written and not committed",
    "checkpoint.commit.after_commit": "a checkpoint is committed and nobody was told",
    "checkpoint.abort.before_commit": "a checkpoint is given up and that is not committed",
    "flow.claim.after_commit": "a worker has claimed tasks of a flow and begun none of them",
    "flow.complete.before_commit": "results of a flow's tasks are written and not committed",
    "flow.complete.after_commit": "results of a flow's tasks are committed and nobody was told",
    "flow.finish.before_commit": "a generator has yielded its last item and that is not committed",
    "flow.spawn.before_commit": "items of a generator are written and not committed",
    "flow.spawn.after_commit": "items of a generator are committed and it was not told",
    "flow.submit.before_commit": "a task of a flow has begun a pipeline's run, not committed",
    "flow.submit.after_commit": "a task of a flow has begun a pipeline's run and delivered nothing",
    "flow.submit.before_suspend": "a task of a flow has delivered everything and does not wait yet",
    "release.before_commit": "a run is released at a shard and that is not committed",
    "release.after_commit": "releases are committed and nobody was told",
    "publish.before_commit": "the results of a run are written and not committed",
    "publish.after_commit": "the results of a run are committed and nobody was told",
    "restore.before_commit": "a run begins again at a checkpoint and that is not committed",
    "results.before_write": "a run is complete and none of its results is written out",
    "results.after_write": "a complete run's results are written out and nobody was told",
    "step.before_commit": "a step is written and not committed",
    "step.after_commit": "a step is committed and nobody was told",
}
"""Every point and what has happened when it is reached; a point exists by being listed here."""


class _Armed:
    """The one point at which this process is to die."""

    def __init__(self, name: str, nth: int) -> None:
        self._name = name
        self._remaining = nth
        self._counting = Lock()

    def pass_by(self, name: str) -> None:
        if name != self._name:
            return
        with self._counting:
            self._remaining -= 1
            if self._remaining == 0:
                os.kill(os.getpid(), signal.SIGKILL)


def crash_point(name: str) -> None:
    """Die here when the environment says so."""
    if _armed is not None:
        _armed.pass_by(name)


def _arm(environment: Mapping[str, str]) -> _Armed | None:
    """Misspelt, a point would never be passed and a test would prove nothing: so it is refused."""
    wanted = environment.get(VARIABLE, "")
    if not wanted:
        return None
    name, _, nth = wanted.partition(":")
    if name not in CRASH_POINTS or not (nth or "1").isdecimal() or nth == "0":
        raise UnknownCrashPoint(wanted=wanted, known=", ".join(CRASH_POINTS))
    return _Armed(name, int(nth or 1))


_armed = _arm(os.environ)
