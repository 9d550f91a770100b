"""Trials of one process: killed at every crash point of the protocol, and at random.

A trial runs `tidegate run` in a separate process and kills it by SIGKILL at a named crash point or
at a random time, or kills its PostgreSQL under load. The same command is then repeated until it
succeeds. The results must have the same bytes as those of a run without faults, and every sink
must have been published once, however often the process was restarted.

Faults of checkpoints are injected into a run that takes checkpoints and is restored; see
`tidegate.testing.checkpoint_chaos`. Its results must be those of a run without checkpoints.
"""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.metadata import entry_points
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from tidegate.errors import ChaosFailed, NoGeneratedData
from tidegate.faults import CRASH_POINTS, VARIABLE
from tidegate.store import EmbeddedPostgres, open_database, overview, publications, results_of

if TYPE_CHECKING:
    from tidegate.store import Connection

QUICK_POINTS = ("files.after_write", "step.after_commit", "publish.before_commit")
"""A step is replayed, a step was committed unnoticed, a run is published: used by `make test`."""
ALL_CHECKPOINT_POINTS = frozenset(
    point for point in CRASH_POINTS if point.startswith(("checkpoint.", "restore."))
)
"""Crash points that only runs with checkpoints pass."""
CHECKPOINT_POINTS = (
    "checkpoint.trigger.before_commit",
    "checkpoint.inject.before_commit",
    "checkpoint.acknowledge.before_commit",
    "checkpoint.commit.before_commit",
    "checkpoint.commit.after_commit",
    "checkpoint.abort.before_commit",
    "checkpoint.unalign.before_commit",
    "restore.before_commit",
)
"""All of them in the order in which a run passes them: used by `make test`, in one run."""
OTHER_POINTS = frozenset(
    point for point in CRASH_POINTS if point.startswith(("flow.", "migration."))
)
"""Crash points that a pipeline run does not pass on an initialized database."""
GENERATORS = "tidegate.generators"
"""The entry-point group of generators of small test data."""
PASSED_ONCE = frozenset(
    {
        "checkpoint.abort.before_commit",
        "checkpoint.unalign.before_commit",
        "publish.after_commit",
        "publish.before_commit",
        "restore.before_commit",
        "results.after_write",
        "results.before_write",
    }
)
"""Crash points that a run passes once."""
RUN = "chaos"
BOUND = 300.0
"""Seconds that one process may take."""
MAX_RESTARTS = 5
CHECKPOINT_SLOWDOWN = 2.0
"""How many times longer a run with checkpoints takes, at least."""
EARLIEST = 1.0
"""Seconds before which a kill proves nothing."""
LONGEST_NAME = 100
"""Characters of a trial's folder name; a fault at many crash points has a longer name."""


@dataclass(frozen=True, slots=True)
class Subject:
    """The subject of trials: a pipeline as named on the command line, its data, a work folder."""

    pipeline: str
    data: Path
    folder: Path
    shards: int = 2
    program: tuple[str, ...] = ("tidegate", "run")
    """The module to run, and its first arguments."""

    @property
    def with_checkpoints(self) -> Subject:
        """The same subject with many checkpoints and a restore."""
        return replace(self, program=("tidegate.testing.checkpoint_chaos",))


@dataclass(frozen=True, slots=True)
class Trial:
    """One fault, the crashes it caused, and the duration."""

    fault: str
    kills: int
    seconds: float


def run_trials(
    subject: Subject,
    seed: int,
    points: Sequence[str] | None = None,
    random_kills: int = 3,
    database_losses: int = 1,
) -> Iterator[Trial]:
    """Trials of every fault in turn; raises `ChaosFailed` at the first that changes a result.

    Without `points`, all crash points are tried, also those of runs with checkpoints.
    """
    rng = random.Random(seed)  # noqa: S311  not used for security
    expected, seconds = _without_faults(subject)
    yield Trial("none", 0, seconds)
    every = sorted(CRASH_POINTS.keys() - OTHER_POINTS - ALL_CHECKPOINT_POINTS)
    faults = [*_faults(every if points is None else points, rng, random_kills, seconds)]
    faults += [_database_loss(rng, seconds) for _ in range(database_losses)]
    for fault in faults:
        yield _trial(subject, expected, str(fault), fault)
    if points is None:
        seconds *= CHECKPOINT_SLOWDOWN
        faults = [*_faults(sorted(ALL_CHECKPOINT_POINTS), rng, random_kills, seconds)]
        for fault in (*faults, _database_loss(rng, seconds)):
            yield _trial(subject.with_checkpoints, expected, f"with checkpoints, {fault}", fault)


