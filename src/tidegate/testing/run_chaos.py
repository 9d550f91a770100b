"""One process dies at every step of the protocol, and at random.

A trial runs `tidegate run` in a process of its own and lets it die: by SIGKILL at a named crash
point or at a random moment, or by losing its PostgreSQL to SIGKILL under load. The same command
is then given again until it ends well. Its results must have the same bytes as those of a run
without faults, and every sink must have been published once, however often the run was begun.

Where the fault has to do with checkpoints, it befalls a run that is cut and goes back to a cut; see
`tidegate.testing.checkpoint_chaos`. That must end with the bytes of a run that was never cut.
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

QUICK = ("files.after_write", "step.after_commit", "publish.before_commit")
"""A step is replayed, a step was committed unheard, a run is published: what `make test` tries."""
OF_CHECKPOINTS = frozenset(
    point for point in CRASH_POINTS if point.startswith(("checkpoint.", "restore."))
)
"""Crash points that only a run passes that is cut."""
IN_TURN = (
    "checkpoint.trigger.before_commit",
    "checkpoint.inject.before_commit",
    "checkpoint.acknowledge.before_commit",
    "checkpoint.commit.before_commit",
    "checkpoint.commit.after_commit",
    "checkpoint.abort.before_commit",
    "checkpoint.unalign.before_commit",
    "restore.before_commit",
)
"""All of them in the order in which a run passes them: what `make test` tries, in one run."""
ELSEWHERE = frozenset(point for point in CRASH_POINTS if point.startswith(("flow.", "migration.")))
"""Crash points that a run of a pipeline does not pass on a database that is ready."""
GENERATORS = "tidegate.generators"
"""The entry-point group in which packages register generators of small data."""
ONCE = frozenset(
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
MOST_RESTARTS = 5
LONGER = 2.0
"""How many times as long a run takes that is cut, at least."""
SOONEST = 1.0
"""Seconds before which nothing that is worth killing can have happened."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What is tried: a pipeline as the command line names it, its data, and a folder to work in."""

    pipeline: str
    data: Path
    folder: Path
    shards: int = 2
    program: tuple[str, ...] = ("tidegate", "run")
    """The module that is run, and its first arguments."""

    @property
    def checkpoint(self) -> Subject:
        """The same, cut again and again."""
        return replace(self, program=("tidegate.testing.checkpoint_chaos",))


@dataclass(frozen=True, slots=True)
class Trial:
    """One fault and what it led to."""

    fault: str
    deaths: int
    seconds: float


def chaos(
    subject: Subject,
    seed: int,
    points: Sequence[str] | None = None,
    random_kills: int = 3,
    database_losses: int = 1,
) -> Iterator[Trial]:
    """Try every fault in turn. Raises `ChaosFailed` at the first that changes anything.

    Without `points`, also what may befall a run that is cut.
    """
    chance = random.Random(seed)  # noqa: S311  faults are no secrets
    expected, seconds = _without_faults(subject)
    yield Trial("none", 0, seconds)
    usual = sorted(CRASH_POINTS.keys() - ELSEWHERE - OF_CHECKPOINTS) if points is None else points
    faults = [*_faults(usual, chance, random_kills, seconds)]
    faults += [_loss(chance, seconds) for _ in range(database_losses)]
    for fault in faults:
        yield _trial(subject, expected, str(fault), fault)
    if points is None:
        faults = [*_faults(sorted(OF_CHECKPOINTS), chance, random_kills, LONGER * seconds)]
        for fault in (*faults, _loss(chance, LONGER * seconds)):
            yield _trial(subject.checkpoint, expected, f"cut, {fault}", fault)


def chaos_of_checkpoints(subject: Subject, points: Sequence[str] = IN_TURN) -> Iterator[Trial]:
    """A run that is cut, and dies at these points one after the other."""
    expected, seconds = _without_faults(subject)
    yield Trial("none", 0, seconds)
    fault = CrashInTurn(tuple(points))
    yield _trial(subject.checkpoint, expected, str(fault), fault)


def _faults(
    points: Sequence[str], chance: random.Random, random_kills: int, seconds: float
) -> Iterator[Fault]:
    for point in points:
        yield CrashAt(point, _passage(point, chance))
    for _ in range(random_kills):
        yield KillAfter(chance.uniform(0.3, 1.0) * seconds)


