"""The whole pipeline against plain Spark and Structured Streaming, on the same data and cores.

    python -m bench.pipeline                      # 4 M transactions, 8 M items, 40 chunks of CSV
    python -m bench.pipeline --format parquet
    python -m bench.pipeline --transactions 400000 --tiny-runs 100

All sides answer the coffee questions in one session on two cores, warm, in turns. Tidegate's time
begins with the first chunk and ends when the results are written, in the format of the chunks:
checking and copying chunks, PostgreSQL and all bookkeeping are in it. Prints ratios; below 1 is
quicker than the peer.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from multiprocessing import get_context
from os import getpid
from pathlib import Path
from shutil import rmtree
from statistics import median
from tempfile import TemporaryDirectory
from threading import Event, Thread
from time import monotonic, sleep
from typing import Literal, Self

from pyspark.sql import SparkSession

from bench import _coffee
from bench._coffee_spark import plain_spark
from bench._coffee_streaming import structured_streaming
from tidegate.runtime.deployment import Deployment, open_deployment
from tidegate.runtime.service import PipelineService, serve
from tidegate.spark import open_session, write_csv
from tidegate.store import EmbeddedPostgres
from tidegate_examples.coffee import pipeline
from tidegate_examples.coffee.data import Size, write

CORES = 2
SHARDS = 2
CHUNKS = 20
"""Files of each of the two large sources."""
TENTH = 10
WARM_UP = 3
"""Rounds that do not count: Java compiles what is used often only when it has been."""
DEPLOYMENT = "deployment"
Files = Mapping[str, Sequence[Path]]


@dataclass(frozen=True)
class Asked:
    """What the command line asks for."""

    transactions: int
    format: Literal["csv", "parquet"]
    rounds: int
    tiny_runs: int
    streaming: bool
    data: Path | None


class Tidegate:
    """A service that answers for folders of data, one run each."""

    def __init__(self, service: PipelineService, place: Deployment, session: SparkSession) -> None:
        self._service = service
        self._server = service.server
        self._place = place
        self._session = session
        self._numbers = count(1)

    def at_once(self, folder: Path, out: Path | None) -> float:
        """Everything is there: seconds from the first chunk to the results, as CSV in `out`.

        Without `out` they stay what is published, which is Parquet.
        """
        run, files, started = self._begin(), _files(folder), monotonic()
        with ThreadPoolExecutor(CORES) as pool:
            sources = [
                (source, [pool.submit(self._server.deliver, run, source, n, str(f)) for n, f in
                 enumerate(its, 1)])
                for source, its in files.items()
            ]  # fmt: skip
            for source, sent in sources:
                for each in sent:
                    each.result()
                self._server.end(run, source, len(sent))
        self._finish(run, out)
        return monotonic() - started

    def over_time(self, folder: Path, out: Path | None, seconds: float) -> float:
        """Chunks arrive one by one over some time: seconds from the last END to the results."""
        run, files = self._begin(), _files(folder)
        arriving = [(source, n, file) for source, its in files.items() for n, file in
                    enumerate(its, 1)]  # fmt: skip
        arriving.sort(key=lambda it: it[1])
        begun = monotonic()
        for place, (source, number, file) in enumerate(arriving, 1):
            sleep(max(0.0, begun + seconds * place / len(arriving) - monotonic()))
            self._server.deliver(run, source, number, str(file))
        ended = monotonic()
        for source, its in files.items():
            self._server.end(run, source, len(its))
        self._finish(run, out)
        return monotonic() - ended

    def many(self, folder: Path, runs: int) -> float:
        """Tiny runs, all at once: seconds until the last one is complete."""
        files, started = _files(folder), monotonic()
        with ThreadPoolExecutor(4) as pool:
            names = list(pool.map(lambda _: self._submit(files), range(runs)))
        for name in names:
            self._server.wait(name)
        return monotonic() - started

    def _submit(self, files: Files) -> str:
        run = self._begin()
        for source, its in files.items():
            for number, file in enumerate(its, 1):
                self._server.deliver(run, source, number, str(file))
            self._server.end(run, source, len(its))
        return run

    def _begin(self) -> str:
        name = f"run {next(self._numbers)}"
        self._server.begin(name)
        return name

    def _finish(self, run: str, out: Path | None) -> None:
        published = self._server.wait(run)
        if out is None:
            return
        for sink, batches in published.items():
            schema = self._service.schema_of(sink)
            write_csv(self._session, self._place.root, batches, schema, out / f"{sink}.csv")


class Memory:
    """The peak memory of our own processes: this one and PostgreSQL's, without the JVM."""

    def __init__(self, deployment: Path) -> None:
        self.peak = 0
        self._server = EmbeddedPostgres(deployment / "postgres").pid
        self._stopped = Event()
        self._thread = Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    @property
    def megabytes(self) -> str:
        """For printing."""
        return f"{self.peak / 1000:,.0f} MB"

    def _watch(self) -> None:
        while not self._stopped.wait(0.25):
            self.peak = max(self.peak, sum(map(_kilobytes, self._processes())))

    def _processes(self) -> Iterator[int]:
        yield getpid()
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal() and self._server in {int(entry.name), _parent(entry)}:
                yield int(entry.name)


def _parent(process: Path) -> int | None:
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None


def _kilobytes(process: int) -> int:
    """Its memory; what several processes share is split among them."""
    try:
        text = Path(f"/proc/{process}/smaps_rollup").read_text()
    except OSError:
        return 0
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:"))