def checkpoint_trials(
    subject: Subject, points: Sequence[str] = CHECKPOINT_POINTS
) -> Iterator[Trial]:
    """Trials of a run with checkpoints whose process is killed at these points in turn."""
    expected, seconds = _without_faults(subject)
    yield Trial("none", 0, seconds)
    fault = CrashInTurn(tuple(points))
    yield _trial(subject.with_checkpoints, expected, str(fault), fault)


def _faults(
    points: Sequence[str], rng: random.Random, random_kills: int, seconds: float
) -> Iterator[Fault]:
    for point in points:
        yield CrashAt(point, _nth_passage(point, rng))
    for _ in range(random_kills):
        yield KillAfter(rng.uniform(0.3, 1.0) * seconds)


def _nth_passage(point: str, rng: random.Random) -> int:
    """The passage of a crash point at which the process is killed."""
    if point in PASSED_ONCE:
        return 1
    return rng.choice((1, 2) if point in ALL_CHECKPOINT_POINTS else (1, 1, 2, 5))


def _database_loss(rng: random.Random, seconds: float) -> LoseDatabase:
    return LoseDatabase(rng.uniform(0.5, 0.9) * seconds)


def generate_data(pipeline: str, folder: Path, seed: int) -> Path:
    """Write data with the registered generator of a pipeline, `function(folder, seed)`."""
    generators = [point for point in entry_points(group=GENERATORS) if point.name == pipeline]
    if not generators:
        raise NoGeneratedData(pipeline=pipeline)
    generators[0].load()(folder, seed)
    return folder


