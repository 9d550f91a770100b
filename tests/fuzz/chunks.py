"""Deliver damaged and random chunks to a real server, and see that each gets a named answer.

    python -m tests.fuzz.chunks --count 100000 --seed 1
    python -m tests.fuzz.chunks --seed 1 --only 4711 --spark

The server is this process: it has to live, and to stay small. Its chunk checkers may be lost. A
chunk that only Spark can judge is counted as such; with `--spark` Spark judges it. What has no
named answer is saved, and the command fails with its number.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory, gettempdir
from time import monotonic

import tidegate as tg
from tests.fuzz.inputs import SCHEMA, Input, input_of
from tidegate.errors import ChunkNotCopied, RunError
from tidegate.plan import physical_plan
from tidegate.runtime.deployment import Deployment
from tidegate.runtime.ingestion.run_service import RunService
from tidegate.runtime.task_graph import build_task_graph
from tidegate.settings import Settings
from tidegate.spark import CheckerPool, Session, open_session
from tidegate.store import Database, EmbeddedPostgres, Notifications

LIMITS = Settings(
    chunk_memory_bytes=512 << 20,
    chunk_decoded_bytes=64 << 20,
    chunk_value_bytes=64 << 10,
    chunk_line_bytes=128 << 10,
    chunk_seconds=20.0,
)
PER_RUN = 500
"""Chunks of one run; its files are looked at when it is over, and removed."""
MOST_GROWTH = 256 << 20
"""Bytes that the server may grow by, once it has seen the first chunks."""
THREADS = 2
NO_SYNC = {"fsync": "off", "full_page_writes": "off"}
ABOUT_MEMORY = ("ChunkNeedsMemory", "ChunkCrashedChecker", "ChunkTooSlow")
"""What a small text or a good file does not deserve, whatever its checker has read before."""
TAKEN, NEEDS_SPARK = "taken", "needs Spark"


class NeedsSpark(Exception):
    """A chunk is for Spark, which there is not."""


@dataclass
class Counters:
    """What became of the chunks, by how they were made."""

    answers: Counter[tuple[str, str]] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    smallest: int = 0
    largest: int = 0

    def weigh(self) -> None:
        """Look at the size of this process."""
        size = int(Path("/proc/self/statm").read_text().split()[1]) * 4096
        self.smallest = self.smallest or size
        self.largest = max(self.largest, size)
        if self.largest - self.smallest > MOST_GROWTH:
            self.wrong.append(f"the server grew from {self.smallest:,} to {self.largest:,} bytes")

    def table(self) -> Iterator[str]:
        """Lines for people."""
        made = sorted({made for made, _ in self.answers})
        for answer in sorted({answer for _, answer in self.answers}):
            by_kind = {it: self.answers[it, answer] for it in made if self.answers[it, answer]}
            kinds = ", ".join(f"{it} {number:,}" for it, number in by_kind.items())
            yield f"{sum(by_kind.values()):>8,}  {answer:<22} {kinds}"


class Fuzzing:
    """Delivers inputs to one server."""

    def __init__(self, server: RunService, root: Path, saved: Path, seed: int) -> None:
        self.counters = Counters()
        self._server = server
        self._root = root
        self._saved = saved
        self._seed = seed

    def run(self, numbers: range) -> None:
        """Deliver these inputs to a run of their own."""
        name = f"fuzz-{numbers.start}"
        self._server.begin(name)
        with ThreadPoolExecutor(THREADS) as threads:
            taken = sum(threads.map(lambda number: self._deliver(name, number), numbers))
        self._server.cancel(name)
        self._see_files(name, taken)
        self.counters.weigh()

    def _deliver(self, run: str, number: int) -> bool:
        """Whether it was taken."""
        given = input_of(self._seed, number)
        file = self._root / f"{number}{given.ending}"
        file.write_bytes(given.content)
        answer = self._answer(run, number, file)
        file.unlink()
        if answer in ABOUT_MEMORY and (given.made == "good" or given.ending.startswith(".csv")):
            self.counters.wrong.append(f"input {number}: {answer}, which it cannot deserve")
            answer = None
        if answer is None:
            self._save(number, given)
        self.counters.answers[given.made, answer or "WRONG"] += 1
        return answer == TAKEN

    def _answer(self, run: str, number: int, file: Path) -> str | None:
        """What the server says; None for what it may not say."""
        try:
            self._server.deliver(run, "items", 1 + number % PER_RUN, str(file))
        except NeedsSpark:
            return NEEDS_SPARK
        except RunError as error:
            if not error.retryable and not isinstance(error, ChunkNotCopied):
                return error.condition
            self.counters.wrong.append(f"input {number}: {error!r}")
        except Exception as error:  # noqa: BLE001  it is what is looked for
            self.counters.wrong.append(f"input {number}: {error!r}")
        else:
            return TAKEN
        return None

    def _save(self, number: int, given: Input) -> None:
        self._saved.mkdir(parents=True, exist_ok=True)
        (self._saved / f"{self._seed}-{number}{given.ending}").write_bytes(given.content)

    def _see_files(self, run: str, taken: int) -> None:
        """A chunk that is taken has files, unless it has no rows; others have none."""
        chunks = self._root / "chunks"
        found = [it for it in chunks.rglob("*") if it.is_file()]
        numbers = {it.name.partition("-")[0] for it in found}
        if len(numbers) > taken or any(it.name.endswith(".writing") for it in found):
            self.counters.wrong.append(f"run {run}: files of chunks that were refused")
        rmtree(chunks, ignore_errors=True)


@contextmanager
def fuzzing(
    database: Database, folder: Path, session: Callable[[], Session], seed: int
) -> Iterator[Fuzzing]:
    """A server for one source, with its limits on."""
    pipeline = tg.Pipeline("fuzz")
    pipeline.source("items", SCHEMA).select("item_id").sink("ids")
    root = folder / "data"
    root.mkdir()
    place = Deployment(database, str(root), LIMITS)
    task_graph = build_task_graph(physical_plan(pipeline))
    with Notifications(database) as notifications, CheckerPool(place.settings) as checkers:
        server = RunService(place, pipeline, task_graph, session, notifications, checkers)
        yield Fuzzing(server, root, Path(gettempdir(), "tidegate-fuzz"), seed)


def no_session() -> Session:
    """Says that a chunk is for Spark."""
    raise NeedsSpark


def runs(count: int) -> Iterator[range]:
    """The numbers of so many inputs, a run at a time."""
    for start in range(0, count, PER_RUN):
        yield range(start, min(count, start + PER_RUN))


def main() -> None:
    """Fuzz as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="the number of a single input")
    parser.add_argument("--spark", action="store_true", help="let Spark judge what it has to")
    request = parser.parse_args()
    numbers = (
        [range(request.only, request.only + 1)] if request.only is not None else runs(request.count)
    )
    session = (lambda: open_session("local[2]")) if request.spark else no_session
    began = monotonic()
    with TemporaryDirectory(prefix="tidegate-fuzz-", dir=_quick_disk()) as folder:
        with (
            EmbeddedPostgres(Path(folder, "postgres"), settings=NO_SYNC) as embedded,
            Database(embedded.url, revive=embedded.ensure_running).open() as database,
            fuzzing(database, Path(folder), session, request.seed) as fuzz,
        ):
            for each in numbers:
                fuzz.run(each)
                _say(f"{each.stop:,} inputs, {monotonic() - began:.0f} s")
        embedded.wait_stopped()
    _report(fuzz.counters, request.seed)


def _report(counters: Counters, seed: int) -> None:
    for line in counters.table():
        print(line)  # noqa: T201
    print(f"server: {counters.smallest >> 20} MiB at first, {counters.largest >> 20} MiB at most")  # noqa: T201
    if counters.wrong:
        saved = Path(gettempdir(), "tidegate-fuzz")
        sys.exit("\n".join([*counters.wrong[:20], f"seed {seed}; inputs are saved in {saved}"]))


def _quick_disk() -> str | None:
    """Nothing here has to survive the machine."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def _say(line: str) -> None:
    if sys.stderr.isatty():
        print(f"\r{line}", end="", file=sys.stderr, flush=True)  # noqa: T201
    else:
        print(line, file=sys.stderr, flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