def _passage(point: str, chance: random.Random) -> int:
    """How often it is passed before the process dies."""
    if point in ONCE:
        return 1
    return chance.choice((1, 2) if point in OF_CHECKPOINTS else (1, 1, 2, 5))


def _loss(chance: random.Random, seconds: float) -> LoseDatabase:
    return LoseDatabase(chance.uniform(0.5, 0.9) * seconds)


def generated(pipeline: str, folder: Path, seed: int) -> Path:
    """Data for a pipeline that has registered a generator: `function(folder, seed)`."""
    found = [point for point in entry_points(group=GENERATORS) if point.name == pipeline]
    if not found:
        raise NoGeneratedData(pipeline=pipeline)
    found[0].load()(folder, seed)
    return folder


# --- faults ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CrashAt:
    """The process dies at the nth passage of a crash point."""

    point: str
    nth: int

    def __str__(self) -> str:
        return f"crash at {self.point}:{self.nth}"

    def environment(self, deaths: int) -> dict[str, str]:
        """How the process hears of it; it dies once."""
        return {} if deaths else {VARIABLE: f"{self.point}:{self.nth}"}

    def befall(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        """Nothing to do from outside. It has to die of it, or the point was not passed so often."""
        if not _is_at_work(process, BOUND) and process.returncode == 0:
            raise Missed("the run does not pass there so often")


@dataclass(frozen=True, slots=True)
class CrashInTurn:
    """The process dies at a crash point, the one that is started after it at the next."""

    points: tuple[str, ...]

    def __str__(self) -> str:
        return f"crash in turn at {' '.join(self.points)}"

    def environment(self, deaths: int) -> dict[str, str]:
        """How each process hears of it; the last one lives."""
        return {VARIABLE: self.points[deaths]} if deaths < len(self.points) else {}

    def befall(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        """Nothing to do from outside."""


@dataclass(frozen=True, slots=True)
class KillAfter:
    """The process is killed after some time."""

    seconds: float

    def __str__(self) -> str:
        return f"kill after {self.seconds:.1f} s"

    def environment(self, deaths: int) -> dict[str, str]:
        """The process hears nothing of it."""
        return {}

    def befall(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        """Wait, and kill."""
        if not _is_at_work(process, self.seconds):
            raise Missed(f"the run was over before {self.seconds:.1f} s")
        process.kill()

    def sooner(self) -> KillAfter:
        """The same in half the time."""
        return KillAfter(self.seconds / 2)


@dataclass(frozen=True, slots=True)
class LoseDatabase:
    """PostgreSQL is killed a few times; the process has to live on."""

    seconds: float
    times: int = 3

    def __str__(self) -> str:
        return f"PostgreSQL killed again and again from {self.seconds:.1f} s"

    def environment(self, deaths: int) -> dict[str, str]:
        """The process hears nothing of it."""
        return {}

    def befall(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        """Kill the server, and again when it is back."""
        killed = 0
        while killed < self.times and _is_at_work(process, self.seconds / self.times):
            pid = EmbeddedPostgres(folder / "postgres").pid
            if pid is not None:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    killed += 1
        if not killed:
            raise Missed(f"the run was over before {self.seconds:.1f} s")

    def sooner(self) -> LoseDatabase:
        """The same in half the time."""
        return LoseDatabase(self.seconds / 2, self.times)


Fault = CrashAt | CrashInTurn | KillAfter | LoseDatabase


class Missed(Exception):
    """A fault hit nobody, so that it proves nothing."""


def _is_at_work(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Whether a process still works after some time."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return True
    return False


# --- trials ----------------------------------------------------------------------------------


def _without_faults(subject: Subject) -> tuple[dict[str, bytes], float]:
    started = monotonic()
    place = subject.folder / "none"
    code = _finish(_start(subject, place, {}), place)
    if code != 0:
        raise ChaosFailed("none", f"the run without faults ended with {code}: {_said(place)}")
    seconds = monotonic() - started
    expected = results_in(place)
    compare("none", expected, place)
    return expected, seconds


def _trial(subject: Subject, expected: dict[str, bytes], name: str, fault: Fault) -> Trial:
    """One that hits nobody is tried again, sooner, if that may help."""
    try:
        return _tried(subject, expected, name, fault)
    except Missed as missed:
        if isinstance(fault, CrashAt | CrashInTurn) or fault.seconds < SOONEST:
            raise ChaosFailed(name, f"nothing died: {missed}") from None
        return _trial(subject, expected, f"{name}, sooner", fault.sooner())


def _tried(subject: Subject, expected: dict[str, bytes], name: str, fault: Fault) -> Trial:
    started = monotonic()
    place = subject.folder / re.sub("[ :,]+", "-", name)
    process = _start(subject, place, fault.environment(0))
    fault.befall(process, place / "deployment")
    deaths = 0
    most = MOST_RESTARTS + (len(fault.points) if isinstance(fault, CrashInTurn) else 0)
    while (code := _finish(process, place)) != 0:
        deaths += 1
        if code != -signal.SIGKILL or deaths > most:
            raise ChaosFailed(name, f"the process ended with {code}: {_said(place)}")
        process = _start(subject, place, fault.environment(deaths))
    if fault.environment(deaths):
        raise Missed("the run does not pass all of them")
    compare(name, expected, place)
    return Trial(name, deaths, monotonic() - started)


def compare(name: str, expected: Mapping[str, bytes], place: Path) -> None:
    """Raise `ChaosFailed` unless a trial gave these results, and published them once."""
    found = results_in(place)
    for sink in sorted(expected.keys() | found.keys()):
        if found.get(sink) != expected.get(sink):
            raise ChaosFailed(name, f"{sink} is not what the run without faults gave; see {place}")
    with open_database(None, place / "deployment") as database:
        published = database.transact(publications_of)
    wrong = why_not_once(expected, published)
    if wrong is not None:
        raise ChaosFailed(name, wrong)


@dataclass(frozen=True, slots=True)
class Published:
    """What one incarnation of a run has published, and by how many transactions."""

    run: str
    sinks: tuple[str, ...]
    transactions: int


def why_not_once(sinks: Collection[str], published: Sequence[Published]) -> str | None:
    """What is wrong, unless these sinks, and no others, were published once, all together.

    >>> why_not_once(["q1"], [Published("chaos#1", ("q1",), 1)])
    >>> why_not_once(["q1"], [])
    'nothing was published'
    """
    if not published or not sinks:
        return "nothing was published"
    for each in published:
        if each.transactions != 1:
            return f"run {each.run} was published by {each.transactions} transactions"
    times = Counter(sink for each in published for sink in each.sinks)
    for sink in sorted({*sinks, *times}):
        wanted = 1 if sink in sinks else 0
        if times[sink] != wanted:
            runs = ", ".join(each.run for each in published)
            return f"{sink} was published {times[sink]} times, not {wanted}, by {runs}"
    return None


def publications_of(connection: Connection) -> list[Published]:
    """What every incarnation of every run of a deployment has published."""
    transactions = publications(connection)
    runs = {summary.run.key: summary.run for summary in overview(connection)}
    return [
        Published(key, tuple(results_of(connection, runs[key])), number)
        for key, number in transactions.items()
    ]


def _start(subject: Subject, place: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    place.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", *subject.program, subject.pipeline, "--run", RUN]
    command += ["--data", str(subject.data), "--out", str(place / "out")]
    command += ["--deployment", str(place / "deployment"), "--shards", str(subject.shards)]
    with (place / "log").open("ab") as log:
        return subprocess.Popen(  # noqa: S603  our own command
            command, env={**os.environ, **environment}, stdout=log, stderr=log
        )


def _finish(process: subprocess.Popen[bytes], place: Path) -> int:
    try:
        return process.wait(BOUND)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise ChaosFailed(place.name, f"not done after {BOUND:g} s: {_said(place)}") from None


def _said(place: Path) -> str:
    return (place / "log").read_text(errors="replace")[-2000:]


def results_in(place: Path) -> dict[str, bytes]:
    """What a trial has written out, by sink."""
    return {file.stem: file.read_bytes() for file in sorted((place / "out").glob("*.csv"))}