# --- faults ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CrashAt:
    """The process is killed at the nth passage of a crash point."""

    point: str
    nth: int

    def __str__(self) -> str:
        return f"crash at {self.point}:{self.nth}"

    def environment(self, kills: int) -> dict[str, str]:
        """The environment that triggers the crash; only the first process crashes."""
        return {} if kills else {VARIABLE: f"{self.point}:{self.nth}"}

    def inject(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        """Wait for the crash; if the process succeeds, the point was not passed so often."""
        if not _is_running(process, BOUND) and process.returncode == 0:
            raise FaultNotTriggered(f"the run passes {self.point} less than {self.nth} times")


@dataclass(frozen=True, slots=True)
class CrashInTurn:
    """The process is killed at a crash point, its successor at the next one."""

    points: tuple[str, ...]

    def __str__(self) -> str:
        return f"crash in turn at {' '.join(self.points)}"

    def environment(self, kills: int) -> dict[str, str]:
        """The environment that triggers the crash; the last process does not crash."""
        return {VARIABLE: self.points[kills]} if kills < len(self.points) else {}

    def inject(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        """The process crashes by itself."""


@dataclass(frozen=True, slots=True)
class KillAfter:
    """The process is killed after some time."""

    seconds: float

    def __str__(self) -> str:
        return f"kill after {self.seconds:.1f} s"

    def environment(self, kills: int) -> dict[str, str]:
        """Nothing: the fault comes from outside."""
        return {}

    def inject(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        """Wait, and kill the process."""
        if not _is_running(process, self.seconds):
            raise FaultNotTriggered(f"the run was over before {self.seconds:.1f} s")
        process.kill()

    def earlier(self) -> KillAfter:
        """The same fault after half the time."""
        return KillAfter(self.seconds / 2)


@dataclass(frozen=True, slots=True)
class LoseDatabase:
    """PostgreSQL is killed a few times; the process must continue."""

    seconds: float
    times: int = 3

    def __str__(self) -> str:
        return f"PostgreSQL killed repeatedly from {self.seconds:.1f} s"

    def environment(self, kills: int) -> dict[str, str]:
        """Nothing: the fault comes from outside."""
        return {}

    def inject(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        """Kill the server, and again when it is back."""
        killed = 0
        while killed < self.times and _is_running(process, self.seconds / self.times):
            pid = EmbeddedPostgres(folder / "postgres").pid
            if pid is not None:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    killed += 1
        if not killed:
            raise FaultNotTriggered(f"the run was over before {self.seconds:.1f} s")

    def earlier(self) -> LoseDatabase:
        """The same fault after half the time."""
        return LoseDatabase(self.seconds / 2, self.times)


Fault = CrashAt | CrashInTurn | KillAfter | LoseDatabase


class FaultNotTriggered(Exception):
    """A fault was not triggered, so the trial proves nothing."""


def _is_running(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Whether a process is still running after some time."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return True
    return False


# --- trials ----------------------------------------------------------------------------------


def _without_faults(subject: Subject) -> tuple[dict[str, bytes], float]:
    started = monotonic()
    folder = subject.folder / "none"
    code = _finish(_start(subject, folder, {}), folder)
    if code != 0:
        raise ChaosFailed("none", f"the run without faults ended with {code}: {_log_tail(folder)}")
    seconds = monotonic() - started
    expected = results_in(folder)
    compare("none", expected, folder)
    return expected, seconds


def _trial(subject: Subject, expected: dict[str, bytes], name: str, fault: Fault) -> Trial:
    """Run a trial; a timed fault that was not triggered is repeated earlier."""
    try:
        return _attempt(subject, expected, name, fault)
    except FaultNotTriggered as missed:
        if isinstance(fault, CrashAt | CrashInTurn) or fault.seconds < EARLIEST:
            raise ChaosFailed(name, f"the fault was not triggered: {missed}") from None
        return _trial(subject, expected, f"{name}, earlier", fault.earlier())


def _attempt(subject: Subject, expected: dict[str, bytes], name: str, fault: Fault) -> Trial:
    started = monotonic()
    folder = subject.folder / re.sub("[ :,]+", "-", name)[:LONGEST_NAME]
    process = _start(subject, folder, fault.environment(0))
    fault.inject(process, folder / "deployment")
    kills = 0
    most = MAX_RESTARTS + (len(fault.points) if isinstance(fault, CrashInTurn) else 0)
    while (code := _finish(process, folder)) != 0:
        kills += 1
        if code != -signal.SIGKILL or kills > most:
            raise ChaosFailed(name, f"the process ended with {code}: {_log_tail(folder)}")
        process = _start(subject, folder, fault.environment(kills))
    if fault.environment(kills):
        raise FaultNotTriggered("the run does not pass all crash points")
    compare(name, expected, folder)
    return Trial(name, kills, monotonic() - started)


def compare(name: str, expected: Mapping[str, bytes], folder: Path) -> None:
    """Raise `ChaosFailed` unless a trial gave these results and published them once."""
    results = results_in(folder)
    for sink in sorted(expected.keys() | results.keys()):
        if results.get(sink) != expected.get(sink):
            raise ChaosFailed(name, f"{sink} differs from the run without faults; see {folder}")
    with open_database(None, folder / "deployment") as database:
        published = database.transact(publications_of)
    error = publication_error(expected, published)
    if error is not None:
        raise ChaosFailed(name, error)


@dataclass(frozen=True, slots=True)
class Publication:
    """The sinks that one incarnation of a run has published, and in how many transactions."""

    run: str
    sinks: tuple[str, ...]
    transactions: int


def publication_error(sinks: Collection[str], published: Sequence[Publication]) -> str | None:
    """None if exactly these sinks were published once and together, else the violation.

    >>> publication_error(["q1"], [Publication("chaos#1", ("q1",), 1)])
    >>> publication_error(["q1"], [])
    'nothing was published'
    """
    if not published or not sinks:
        return "nothing was published"
    for publication in published:
        if publication.transactions != 1:
            return f"run {publication.run} was published by {publication.transactions} transactions"
    times = Counter(sink for publication in published for sink in publication.sinks)
    for sink in sorted({*sinks, *times}):
        expected_times = 1 if sink in sinks else 0
        if times[sink] != expected_times:
            runs = ", ".join(publication.run for publication in published)
            return f"{sink} was published {times[sink]} times, not {expected_times}, by {runs}"
    return None


def publications_of(connection: Connection) -> list[Publication]:
    """The publications of every run incarnation of a deployment."""
    transactions = publications(connection)
    runs = {summary.run.key: summary.run for summary in overview(connection)}
    return [
        Publication(key, tuple(results_of(connection, runs[key])), number)
        for key, number in transactions.items()
    ]


def _start(subject: Subject, folder: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", *subject.program, subject.pipeline, "--run", RUN]
    command += ["--data", str(subject.data), "--out", str(folder / "out")]
    command += ["--deployment", str(folder / "deployment"), "--shards", str(subject.shards)]
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(  # noqa: S603  our own command
            command, env={**os.environ, **environment}, stdout=log, stderr=log
        )


def _finish(process: subprocess.Popen[bytes], folder: Path) -> int:
    try:
        return process.wait(BOUND)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise ChaosFailed(folder.name, f"not done after {BOUND:g} s: {_log_tail(folder)}") from None


def _log_tail(folder: Path) -> str:
    return (folder / "log").read_text(errors="replace")[-2000:]


def results_in(folder: Path) -> dict[str, bytes]:
    """The result files of a trial, by sink."""
    return {file.stem: file.read_bytes() for file in sorted((folder / "out").glob("*.csv"))}