def main() -> None:
    """Measure and print."""
    asked = _asked()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="tidegate-bench-")))
        session = open_session(f"local[{CORES}]", settings={"spark.driver.memory": "4g"})
        stack.callback(session.stop)
        ours = stack.enter_context(_tidegate(session, folder / DEPLOYMENT))
        data = asked.data or _generated(folder / "data", asked.transactions, asked.format)
        _compare(asked, session, ours, data, folder)
        _scale(asked, ours, data, folder)
        if asked.tiny_runs:
            _tiny(asked, ours, folder)


@contextmanager
def _tidegate(session: SparkSession, folder: Path) -> Iterator[Tidegate]:
    with (
        open_deployment(folder) as place,
        serve(place, pipeline, session, SHARDS) as service,
    ):
        yield Tidegate(service, place, session)


def _compare(asked: Asked, session: SparkSession, ours: Tidegate, data: Path, folder: Path) -> None:
    peer = session.newSession()
    for name, value in _coffee.SETTINGS.items():
        peer.conf.set(name, value)

    out = folder / "ours" if asked.format == "csv" else None

    def plain() -> None:
        plain_spark(peer, data, folder / "plain", asked.format)

    def stream() -> list[float]:
        return [_stream(asked, peer, data, folder)] if asked.streaming else []

    _say(f"warming up on {data}")
    for _ in range(WARM_UP):
        _timed(plain)
        ours.at_once(data, out)
        stream()
    at_once, after_end, spark, streams = [], [], [], []
    memory = Memory(folder / DEPLOYMENT)
    with memory:
        for number in range(asked.rounds):
            spark.append(_timed(plain))
            at_once.append(ours.at_once(data, out))
            after_end.append(ours.over_time(data, out, 2 * spark[-1]))
            streams += stream()
            _say(f"round {number + 1}: plain Spark {spark[-1]:.1f} s, Tidegate {at_once[-1]:.1f} s,"
                 f" {after_end[-1]:.1f} s after END")  # fmt: skip
    _ratio("everything at once", at_once, spark, "plain Spark", "≤ 1.1")
    _ratio("after the last END", after_end, spark, "plain Spark", "≤ 0.4")
    _say(f"peak memory of Tidegate and PostgreSQL: {memory.megabytes} (goal < 400 MB)")
    if streams:
        _ratio("everything at once", at_once, streams, "Structured Streaming", "< 0.5")


def _stream(asked: Asked, peer: SparkSession, data: Path, folder: Path) -> float:
    out, checkpoints = folder / "stream", folder / "checkpoints"
    taken = _timed(lambda: structured_streaming(peer, data, out, checkpoints, asked.format))
    for used in (out, checkpoints):
        rmtree(used, ignore_errors=True)
    _say(f"Structured Streaming: {taken:.1f} s")
    return taken


def _scale(asked: Asked, ours: Tidegate, data: Path, folder: Path) -> None:
    """A tenth of the data, in as many chunks."""
    small = _generated(folder / "tenth", asked.transactions // TENTH, asked.format)
    ours.at_once(small, folder / "ours")
    with Memory(folder / DEPLOYMENT) as memory:
        little = [ours.at_once(small, folder / "ours") for _ in range(asked.rounds)]
    large = [ours.at_once(data, folder / "ours") for _ in range(asked.rounds)]
    _ratio("ten times the data", large, little, "a tenth of it", "≤ 11")
    _say(f"peak memory with a tenth of the data: {memory.megabytes}")


def _tiny(asked: Asked, ours: Tidegate, folder: Path) -> None:
    tiny = folder / "tiny"
    write(tiny, Size(100, files=1), seed=1)
    taken = ours.many(tiny, asked.tiny_runs)
    each = 1000 * taken / asked.tiny_runs
    _say(f"{asked.tiny_runs:,} tiny runs at once: {taken:.1f} s, {each:.0f} ms per run")


def _ratio(title: str, ours: Sequence[float], peers: Sequence[float], peer: str, goal: str) -> None:
    ratio = median(ours) / median(peers)
    _say(f"{title:<20} {ratio:5.2f} × {peer:<22} (goal {goal};"
         f" {median(ours):.1f} s against {median(peers):.1f} s)")  # fmt: skip


def _generated(folder: Path, transactions: int, kind: Literal["csv", "parquet"]) -> Path:
    """In a process of its own, for what it takes is not what Tidegate needs."""
    _say(f"generating {transactions:,} transactions as {kind}")
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as elsewhere:
        elsewhere.submit(write, folder, Size(transactions, files=CHUNKS), 1, kind).result()
    return folder


def _files(folder: Path) -> dict[str, list[Path]]:
    return {source: sorted((folder / source).iterdir()) for source in pipeline.sources}


def _timed(work: Callable[[], None]) -> float:
    started = monotonic()
    work()
    return monotonic() - started


def _say(what: str) -> None:
    print(what, flush=True)


def _asked() -> Asked:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--transactions", type=int, default=4_000_000)
    parser.add_argument("--format", choices=("csv", "parquet"), default="csv")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--tiny-runs", type=int, default=1_000)
    parser.add_argument("--no-streaming", dest="streaming", action="store_false")
    parser.add_argument("--data", type=Path, help="instead of generating some")
    return Asked(**vars(parser.parse_args(sys.argv[1:])))


if __name__ == "__main__":
    main()
